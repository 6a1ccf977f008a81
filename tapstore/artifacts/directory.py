"""Publishes a directory: its files by their checksums, then the manifest that names them.

A file that any published directory has already is not stored again.  The manifest comes last, so
one that can be seen is complete.  Refused are symbolic links (what they point to may be anything,
and may change while we read), devices, pipes, and names that would not be the same everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tapstore import keys
from tapstore.abc import Store
from tapstore.artifacts import manifest
from tapstore.artifacts.manifest import Entry, Manifest
from tapstore.artifacts.place import place, read_through
from tapstore.artifacts.sources import FileContent
from tapstore.artifacts.streams import HashingReader, Meter, Progress, read_failed
from tapstore.errors import ConflictError, InvalidKeyError, NotFoundError


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    path: str
    size: int
    executable: bool


def store_files(
    store: Store,
    folder: str,
    *,
    needed: Callable[[str], bool],
    on_progress: Progress | None = None,
) -> Manifest:
    """Store the files below `folder`; return their manifest, which is not stored yet.

    `needed` tells of a file's sha256 whether a registered directory has it.  Everything is looked
    at before anything is stored.
    """
    found = sorted(_scan(folder, ""), key=lambda file: file.name.encode())
    # What the manifest would refuse, it refuses now.
    manifest.build(Entry(path=file.name, size=0, sha256="") for file in found)
    meter = Meter(sum(file.size for file in found), on_progress)
    entries = [_store_file(store, file, needed, meter) for file in found]
    return manifest.build(entries)


def _store_file(store: Store, file: _Found, needed: Callable[[str], bool], meter: Meter) -> Entry:
    content = FileContent(file.path, follow=False)
    try:
        # Twice, because the sum is the name.
        with content.open() as stream:
            checksum = read_through(HashingReader(stream, content.what)).checksum
        sha256 = checksum.removeprefix("sha256:")
        placed = place(
            store,
            manifest.object_keys(sha256),
            content,
            registered=lambda _: needed(sha256),
            # Whoever writes there writes the same.
            unique=lambda key: key,
            expected=checksum,
            meter=meter,
        )
    except (NotFoundError, ConflictError) as exc:
        raise ConflictError(
            f"{file.path!r} changed while its directory was being published ({exc}); nothing was "
            "registered: publish it again when nobody writes to it"
        ) from exc
    return Entry(path=file.name, size=placed.size, sha256=sha256, executable=file.executable)


def _scan(folder: str, prefix: str) -> Iterator[_Found]:
    try:
        with os.scandir(folder) as listing:
            children = list(listing)
    except OSError as exc:
        raise read_failed(repr(folder), exc) from exc
    for child in children:
        name = prefix + child.name
        fault = _fault(child, name)
        if fault:
            raise InvalidKeyError(
                f"cannot publish {folder!r}: {child.path!r} {fault}; nothing was stored"
            )
        if child.is_dir(follow_symlinks=False):
            yield from _scan(child.path, name + "/")
        else:
            status = child.stat(follow_symlinks=False)
            yield _Found(name, child.path, status.st_size, bool(status.st_mode & 0o100))


def _fault(child: os.DirEntry[str], name: str) -> str | None:
    if child.is_symlink():
        return "is a symbolic link: replace it by what it points to, or publish an archive"
    if not (child.is_dir() or child.is_file()):
        return "is neither a file nor a directory"
    try:
        keys.check_key(name)
    except InvalidKeyError as exc:
        return f"cannot have that name on every system: {exc}"
    return None


def needed_files(manifests: Iterable[Manifest]) -> frozenset[str]:
    """The sha256 sums of the files that these directories have."""
    return frozenset(entry.sha256 for tree in manifests for entry in tree.entries)
