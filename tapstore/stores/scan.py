"""Looks into the folders of a local file system.  What vanishes meanwhile is no error.

Links to folders are not followed: they could go round in a circle.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from tapstore.keys import TEMP_MARK
from tapstore.stores.freshness import refresh

ATTEMPTS = 5
"""How often what answers ESTALE is looked up again."""


def entries(root: str, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is in `folder`; the names of folders end in `/`."""
    for entry in _entries(root, folder):
        yield (entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name), entry


def is_plain_file(entry: os.DirEntry[str]) -> bool:
    """Whether it was a file, and no link, when the folder was read; mostly asks nobody."""
    return entry.is_file(follow_symlinks=False)


def status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What `lstat` says of it, or None if it is gone."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ESTALE:
            return None
        raise


def unfinished(root: str, folder: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the temporary files of writes that did not end, or did not end yet."""
    for name, entry in entries(root, folder):
        if name.endswith("/"):
            yield from unfinished(root, folder + name)
        elif name.startswith(TEMP_MARK):
            found = status(entry)
            if found is not None:
                yield folder + name, found


def _entries(root: str, folder: str) -> list[os.DirEntry[str]]:
    for attempt in range(ATTEMPTS):
        try:
            with os.scandir(f"{root}/{folder}") as found:
                return list(found)
        except (FileNotFoundError, NotADirectoryError):
            if attempt or not refresh(f"{root}/{folder}".rstrip("/")):
                return []
        except OSError as exc:
            # NFS: the folder was replaced between two lookups; the next one sees the new folder.
            if exc.errno != errno.ESTALE or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
