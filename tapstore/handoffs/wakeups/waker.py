"""Wakes roles from a thread of its own, so that no delivery waits for a wake-up.

Nothing that goes wrong here is raised: it is told to `on_failure`, and tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import TapstoreError
from tapstore.handoffs.wakeups.notifiers import Notifier
from tapstore.handoffs.wakeups.schedule import AGAIN_SECONDS, Schedule

OnFailure = Callable[[str, Exception, float], None]
"""Role, what went wrong, and in how many seconds it is tried again."""


class Waker:
    """Use it as a context; its end waits for the wake-up that is being made, not for others."""

    def __init__(
        self,
        notify: Notifier,
        *,
        on_failure: OnFailure,
        again_seconds: float = AGAIN_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._notify = notify
        self._on_failure = on_failure
        self._clock = clock
        self._schedule = Schedule(again_seconds=again_seconds)
        self._changed = threading.Condition()
        self.is_closed = False
        self._thread = threading.Thread(target=self._run, name="tapstore-wake-ups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify()
        self._thread.join()

    def arrived(self, role: str) -> None:
        """One message was delivered to it."""
        with self._changed:
            self._schedule.arrived(role, self._clock.monotonic())
            self._changed.notify()

    def seen(self, role: str, *, waiting: int, at_work: bool) -> None:
        """How many messages it could begin now, and whether it has begun any."""
        with self._changed:
            now = self._clock.monotonic()
            self._schedule.seen(role, waiting=waiting, at_work=at_work, now=now)
            self._changed.notify()

    def keep_only(self, roles: Iterable[str]) -> None:
        """Forget roles that are gone."""
        with self._changed:
            self._schedule.keep_only(set(roles))

    def _run(self) -> None:
        while (roles := self._wait()) is not None:
            for role in roles:
                self._wake(role)

    def _wait(self) -> list[str] | None:
        """Whom to wake now; None when it is over."""
        with self._changed:
            while not self.is_closed:
                now = self._clock.monotonic()
                if roles := self._schedule.due(now):
                    return roles
                due = self._schedule.next_due()
                self._changed.wait(None if due is None else due - now)
            return None

    def _wake(self, role: str) -> None:
        with self._changed:
            if self.is_closed:
                return
        try:
            self._notify(role)
        except (TapstoreError, OSError) as exc:
            with self._changed:
                pause = self._schedule.failed(role, self._clock.monotonic())
            self._on_failure(role, exc, pause)
        else:
            with self._changed:
                self._schedule.woken(role, self._clock.monotonic())
