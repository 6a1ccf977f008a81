"""Removes a file that a person dropped, unless it is another one by now.

Names in an inbox are given by people and are used again: between the last look and the removal
somebody may have dropped the next task under the same name.  Where the place compares and
deletes in one step, it does.  On files nothing does, so the file is moved to a name of our own
first and looked at there: what turns out to be another one comes back under a new name.  Whoever
finds a moved file that its mover left behind goes on with it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from tapstore import failures
from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, ConflictError, NotFoundError
from tapstore.sessions.config import new_id
from tapstore.types import CREATE, ObjectInfo

FOLDER = ".removing"


def stamp(info: ObjectInfo) -> str:
    """Tells one file from the next under its name.  An ETag alone repeats with the content."""
    return f"{info.version}@{info.modified!r}"


def remove(store: Store, key: str, expected: str, *, copy: str = "") -> None:
    """Remove `key` if its `stamp` is `expected`; else leave it, under that or another name.

    On files it takes the place of its `copy`, if there is one.  Else its inode would be free for
    the next file, which would then have the same stamp if it is dropped with the same time.
    """
    try:
        info = store.head(key)
        if stamp(info) != expected:
            return
        if store.capabilities.conditional_delete:
            store.delete(key, version=info.version)
        elif store.capabilities.files:
            _move_and_remove(store, key, expected, copy)
        else:
            store.delete(key)
    except (NotFoundError, ConflictError):
        return


def _move_and_remove(store: Store, key: str, expected: str, copy: str) -> None:
    folder, _, name = key.rpartition("/")
    moved = f"{folder}/{FOLDER}/{new_id()}/{name}"
    source, target = store.local_path(key), store.local_path(moved)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
    except FileNotFoundError as exc:
        raise failures.not_found(store.url, key) from exc
    except OSError as exc:
        raise failures.failed(store.url, key, "remove", exc) from exc
    finish(store, moved, lambda found: found == expected, copy=copy)


def finish(store: Store, moved: str, is_expected: Callable[[str], bool], *, copy: str = "") -> None:
    """End the removal of a file that was moved; `is_expected` judges its stamp."""
    folder, _, rest = moved.rpartition(f"/{FOLDER}/")
    mark, _, name = rest.partition("/")
    try:
        if not is_expected(stamp(store.head(moved))):
            stem, dot, ending = name.rpartition(".")
            with store.open(moved) as stream, suppress(AlreadyExistsError):
                store.upload(f"{folder}/{stem[:160]}~{mark}{dot}{ending}", stream, CREATE)
            store.delete(moved)
        elif not (copy and _replaced(store.local_path(moved), store.local_path(copy))):
            store.delete(moved)
    except NotFoundError:
        pass  # somebody else finished it
    with suppress(OSError):
        os.rmdir(os.path.dirname(store.local_path(moved)))


def _replaced(moved: str, copy: str) -> bool:
    """Put a file in the place of its copy, if it has no other name that others may change it by."""
    try:
        found = os.lstat(moved)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return False
        os.replace(moved, copy)
    except OSError:
        return False
    return True


def unfinished(store: Store, folder: str) -> Iterator[tuple[str, str]]:
    """Files of `folder` (`inbox/coder/`) that were moved: where they are, and what they were."""
    for mark in store.children(f"{folder}{FOLDER}/"):
        for name in store.children(f"{folder}{FOLDER}/{mark}"):
            yield f"{folder}{FOLDER}/{mark}{name}", f"{folder}{name}"
