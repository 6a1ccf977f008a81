"""The artifacts of a session as a mapping; reading one verifies it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from tapstore.abc import Store
from tapstore.artifacts import fetch
from tapstore.artifacts.model import Artifact
from tapstore.errors import ArtifactNotFoundError
from tapstore.tapfile.model import Tapfile


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One registered artifact and its bytes.

    Each way to read compares size and checksum and raises `ChecksumError` naming both sums, path
    and producer; a stream does so when its end is reached.
    """

    store: Store
    artifact: Artifact

    def read_bytes(self) -> bytes:
        return fetch.read_bytes(self.store, self.artifact)

    def read_text(self, encoding: str = "utf-8") -> str:
        return fetch.read_text(self.store, self.artifact, encoding=encoding)

    def open(self) -> AbstractContextManager[BinaryIO]:
        return fetch.open_artifact(self.store, self.artifact)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        """Write it to a file (a directory for a manifest), whole or not at all.

        `on_progress(bytes_done, bytes_total)` is called as it goes on.
        """
        fetch.fetch_to(self.store, self.artifact, path, on_progress=on_progress)


_MANY = 10
"""Of more the error names only some."""


class ArtifactFiles(Mapping[str | tuple[str, str], ArtifactFile]):
    """By name (the one registered last) or by (phase, name).  Each look reads the newest state."""

    def __init__(self, store: Store, read: Callable[[], Tapfile]) -> None:
        self._store = store
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
        return ArtifactFile(self._store, artifact)

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
