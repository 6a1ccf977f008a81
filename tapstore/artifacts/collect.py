"""Finds and removes artifact bytes that nobody needs: what crashes and moved registrations left.

`orphans` only looks; `remove` deletes what a person or policy agreed to.  Nothing is judged by
this host's clock.  What was published outside `artifacts/` is never collected, and neither are
the small records of the names that were (see `condemned`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from tapstore.abc import Store
from tapstore.artifacts.condemned import condemn
from tapstore.artifacts.directory import needed_files
from tapstore.artifacts.fetch import read_manifest
from tapstore.artifacts.manifest import sha256_of
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import COLLECTED, FOLDER
from tapstore.artifacts.place import COMMIT_SECONDS, REUSE_SECONDS
from tapstore.errors import ConflictError, NotAllowedError, NotFoundError
from tapstore.types import ObjectInfo

MIN_AGE = timedelta(seconds=REUSE_SECONDS + COMMIT_SECONDS)
"""15 minutes: what was stored, or found and reused, may be registered for so long."""

_BEFORE_CLAIM_SECONDS = REUSE_SECONDS + 60
"""A claim may have reused what was stored before it; and its time is in whole seconds, and may be
a little ahead of the store's."""


def orphans(
    store: Store,
    live: Iterable[Artifact],
    *,
    older_than: timedelta,
    now: float,
    claimed_since: float | None = None,
    below: str = FOLDER + "/",
) -> list[ObjectInfo]:
    """The files below `below` that none of `live` needs and that are old enough to go.

    `live` are the artifacts of all registrations that anybody may still read or return to: the
    present ones, those of kept revisions, and those that were registered at any time within
    `older_than` or since `claimed_since`.  `now` is `store.now()`, read *before* `live` was: what
    is registered in between was stored after it, or is in `live`.  `claimed_since` is the start
    of the oldest claim that lives (in the store's clock too): what was stored since may be what
    it is about to register.

    Raises `NotAllowedError` if `older_than` is below `MIN_AGE`, and what `read_manifest` raises
    if a live directory cannot be read, for then nobody knows which files it needs.
    """
    if older_than < MIN_AGE:
        raise NotAllowedError(
            f"older_than={older_than} is too short: files younger than {MIN_AGE} may be about to "
            "be registered; use that or more"
        )
    limit = now - older_than.total_seconds()
    if claimed_since is not None:
        limit = min(limit, claimed_since - _BEFORE_CLAIM_SECONDS)
    is_needed = _needed(store, live)
    return [
        info
        for info in store.list(below)
        if info.modified < limit
        and not info.key.startswith(COLLECTED + "/")
        and not is_needed(info.key)
    ]


def remove(
    store: Store, found: Sequence[ObjectInfo], *, live: Callable[[], Iterable[Artifact]]
) -> list[ObjectInfo]:
    """Delete what `orphans` found; return what was deleted.

    Spared is what was written again, or registered by hand, since it was found: `live` is called
    for the registrations once more, after all names have been recorded as not to be used again.
    Safe to repeat, to interrupt, and to run in several processes.
    """
    now = store.now()
    for info in found:
        condemn(store, info.key, now=now)
    is_needed = _needed(store, live())
    return [info for info in found if not is_needed(info.key) and _delete(store, info)]


def _delete(store: Store, info: ObjectInfo) -> bool:
    conditional = store.capabilities.conditional_delete
    try:
        if store.head(info.key).version != info.version:
            return False
        store.delete(info.key, version=info.version if conditional else None)
    except (NotFoundError, ConflictError):
        # Another collector was faster, or somebody wrote it again.
        return False
    return True


def _needed(store: Store, live: Iterable[Artifact]) -> Callable[[str], bool]:
    # Revisions repeat most of their artifacts.
    distinct = {(a.path, a.checksum): a for a in live if not a.is_external}.values()
    paths = {artifact.path for artifact in distinct}
    files = needed_files(read_manifest(store, a) for a in distinct if a.manifest)

    def is_needed(key: str) -> bool:
        sha256 = sha256_of(key)
        return key in paths if sha256 is None else sha256 in files

    return is_needed
