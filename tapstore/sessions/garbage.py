"""Finds and removes what a session no longer needs: what crashes and moved registrations left.

`find` only looks; `remove` deletes what it found.  Any number of collectors may run, beside
everything else, and die anywhere.  Age is judged in the clock of the store that has a thing, and
only where somebody may still be about to use it; most of it is known to be dead.

Never touched: the log, the newest contents, what is registered or was until lately, tasks,
signals, and edits that were set aside, unless they are named.  Not found: what a session left in
its other place for artifacts, if its own folder was deleted whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tapstore.abc import Store
from tapstore.artifacts import collect
from tapstore.artifacts import model as artifact_model
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import FOLDER
from tapstore.clock import parse_time
from tapstore.errors import FormatError, NotFoundError
from tapstore.keys import decode_name
from tapstore.sessions import history
from tapstore.sessions.artifactplace import MARKER, ArtifactPlaces
from tapstore.sessions.config import CONFLICTS_PREFIX, HEARTBEATS_PREFIX
from tapstore.sessions.state import SessionState
from tapstore.tapfile.model import Tapfile
from tapstore.types import ObjectInfo

if TYPE_CHECKING:
    from tapstore.sessions.session import Session

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
    """A URL for what is not in the session's own place."""

    info: ObjectInfo | None = None
    """As its store knows it; None for what is no object: unfinished writes."""

    age_seconds: float | None = None
    store: Store | None = field(default=None, repr=False)
    """The store that has it; None: the session's own."""


def find(session: Session, *, older_than: timedelta, parked: Collection[str] = ()) -> list[Garbage]:
    """What can go, by kind and key.

    Raises `NotAllowedError` if `older_than` is too short to be safe, `NotFoundError` if one of
    the `parked` edits is not there.
    """
    state = session.state
    sides = _sides(session)
    home = sides[0]
    limit = home.now - older_than.total_seconds()
    live = list(_live(state, _needed_since(state, older_than, home.now)))
    found = [garbage for side in sides for garbage in side.orphans(live, older_than)]
    objects = [
        *((CONTENT, info) for info in _strays(state) if info.modified < limit),
        *((HEARTBEAT, info) for info in _heartbeats(state) if info.modified < limit),
        *((PARKED, state.store.head(key)) for key in map(_parked_key, parked)),
    ]
    found += (Garbage(kind, info.key, info, home.now - info.modified) for kind, info in objects)
    found += _ghosts(sides, session.artifact_places, older_than)
    found += (garbage for side in sides for garbage in side.unfinished(older_than))
    return found


def remove(session: Session, found: Sequence[Garbage], *, older_than: timedelta) -> list[Garbage]:
    """Delete what was found; returns what is gone.  Spared is what came into use since."""
    state = session.state
    gone: set[str] = set()
    for side in _sides(session):
        gone |= _remove_orphans(state, side, found, older_than)
    for garbage in found:
        if garbage.kind not in (ARTIFACT, TEMPORARY):
            assert garbage.info is not None
            (garbage.store or state.store).delete(garbage.info.key)
            gone.add(garbage.key)
    if any(g.kind == TEMPORARY for g in found):
        for side in _sides(session):
            gone.update(g.key for g in side.unfinished(older_than, dry_run=False))
    return [garbage for garbage in found if garbage.key in gone]


def _remove_orphans(
    state: SessionState, side: _Side, found: Sequence[Garbage], older_than: timedelta
) -> set[str]:
    since = _needed_since(state, older_than, state.store.now())
    removed = collect.remove(
        side.store,
        [g.info for g in found if g.kind == ARTIFACT and g.store is side.garbage_store and g.info],
        live=lambda: side.there(_live(state, since)),
    )
    return {side.shown(info.key) for info in removed}


# Artifacts, and their places


