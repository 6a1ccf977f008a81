"""Brings an artifact's bytes to where a commit can register them.

Nothing is registered here, and nothing that is there is changed: a crash leaves bytes that nobody
knows of (see `collect`), and a second publisher of the same name takes another path.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from tapstore.abc import Store
from tapstore.artifacts import directory, manifest, paths
from tapstore.artifacts.fetch import read_manifest
from tapstore.artifacts.manifest import Manifest
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.place import check_surroundings, place
from tapstore.artifacts.sources import BytesContent, Source, opened
from tapstore.artifacts.streams import Meter, Progress
from tapstore.errors import ChecksumError, FormatError, InvalidKeyError, NotFoundError

__all__ = ["Source", "stage"]


def stage(
    store: Store,
    source: Source,
    *,
    name: str,
    phase: str,
    suffix: str,
    path: str | None = None,
    registered: Collection[Artifact] = (),
    type: str = "",
    producer: str = "",
    consumers: Iterable[str] = (),
    media_type: str = "",
    metadata: Mapping[str, Any] | None = None,
    on_progress: Progress | None = None,
) -> Artifact:
    """Store the bytes of `source` and return the artifact to register.

    `source` is bytes, the path of a file or directory, or a binary stream, read from where it
    stands.  The bytes lie at `path`, or `artifacts/<phase>/<name>`; if other bytes lie there, at
    the same with `~<suffix>` before the extension (and `-2`, `-3`, … if the same suffix was used
    for other bytes before; random, where the place cannot create so large an object exclusively).
    Bytes that are there already are compared and not stored again, if
    they are safe from being collected.

    `suffix` should be the id of the claim or operation: repeating the call after a crash finds
    what was stored.  `registered` are the session's artifacts as last read.  Register what is
    returned within ten minutes, or under a claim that lives: later it may have been collected.

    Safe to call from any number of processes at once, and to repeat.  Raises `InvalidKeyError`
    for what can't be a name or path, `NotFoundError` if there is no such file, `ConflictError` if
    a directory changes meanwhile, and what the store raises.
    """
    what = f"artifact {name!r}" + (f" of phase {phase!r}" if phase else "")
    try:
        wanted = paths.default_path(phase, name)
        if path is not None:
            wanted = path
        others = (a.path for a in registered if a.identity != (phase, name))
        paths.check_path(wanted, registered=others)
        names = paths.alternatives(wanted, suffix)
        check_surroundings(store, wanted)
        place_here = partial(
            place,
            store,
            names,
            registered=frozenset(a.path for a in registered).__contains__,
            unique=lambda _: paths.unique(wanted, suffix, secrets.token_hex(8)),
        )
        folder = _folder(source)
        if folder is not None:
            data = _store_directory(store, folder, registered, on_progress)
            placed = place_here(BytesContent(data))
        else:
            with opened(source) as content:
                placed = place_here(content, meter=Meter(content.size(), on_progress))
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"cannot publish {what}: {exc}") from exc
    return Artifact(
        name=name,
        path=placed.key,
        type=type,
        producer=producer,
        consumer=tuple(consumers),
        checksum=placed.checksum,
        phase=phase,
        size=placed.size,
        media_type=media_type or ("" if folder is None else manifest.MEDIA_TYPE),
        manifest=folder is not None,
        metadata=metadata or {},
    )


def _folder(source: Source) -> str | None:
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        return os.fspath(source)
    return None


def _store_directory(
    store: Store, folder: str, registered: Collection[Artifact], on_progress: Progress | None
) -> bytes:
    """Store the files of the directory; return its manifest."""
    tree = directory.store_files(
        store, folder, needed=_needed(store, registered), on_progress=on_progress
    )
    data = manifest.render(tree)
    if len(data) > manifest.MAX_BYTES:
        raise InvalidKeyError(
            f"the manifest of {folder!r} would be larger than {manifest.MAX_BYTES} bytes: "
            "publish an archive of the directory instead"
        )
    return data


def _needed(store: Store, registered: Collection[Artifact]) -> Callable[[str], bool]:
    """Whether a registered directory has the file of this sum; they are read when first asked."""

    @cache
    def sums() -> frozenset[str]:
        return directory.needed_files(_manifests(store, registered))

    return lambda sha256: sha256 in sums()


def _manifests(store: Store, registered: Collection[Artifact]) -> Iterator[Manifest]:
    for artifact in registered:
        if artifact.manifest:
            try:
                yield read_manifest(store, artifact)
            except (NotFoundError, ChecksumError, FormatError, InvalidKeyError):
                # Another's damaged artifact costs us a second copy of its files, no more.
                continue
