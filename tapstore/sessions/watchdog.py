"""Takes roles back from claimants that stopped showing signs of life.

Several watchdogs at once are harmless: a `Reset` names the claim that was judged, so it hits that
one or nobody.  Nothing needs to be running for recovery: every agent that looks for work sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ClaimLostError, NotAllowedError
from tapstore.sessions.config import new_id
from tapstore.sessions.heartbeats import Health, Judgement, Observer
from tapstore.sessions.state import SessionState
from tapstore.tapfile.operations import Reset


class Watchdog:
    """Judges the claims of one session and resets the stale ones."""

    def __init__(self, state: SessionState, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state = state
        self._clock = clock
        self._observer = Observer(
            state.store, clock=clock, default_ttl=state.config.claim_ttl_seconds
        )

    def judge(self) -> list[Judgement]:
        """What it thinks of every working participant; changes nothing."""
        return self._observer.judge(self._state.refresh().tapfile)

    def sweep(self, *, by: str = "watchdog") -> Iterator[Judgement]:
        """Reset every stale claim; yields what was reset.

        A claim needs to stay unchanged between two calls for its ttl, or be old beyond doubt.
        """
        for judgement in self.judge():
            if judgement.health is Health.STALE and self._reset(judgement, by):
                yield judgement

    def _reset(self, judgement: Judgement, by: str) -> bool:
        participant = judgement.participant
        claim = "" if participant.claim is None else participant.claim.id
        ttl = self._state.config.claim_ttl_seconds
        if participant.claim is not None and participant.claim.ttl_seconds:
            ttl = participant.claim.ttl_seconds
        if self._clock.monotonic() - judgement.looked > ttl / 2:
            return False  # we were stopped since we looked: it may have shown signs of life
        operation = Reset(
            id=new_id(),
            by=by,
            reason=(
                f"no sign of life from {participant.agent_id} for {judgement.age_seconds:.0f} s "
                f"(ttl {ttl:g} s)"
            ),
            slot=participant.label,
            claim=claim,
            max_attempts=self._state.config.max_attempts,
        )
        try:
            self._state.commit(operation)
        except (ClaimLostError, NotAllowedError):
            return False  # it ended, or another watchdog was first
        return True
