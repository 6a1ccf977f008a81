"""Finds and removes what a session no longer needs: what crashes and moved registrations left.

`find` only looks; `remove` deletes what it found.  Any number of collectors may run, beside
everything else, and die anywhere.  Age is judged in the store's clock, and only where somebody
may still be about to use a thing; most of it is known to be dead.

Never touched: the log, the newest contents, what is registered or was until lately, tasks,
signals, and edits that were set aside, unless they are named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tapstore.artifacts import collect
from tapstore.artifacts import model as artifact_model
from tapstore.artifacts.model import Artifact
from tapstore.clock import parse_time
from tapstore.errors import FormatError, NotFoundError
from tapstore.keys import decode_name
from tapstore.sessions import history
from tapstore.sessions.config import CONFLICTS_PREFIX, HEARTBEATS_PREFIX
from tapstore.sessions.state import SessionState
from tapstore.tapfile import effects
from tapstore.tapfile.model import Tapfile
from tapstore.types import ObjectInfo

ARTIFACT = "artifact"
"""Bytes below `artifacts/` that no registration needs."""

CONTENT = "content"
"""Of a commit that lost its race, whose writer died before it could clean up."""

TEMPORARY = "temporary"
"""An unfinished write."""

HEARTBEAT = "heartbeat"
"""Of a claim that has ended."""

GHOST = "ghost"
"""Of a session that was here under this name before."""

PARKED = "parked"
"""An edit of the Tapfile that was refused and set aside; only if it is named."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing that can go."""

    kind: str
    key: str
    info: ObjectInfo | None = None
    """None for what is no object: unfinished writes."""

    age_seconds: float | None = None


def find(
    state: SessionState, *, older_than: timedelta, parked: Collection[str] = ()
) -> list[Garbage]:
    """What can go, by kind and key.

    Raises `NotAllowedError` if `older_than` is too short to be safe, `NotFoundError` if one of
    the `parked` edits is not there.
    """
    now = state.store.now()
    limit = now - older_than.total_seconds()
    objects = [
        *((ARTIFACT, info) for info in _orphans(state, older_than, now)),
        *((CONTENT, info) for info in _strays(state) if info.modified < limit),
        *((HEARTBEAT, info) for info in _heartbeats(state) if info.modified < limit),
        *((GHOST, info) for info in _ghosts(state, limit)),
        *((PARKED, state.store.head(key)) for key in map(_parked_key, parked)),
    ]
    unfinished = state.store.sweep(older_than.total_seconds(), dry_run=True)
    return [
        *(Garbage(kind, info.key, info, now - info.modified) for kind, info in objects),
        *(Garbage(TEMPORARY, name) for name in unfinished),
    ]


def remove(
    state: SessionState, found: Sequence[Garbage], *, older_than: timedelta
) -> list[Garbage]:
    """Delete what was found; returns what is gone.  Spared is what came into use since."""
    store = state.store
    orphans = [g.info for g in found if g.kind == ARTIFACT and g.info is not None]
    now = store.now()
    gone = {
        info.key
        for info in collect.remove(
            store, orphans, live=lambda: _live(state, _needed_since(state, older_than, now))
        )
    }
    for garbage in found:
        if garbage.kind not in (ARTIFACT, TEMPORARY):
            store.delete(garbage.key)
            gone.add(garbage.key)
    if any(g.kind == TEMPORARY for g in found):
        gone.update(store.sweep(older_than.total_seconds()))
    return [garbage for garbage in found if garbage.key in gone]


# Artifacts


def _orphans(state: SessionState, older_than: timedelta, now: float) -> list[ObjectInfo]:
    since = _needed_since(state, older_than, now)
    return collect.orphans(
        state.store,
        _live(state, since),
        older_than=older_than,
        now=now,
        claimed_since=_claimed_since(state.peek().tapfile),
    )


def _claimed_since(tapfile: Tapfile) -> float | None:
    """The start of the oldest claim that lives."""
    claims = [p.claim for p in tapfile.participants if p.claim is not None]
    # One that does not say since when may be as old as the session.
    return min((parse_time(c.since) if c.since else 0.0 for c in claims), default=None)


def _needed_since(state: SessionState, older_than: timedelta, now: float) -> float:
    limit = now - older_than.total_seconds()
    claimed = _claimed_since(state.peek().tapfile)
    return limit if claimed is None else min(limit, claimed)


def _live(state: SessionState, since: float) -> Iterator[Artifact]:
    """Every artifact registered now, in a kept revision, or at any time from `since` on."""
    head = state.peek().head
    first = head.n
    while first > 1 and (
        first > head.n - state.config.keep_revisions + 1 or _time_of(state, first) >= since
    ):
        first -= 1
    document: Any = history.document_at(state.log, first)
    yield from _artifacts(document)
    for record in state.log.records(after=first):
        document = effects.replay(document, record.record.entry.get("effects", ()))
        yield from _artifacts(document)


def _time_of(state: SessionState, number: int) -> float:
    head = state.log.at(number)
    if head is None:
        raise FormatError(f"log record {number} is missing; restore it from a backup")
    return parse_time(history.log_entry(head).at)


def _artifacts(document: Any) -> Iterable[Artifact]:
    return map(artifact_model.from_doc, document.get("artifacts") or ())


# Our own files


def _strays(state: SessionState) -> Iterator[ObjectInfo]:
    head = state.peek().head
    for key in state.log.strays(head):
        # Above the head it may belong to a writer that was stopped before its commit, for however
        # long: were it removed, that commit would be one without a content.
        if int(key.rpartition("/")[2].partition("-")[0]) <= head.n:
            with suppress(NotFoundError):
                yield state.store.head(key)


def _heartbeats(state: SessionState) -> list[ObjectInfo]:
    listed = list(state.store.list(f"{HEARTBEATS_PREFIX}/"))
    # After the listing: a claim is granted before its first heartbeat.
    tapfile = state.peek().tapfile
    return [
        info
        for info in listed
        if tapfile.claimed_by(decode_name(info.key.rpartition("~")[2])) is None
    ]


def _ghosts(state: SessionState, limit: float) -> Iterator[ObjectInfo]:
    """The files of other incarnations.  A young one may be of a session that is being made.

    Its maker will find that there is a session; until then it must find its files.
    """
    store = state.store
    for name in store.children(".tap/"):
        folder = f".tap/{name}"
        if not name.endswith("/") or folder == f"{state.config.prefix}/":
            continue
        if {"log/", "revisions/"}.isdisjoint(store.children(folder)):
            continue
        files = list(store.list(folder))
        if all(info.modified < limit for info in files):
            yield from files


def _parked_key(name: str) -> str:
    return f"{CONFLICTS_PREFIX}/{name.rpartition('/')[2]}"
