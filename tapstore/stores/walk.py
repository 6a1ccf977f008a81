"""Walks the files below a folder in the order of their keys, without what a store leaves out.

Left out are unfinished writes, what is not a valid key, folders without files, links to folders
(they could go round in a circle) and links that lead out.  What vanishes meanwhile is no error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator

from tapstore.keys import TEMP_MARK, is_key

Entry = tuple[str, os.stat_result]
"""Key and what `stat` says of it."""

_ATTEMPTS = 5


def files(
    root: str, prefix: str, start_after: str, follow: Callable[[str], os.stat_result | None]
) -> Iterator[Entry]:
    """Yield the files whose key starts with `prefix` and sorts after `start_after`.

    `follow` says what a link at that key leads to, or None if it is not to be shown.
    """
    folder, slash, beginning = prefix.rpartition("/")
    return _files(root, folder + slash, beginning, start_after, follow)


def _files(
    root: str,
    folder: str,
    beginning: str,
    start_after: str,
    follow: Callable[[str], os.stat_result | None],
) -> Iterator[Entry]:
    for name, entry in _sorted_entries(root, folder):
        key = folder + name
        if not name.startswith(beginning):
            continue
        if name.endswith("/"):
            # All keys in it are on one side of start_after, unless that lies in it too.
            if key > start_after or start_after.startswith(key):
                yield from _files(root, key, "", start_after, follow)
        elif key > start_after:
            status = _status(entry, key, follow)
            if status is not None:
                yield key, status


def children(
    root: str, folder: str, follow: Callable[[str], os.stat_result | None]
) -> Iterator[str]:
    """Yield the names directly in `folder`, sorted; those of folders with files end in `/`."""
    for name, entry in _sorted_entries(root, folder):
        key = folder + name
        if name.endswith("/"):
            if next(_files(root, key, "", "", follow), None) is not None:
                yield name
        elif _status(entry, key, follow) is not None:
            yield name


def unfinished(root: str, folder: str = "") -> Iterator[Entry]:
    """Yield the temporary files of writes that did not end, or did not end yet."""
    for entry in _entries(root, folder):
        key = folder + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from unfinished(root, key + "/")
        elif entry.name.startswith(TEMP_MARK):
            try:
                yield key, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def _sorted_entries(root: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Entries that may be keys or hold some; the names of folders end in `/`.

    The slash is part of the order: `a.b` sorts before `a/b`, although `a` sorts before `a.b`.
    """
    found = []
    for entry in _entries(root, folder):
        if is_key(folder + entry.name):
            name = entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name
            found.append((name, entry))
    found.sort(key=lambda pair: pair[0])
    return found


def _entries(root: str, folder: str) -> list[os.DirEntry[str]]:
    for attempt in range(_ATTEMPTS):
        try:
            with os.scandir(f"{root}/{folder}") as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as exc:
            # NFS: the folder was replaced between two lookups; the next one sees the new folder.
            if exc.errno != errno.ESTALE or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _status(
    entry: os.DirEntry[str], key: str, follow: Callable[[str], os.stat_result | None]
) -> os.stat_result | None:
    try:
        if entry.is_symlink():
            return follow(key)
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ESTALE:
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None
