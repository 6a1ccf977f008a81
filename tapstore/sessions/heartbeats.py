"""Heartbeats: files by which claimants show that they are alive, and the judgement over them.

`.tap/heartbeats/<agent>~<claim>` is rewritten by that claimant alone and names the claim that it
keeps alive.  Staleness is judged like that of a lease: what stayed the same for the claim's whole
ttl on the *observer's* monotonic clock is stale, whatever any wall clock says.  An observer that
looks only once compares ages instead, and both clocks must agree.

A participant that went to work by an edit of the Tapfile has no such file.  It is judged only
once it has shown that it refreshes its own `heartbeat` or `last_activity`, and not by one look;
until then it is listed and never reset.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from tapstore.abc import Clock, Store
from tapstore.clock import parse_time
from tapstore.errors import NotFoundError
from tapstore.keys import encode_name
from tapstore.sessions.config import HEARTBEATS_PREFIX
from tapstore.tapfile.model import WORKING, Grant, Participant, Tapfile
from tapstore.types import OVERWRITE

MAX_CLOCK_DIFFERENCE_SECONDS = 300
"""Beyond this between host and store, one look judges nobody stale."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a heartbeat file."""

    agent: str
    claim: str
    count: int
    """Rises with each beat."""

    at: float
    """Seconds since the epoch on the claimant's own clock: a veto, never a reason to reset."""

    host: str = ""
    pid: int = 0


def key(agent: str, claim: str) -> str:
    # One file a claim: two claims of one agent must not keep each other alive.
    return f"{HEARTBEATS_PREFIX}/{encode_name(agent)}~{encode_name(claim)}"


def write(store: Store, *, agent: str, claim: str, count: int, clock: Clock) -> float:
    """Write one beat; returns its time in the store's clock."""
    beat = Beat(
        agent=agent,
        claim=claim,
        count=count,
        at=clock.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    return store.put(key(agent, claim), msgspec.json.encode(beat), OVERWRITE).modified


def forget(store: Store, *, agent: str, claim: str) -> None:
    """Remove the file of a claim that ended."""
    store.delete(key(agent, claim))


class Health(Enum):
    ALIVE = "alive"
    STALE = "stale"
    UNJUDGED = "unjudged"
    """Works without any heartbeat (an edit of the Tapfile put it to work)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an observer thinks of one working participant."""

    participant: Participant
    health: Health
    age_seconds: float
    """Since its last sign of life, in the store's clock."""

    looked: float
    """When the observer began to look, on its monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """A sign of life of a claim, and since when an observer has seen no other one."""

    token: str
    at: float


class Observer:
    """Watches the claims of one session; remembers what it saw between calls.

    Several threads of a process may share it.
    """

    def __init__(self, store: Store, *, clock: Clock, default_ttl: float) -> None:
        self._store = store
        self._clock = clock
        self._default_ttl = default_ttl
        self._seen: Mapping[str, _Sight] = {}

    def judge(self, tapfile: Tapfile) -> list[Judgement]:
        """Judge every working participant."""
        working = [p for p in tapfile.participants if p.status == WORKING]
        seen: dict[str, _Sight] = {}
        judgements = []
        if working:
            now = self._store.now()
            judgements = [self._judge(p, now, seen) for p in working]
        # Replaced as a whole: another thread may be looking at the old one.
        self._seen = seen
        return judgements

    def _judge(self, participant: Participant, now: float, seen: dict[str, _Sight]) -> Judgement:
        # We may be stopped anywhere from here on, and the claim may show signs of life meanwhile.
        looked = self._clock.monotonic()
        grant = participant.claim
        since = _time(participant.last_activity)
        if grant is None or (
            grant.external and not (grant.renewed or participant.heartbeat is not None)
        ):
            return Judgement(participant, Health.UNJUDGED, max(0.0, now - since), looked)
        ttl = grant.ttl_seconds or self._default_ttl
        if grant.external:
            token = f"{participant.heartbeat} {participant.last_activity}"
            beaten = _latest(participant.heartbeat, participant.last_activity)
            # By no clock but that of a program that may be hours wrong: one look is not enough.
            old = False
        else:
            token, beaten, written = self._beat(participant, grant)
            old = self._old(now, beaten, written, ttl)
        stale = self._unchanged_for(grant.id, token, looked, seen) >= ttl or old
        health = Health.STALE if stale else Health.ALIVE
        return Judgement(participant, health, max(0.0, now - beaten), looked)

    def _beat(self, participant: Participant, grant: Grant) -> tuple[str, float, float]:
        """What identifies the last beat, its time by the store, and by the writer's clock."""
        try:
            got = self._store.get(key(participant.agent_id, grant.id))
        except NotFoundError:
            # It died before its first beat: the commit of the claim is its only sign of life.
            since = _latest(grant.since)
            return "", since, since
        try:
            beat = msgspec.json.decode(got.data, type=Beat)
        except msgspec.DecodeError:
            return got.info.version, got.info.modified, got.info.modified
        written = beat.at if beat.claim == grant.id else 0.0
        return f"{beat.count} {got.info.version}", got.info.modified, written

    def _unchanged_for(
        self, claim: str, token: str, looked: float, seen: dict[str, _Sight]
    ) -> float:
        sight = self._seen.get(claim)
        if sight is None or sight.token != token:
            seen[claim] = _Sight(token, self._clock.monotonic())
            return 0.0
        seen[claim] = sight
        return looked - sight.at

    def _old(self, now: float, beaten: float, written: float, ttl: float) -> bool:
        """Whether one look is enough: old by the store's clock *and* by that of the hosts."""
        here = self._clock.time()
        if abs(here - now) > MAX_CLOCK_DIFFERENCE_SECONDS:
            return False
        return now - beaten > ttl and here - written > ttl


def _latest(*texts: str | None) -> float:
    """The last moment that these times may stand for: the Tapfile cuts them to whole seconds."""
    return max(map(_time, texts)) + 1


def _time(text: str | None) -> float:
    try:
        return parse_time(text) if text else 0.0
    except ValueError:
        return 0.0
