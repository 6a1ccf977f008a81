"""The artifacts of a session as a mapping; reading one verifies it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from tapstore.abc import Store
from tapstore.artifacts import fetch
from tapstore.artifacts.model import Artifact
from tapstore.errors import ArtifactNotFoundError
from tapstore.sessions.artifactplace import ArtifactPlaces
from tapstore.tapfile.model import Tapfile


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One registered artifact and its bytes.

    Each way to read compares size and checksum and raises `ChecksumError` naming both sums, path
    and producer; a stream does so when its end is reached.
    """

    places: ArtifactPlaces
    artifact: Artifact

    def read_bytes(self) -> bytes:
        return fetch.read_bytes(*self._located, storage_options=self._options)

    def read_text(self, encoding: str = "utf-8") -> str:
        return fetch.read_text(*self._located, encoding=encoding, storage_options=self._options)

    def open(self) -> AbstractContextManager[BinaryIO]:
        return fetch.open_artifact(*self._located, storage_options=self._options)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        inside: str | os.PathLike[str] | None = None,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> str:
        """Write it to a file (a directory for a manifest), whole or not at all; return its path.

        Give `inside` where `path` comes from somebody else: it is relative to that folder and may
        not lead out of it.  `on_progress(bytes_done, bytes_total)` is called as it goes on.
        """
        return fetch.fetch_to(
            *self._located,
            path,
            inside=inside,
            on_progress=on_progress,
            storage_options=self._options,
        )

    @property
    def is_external(self) -> bool:
        """Whether the bytes are somebody else's, who may change them."""
        return self._located[1].is_external

    def stored_bytes(self) -> int | None:
        """The size of what is stored, unread; None if that is not ours to look at."""
        store, artifact = self._located
        return None if artifact.is_external else store.head(artifact.path).size

    @property
    def _located(self) -> tuple[Store, Artifact]:
        return self.places.locate(self.artifact)

    @property
    def _options(self) -> Mapping[str, Any]:
        return self.places.options_for(self.artifact.path)


_MANY = 10
"""Of more the error names only some."""


class ArtifactFiles(Mapping[str | tuple[str, str], ArtifactFile]):
    """By name (the one registered last) or by (phase, name).  Each look reads the newest state."""

    def __init__(self, places: ArtifactPlaces, read: Callable[[], Tapfile]) -> None:
        self._places = places
        self._read = read

    def __getitem__(self, key: str | tuple[str, str]) -> ArtifactFile:
        phase, name = key if isinstance(key, tuple) else (None, key)
        tapfile = self._read()
        artifact = tapfile.artifact(name, phase)
        if artifact is None:
            wanted = name if phase is None else f"{phase}/{name}"
            raise ArtifactNotFoundError(
                f"session {tapfile.session_id} has no artifact {wanted!r}; it has "
                f"{_those_like(wanted, tapfile)}"
            )
        return self.of(artifact)

    def of(self, artifact: Artifact) -> ArtifactFile:
        """The file of an artifact that was read before; nothing is looked at."""
        return ArtifactFile(self._places, artifact)

    def __contains__(self, key: object) -> bool:
        phase, name = key if isinstance(key, tuple) else (None, key)
        return isinstance(name, str) and self._read().artifact(name, phase) is not None

    def get(  # type: ignore[override]
        self, key: str | tuple[str, str], default: ArtifactFile | None = None
    ) -> ArtifactFile | None:
        try:
            return self[key]
        except ArtifactNotFoundError:
            return default

    def __iter__(self) -> Iterator[str | tuple[str, str]]:
        return iter([a.identity for a in self._read().artifacts])

    def __len__(self) -> int:
        return len(self._read().artifacts)


def _those_like(wanted: str, tapfile: Tapfile) -> str:
    """What could have been meant: all that there are, or of many those that look alike."""
    names = [f"{a.phase}/{a.name}" if a.phase else a.name for a in tapfile.artifacts]
    if len(names) <= _MANY:
        return ", ".join(names) or "(none)"
    import difflib

    by_name = {a.name: name for a, name in zip(tapfile.artifacts, names, strict=True)}
    close = difflib.get_close_matches(wanted.rpartition("/")[2], by_name, n=3)
    shown = [by_name[name] for name in close] or names[-3:]
    return f"{len(names)}, such as {', '.join(shown)}; `tapstore artifacts` lists them"
