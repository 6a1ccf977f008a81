"""Listings page by page: one LIST for each thousand names.

S3 sorts by the UTF-8 bytes of the whole key, as the contract asks.  Names that are no keys are
left out: markers of folders that consoles make, trials of `probe`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tapstore.keys import TEMP_MARK, is_key
from tapstore.types import ObjectInfo

Send = Callable[..., dict[str, Any]]


def objects(send: Send, base: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    """Yield what lies below `base + prefix` behind `base + start_after`."""
    after = base + start_after if start_after else None
    for page in _pages(send, Prefix=base + prefix, StartAfter=after):
        for entry in page.get("Contents", ()):
            key = entry["Key"].removeprefix(base)
            if is_key(key):
                yield ObjectInfo(
                    key=key,
                    size=entry["Size"],
                    version=entry["ETag"].strip('"'),
                    # Some listings tell more than the whole seconds of a HEAD.
                    modified=float(int(entry["LastModified"].timestamp())),
                )


def children(send: Send, folder: str) -> Iterator[str]:
    """Yield the names directly below `folder` (a whole name that is empty or ends in `/`)."""
    for page in _pages(send, Prefix=folder, Delimiter="/"):
        names = [entry["Key"] for entry in page.get("Contents", ())]
        names += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        for name in sorted(names):
            child = name.removeprefix(folder)
            if is_key(child.removesuffix("/")):
                yield child


def trials(send: Send, base: str) -> Iterator[tuple[str, float]]:
    """Yield whole name and time of the objects directly below `base` that are no keys of ours."""
    for page in _pages(send, Prefix=base + TEMP_MARK):
        for entry in page.get("Contents", ()):
            yield entry["Key"], entry["LastModified"].timestamp()


def _pages(send: Send, **parameters: Any) -> Iterator[dict[str, Any]]:
    token = None
    while True:
        page = send("list_objects_v2", ContinuationToken=token, **parameters)
        yield page
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated") or not token:
            return
