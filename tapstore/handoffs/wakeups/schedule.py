"""When to wake which role: at once for new mail, again while mail waits, later where it failed.

Pure: times come in, in seconds of a clock that does not jump.  It does not know whether anybody
woke up.
"""

from __future__ import annotations

from dataclasses import dataclass

AGAIN_SECONDS = 120.0
"""How long mail waits, with nothing in process, until it is announced again."""

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


@dataclass(slots=True)
class _State:
    waiting: int = 0
    due: float | None = None
    failures: int = 0


class Schedule:
    """The wake-ups of all roles of one place."""

    def __init__(self, *, again_seconds: float = AGAIN_SECONDS) -> None:
        self._again = again_seconds
        self._roles: dict[str, _State] = {}

    def arrived(self, role: str, now: float) -> None:
        """One more message was delivered to it: wake it at once."""
        state = self._of(role)
        state.waiting += 1
        self._announce(state, now)

    def seen(self, role: str, *, waiting: int, at_work: bool, now: float) -> None:
        """How many messages a role has that it could begin, and whether it has begun any.

        More than before is new mail that somebody else delivered.
        """
        state = self._of(role)
        more = waiting > state.waiting
        state.waiting = waiting
        if more:
            self._announce(state, now)
        elif waiting == 0 or at_work:
            # Whoever is at work looks for more by itself when it is done.
            state.due, state.failures = None, 0
        elif state.due is None:
            state.due = now

    def keep_only(self, roles: set[str]) -> None:
        """Forget all others: they are gone."""
        for role in self._roles.keys() - roles:
            del self._roles[role]

    def due(self, now: float) -> list[str]:
        """Roles to wake now; sorted."""
        return sorted(r for r, s in self._roles.items() if s.due is not None and s.due <= now)

    def next_due(self) -> float | None:
        """When somebody is due next; None: nobody."""
        return min((s.due for s in self._roles.values() if s.due is not None), default=None)

    def woken(self, role: str, now: float) -> None:
        """It worked."""
        state = self._of(role)
        state.failures = 0
        state.due = now + self._again if state.waiting else None

    def failed(self, role: str, now: float) -> float:
        """It did not; returns in how many seconds it is tried again."""
        state = self._of(role)
        pause = min(FIRST_RETRY_SECONDS * 2.0 ** min(state.failures, 10), MAX_RETRY_SECONDS)
        state.failures += 1
        state.due = now + pause
        return pause

    def _of(self, role: str) -> _State:
        return self._roles.setdefault(role, _State())

    def _announce(self, state: _State, now: float) -> None:
        # What failed is tried again at its time: new mail must not make a storm of a back-off.
        if not state.failures or state.due is None:
            state.due = now
