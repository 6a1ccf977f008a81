"""Listings page by page, one LIST for each thousand names, in the order of the contract.

S3 sorts by the UTF-8 bytes of whole keys.  Servers that keep folders inside (SeaweedFS) list them
folder by folder, with all of `a/…` before `a-b`; where a listing shows that, folders are listed
one by one and sorted here.  It costs a LIST for each folder then.  The same servers keep folders
that have become empty: a child that is a folder is looked into.

Names that are no keys are left out: markers of folders that consoles make, trials of `probe`.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from tapstore.errors import StoreError
from tapstore.keys import TEMP_MARK, is_key
from tapstore.types import ObjectInfo
from tapstore_s3.etags import bare

Send = Callable[..., dict[str, Any]]

# What sorts before the slash.
_BELOW_SLASH = re.compile(r"[ -.]")


_KEEP_FOLDERS = ("seaweedfs",)
"""How the Server header of servers begins, in lower case, that keep folders."""


class UnsortedError(Exception):
    """The server lists in another order than that of whole keys."""


class Listings:
    """The listings of one store, and what they have shown of the server's order."""

    def __init__(self, send: Send, base: str) -> None:
        self._send = send
        self._base = base
        self._by_folder = False
        self._keeps_folders = False

    def objects(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and sorts after `start_after`.

        Raises `UnsortedError` if it shows too late that the server has an order of its own; the
        next listing then comes in order.
        """
        if start_after > prefix and not start_after.startswith(prefix):
            # It sorts after all that has the prefix.
            return
        last = start_after
        if not self._by_folder:
            for number, page in enumerate(self._pages(prefix, start_after)):
                found = list(self._described(page, start_after))
                keys = [last, *(info.key for info in found)]
                if any(one > other for one, other in itertools.pairwise(keys)):
                    self._by_folder = True
                    if number:
                        raise UnsortedError
                    break
                yield from found
                last = keys[-1]
            else:
                return
        folder, slash, _ = prefix.rpartition("/")
        yield from self._walk(folder + slash, prefix, start_after)

    def children(self, folder: str) -> Iterator[str]:
        """Yield the names directly below `folder` (empty or ending in `/`)."""
        for child in self._children(folder):
            empty = self._keeps_folders and child.endswith("/") and not self._any(folder + child)
            if not empty:
                yield child

    def _children(self, folder: str) -> Iterator[str]:
        held: list[str] = []
        for page in self._pages(folder, "", Delimiter="/"):
            names = [entry["Key"] for entry in page.get("Contents", ())]
            names += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
            # Of a server that keeps folders, `a/` may be on a page before `a-b`: it is held back
            # until something comes that sorts after it in either order.
            for name in sorted(names, key=lambda name: name.removesuffix("/")):
                child = name[len(self._base) + len(folder) :]
                if not is_key(child.removesuffix("/")):
                    continue
                while held and held[0] < child:
                    yield heapq.heappop(held)
                if child.endswith("/"):
                    heapq.heappush(held, child)
                else:
                    yield child
        while held:
            yield heapq.heappop(held)

    def _any(self, folder: str) -> bool:
        return any(page.get("Contents") for page in self._pages(folder, "", MaxKeys=1))

    def trials(self) -> Iterator[tuple[str, float]]:
        """Yield whole name and time of the objects that `probe` left behind."""
        for page in self._pages(TEMP_MARK, ""):
            for entry in page.get("Contents", ()):
                yield entry["Key"], entry["LastModified"].timestamp()

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        here: list[tuple[str, ObjectInfo | None]] = []
        begin = ""
        if start_after.startswith(folder):
            begin = folder + start_after[len(folder) :].partition("/")[0]
        for page in self._pages(max(folder, prefix, key=len), begin, Delimiter="/"):
            here += [(info.key, info) for info in self._described(page, start_after)]
            here += [
                (entry["Prefix"].removeprefix(self._base), None)
                for entry in page.get("CommonPrefixes", ())
            ]
        # All of it: a file may come after a folder that it sorts before.
        for key, info in sorted(here, key=lambda pair: pair[0]):
            if info is not None:
                yield info
            # The keys in a folder are all on one side of start_after, unless that lies in it too.
            elif key > start_after or start_after.startswith(key):
                yield from self._walk(key, "", start_after)

    def _described(self, page: dict[str, Any], start_after: str) -> Iterator[ObjectInfo]:
        for entry in page.get("Contents", ()):
            key = entry["Key"].removeprefix(self._base)
            if key > start_after and is_key(key):
                yield ObjectInfo(
                    key=key,
                    size=entry["Size"],
                    version=bare(entry["ETag"]),
                    # Some listings tell more than the whole seconds of a HEAD.
                    modified=float(int(entry["LastModified"].timestamp())),
                )

    def _pages(self, prefix: str, start_after: str, **more: Any) -> Iterator[dict[str, Any]]:
        begin = _before(start_after, prefix)
        after = None if begin is None else self._base + begin
        token = None
        while True:
            page = self._send(
                "list_objects_v2",
                Prefix=self._base + prefix,
                StartAfter=after,
                ContinuationToken=token,
                **more,
            )
            server = page["ResponseMetadata"].get("HTTPHeaders", {}).get("server", "")
            self._keeps_folders = server.lower().startswith(_KEEP_FOLDERS)
            yield page
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated"):
                return
            if not token:
                # Of a server that knows only the first version of LIST.
                raise StoreError(
                    "the server says that there is more to list, but not how to go on (no "
                    "NextContinuationToken): it lacks ListObjectsV2, use another one"
                )


def _before(start_after: str, prefix: str) -> str | None:
    """From where to list so that nothing after `start_after` is missed, in either order.

    By folders, `a/b` sorts before `a-b`, and what begins after `a` is without the folder `a`: so
    it begins before the name that `a-b` and `a/` have in common.  What comes too much is left
    out by the caller; these are the few names that differ in the last letter.
    """
    if not start_after.startswith(prefix):
        return None
    low = _BELOW_SLASH.search(start_after, len(prefix))
    begin = start_after[: low.start()] if low else start_after
    begin = begin.rstrip("/")[:-1]
    while begin.endswith("/"):
        begin = begin.rstrip("/")[:-1]
    return begin if len(begin) > len(prefix) else None
