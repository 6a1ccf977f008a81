"""Keeps keys below a root folder although symbolic links may lead out of it.

It guards against links that are there, not against somebody who swaps a folder for a link while
we work: each folder is looked at once per process.  Who can do that can write here anyway.
"""

from __future__ import annotations

import os

from tapstore.errors import InvalidKeyError

_REMEMBERED = 4096


class Confinement:
    """The folders below one root that were seen to lie there really."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._verified: set[str] = set()

    def enter(self, key: str) -> str:
        """Return the path of `key`, whose folder exists and lies below the root.

        Raises `InvalidKeyError` if a link leads out; OSError if the folder is not there.
        """
        folder = key.rpartition("/")[0]
        if folder not in self._verified:
            self._inside(folder, key, os.path.realpath(self._path(folder), strict=True))
            if len(self._verified) >= _REMEMBERED:
                self._verified.clear()
            self._verified.add(folder)
        return f"{self._root}/{key}"

    def plan(self, key: str) -> str:
        """Like `enter`, for a folder that is still to be made, or was removed meanwhile."""
        folder = key.rpartition("/")[0]
        self._verified.discard(folder)
        self._inside(folder, key, os.path.realpath(self._path(folder)))
        return f"{self._root}/{key}"

    def follow(self, key: str) -> str:
        """Return what the link at `key` points to.  Raises as `enter` does."""
        target = os.path.realpath(self._path(key), strict=True)
        self._inside(key, key, target)
        return target

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _inside(self, link: str, key: str, real: str) -> None:
        root = os.path.realpath(self._root)
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise InvalidKeyError(
                f"invalid key {key!r}: a symbolic link in {link!r} leads out of {self._root}"
            )
