"""Listings of places that have folders, in the order of whole keys.  Pure, given the folders.

Left out are names that are no keys (also those of unfinished writes) and folders without
objects.  An object `a` beside a folder `a/` is allowed: object stores have that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from tapstore.keys import is_key
from tapstore.types import ObjectInfo

E = TypeVar("E")


class Listing(Generic[E]):
    """How to look into a place.

    `entries(folder)` gives the names directly in a folder (`""` or ending in `/`), in any order,
    those of folders ending in `/`; nothing if it is not there.  `describe(key, entry)` gives what
    is known of the object, or None if it is to be left out.  `surely(entry)` is True if that
    need not be asked to know that there is one.
    """

    def __init__(
        self,
        entries: Callable[[str], Iterable[tuple[str, E]]],
        describe: Callable[[str, E], ObjectInfo | None],
        surely: Callable[[E], bool] = lambda _: False,
    ) -> None:
        self._entries = entries
        self._describe = describe
        self._surely = surely

    def objects(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and sorts after `start_after`."""
        folder, slash, beginning = prefix.rpartition("/")
        yield from self._objects(folder + slash, beginning, start_after)

    def children(self, folder: str) -> Iterator[str]:
        """Yield the names directly in `folder`, sorted; those of folders end in `/`."""
        for name, entry in self._sorted(folder, "", ""):
            key = folder + name
            if name.endswith("/"):
                if self._has_objects(key):
                    yield name
            elif self._surely(entry) or self._describe(key, entry) is not None:
                yield name

    def _has_objects(self, folder: str) -> bool:
        try:
            return next(self._objects(folder, "", ""), None) is not None
        except PermissionError:
            # Only its owner can tell.  What is beside it can be seen all the same, and who looks
            # into it is refused there.
            return True

    def _objects(self, folder: str, beginning: str, start_after: str) -> Iterator[ObjectInfo]:
        for name, entry in self._sorted(folder, beginning, start_after):
            if name.endswith("/"):
                yield from self._objects(folder + name, "", start_after)
            else:
                info = self._describe(folder + name, entry)
                if info is not None:
                    yield info

    def _sorted(self, folder: str, beginning: str, start_after: str) -> list[tuple[str, E]]:
        found = [pair for pair in self._entries(folder) if is_key((folder + pair[0]).rstrip("/"))]
        if beginning or start_after:
            # The keys in a folder are all on one side of start_after, unless that lies in it too.
            found = [
                (name, entry)
                for name, entry in found
                if name.startswith(beginning)
                and (
                    (key := folder + name) > start_after
                    or (start_after.startswith(key) and name.endswith("/"))
                )
            ]
        # The slash is part of the order: `a.b` sorts before `a/b`, although `a` before `a.b`.
        found.sort(key=itemgetter(0))
        return found