@dataclass(frozen=True, slots=True)
class _Side:
    """One place of artifacts: the session, or the other."""

    places: ArtifactPlaces
    store: Store
    away: bool
    now: float
    """In the clock of `store`, as is all time here."""

    claimed_since: float | None
    """Not after the start of the oldest claim that lives."""

    @property
    def garbage_store(self) -> Store | None:
        return self.store if self.away else None

    def shown(self, key: str) -> str:
        return self.places.path_away(key) if self.away else key

    def there(self, artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
        """Those whose bytes are here, with their paths here."""
        for artifact in artifacts:
            key = self.places.key_away(artifact)
            if self.away and key is not None:
                yield replace(artifact, path=key)
            elif not self.away and not artifact.is_external:
                yield artifact

    def orphans(self, live: Iterable[Artifact], older_than: timedelta) -> Iterator[Garbage]:
        infos = collect.orphans(
            self.store,
            list(self.there(live)),
            older_than=older_than,
            now=self.now,
            claimed_since=self.claimed_since,
            # There is nothing else in the other place.
            below="" if self.away else FOLDER + "/",
        )
        for info in infos:
            if not self.away or info.key != MARKER:
                yield self._garbage(ARTIFACT, info)

    def unfinished(self, older_than: timedelta, *, dry_run: bool = True) -> Iterator[Garbage]:
        """Writes that never ended; what a live claim may have begun may still be going on."""
        age = older_than.total_seconds()
        if self.claimed_since is not None:
            age = max(age, self.now - self.claimed_since)
        for name in self.store.sweep(age, dry_run=dry_run):
            yield Garbage(TEMPORARY, self.shown(name), store=self.garbage_store)

    def _garbage(self, kind: str, info: ObjectInfo) -> Garbage:
        age = self.now - info.modified
        return Garbage(kind, self.shown(info.key), info, age, self.garbage_store)


def _sides(session: Session) -> list[_Side]:
    """The session's own place first.  Both clocks are read before any registration is."""
    places = session.artifact_places
    away = None if places.why_not_collected() else places.away
    away_now = None if away is None else away.now()
    # After the other: whatever time passed between makes claims look older there, never younger.
    now = session.store.now()
    claimed = _claimed_since(session.state.peek().tapfile)
    sides = [_Side(places, session.store, False, now, claimed)]
    if away is not None and away_now is not None:
        there = None if claimed is None else claimed + (away_now - now)
        sides.append(_Side(places, away, True, away_now, there))
    return sides


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
    document = history.document_at(state.log, first)
    assert document is not None
    yield from _artifacts(document)
    for following in state.log.records(after=first):
        document = history.replayed(following, document)
        yield from _artifacts(document)


def _time_of(state: SessionState, number: int) -> float:
    head = state.log.at(number)
    if head is None:
        raise FormatError(f"log record {number} is missing; restore it from a backup")
    return parse_time(history.log_entry(head).at)


def _artifacts(document: Mapping[str, Any]) -> Iterable[Artifact]:
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


def _ghosts(
    sides: Sequence[_Side], places: ArtifactPlaces, older_than: timedelta
) -> Iterator[Garbage]:
    """The files of other incarnations.  A young one may be of a session that is being made.

    Its maker will find that there is a session; until then it must find its files.  What they
    left in the other place comes first: only the files here tell that they are dead.
    """
    home = sides[0]
    own = f"{home.places.config.prefix}/"
    for name in home.store.children(".tap/"):
        folder = f".tap/{name}"
        if not name.endswith("/") or folder == own:
            continue
        if {"log/", "revisions/"}.isdisjoint(home.store.children(folder)):
            continue
        found = [Garbage(GHOST, i.key, i, home.now - i.modified) for i in home.store.list(folder)]
        if len(sides) > 1:
            found[:0] = _ghost_away(places, name[:-1], sides[1].now)
        if all(
            g.age_seconds is not None and g.age_seconds > older_than.total_seconds() for g in found
        ):
            yield from found


def _ghost_away(places: ArtifactPlaces, incarnation: str, now: float) -> Iterator[Garbage]:
    """What an earlier incarnation left in the other place; last what tells that it was this one."""
    store = places.open_folder(incarnation)
    try:
        if places.owner(store) != places.home.url:
            return
    except NotFoundError:
        return  # nothing is left, or it had no other place
    infos = sorted(store.list(), key=lambda info: info.key == MARKER)
    for info in infos:
        yield Garbage(GHOST, f"{store.url}/{info.key}", info, now - info.modified, store)


def _parked_key(name: str) -> str:
    return f"{CONFLICTS_PREFIX}/{name.rpartition('/')[2]}"
