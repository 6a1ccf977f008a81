"""The daemon of hand-offs: delivers what anybody queued, and wakes who has mail, until it is told
to stop.

It keeps nothing that matters: what it did not do when it ends, the next one does, or anybody who
sends or looks for work.  A place that cannot be reached, or a list of roles that is being edited,
is complained about and looked at again.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from tapstore.cli.handoff.mail import Mail
from tapstore.cli.handoff.places import SwarmPlace
from tapstore.cli.handoff.telling import Teller, warn_about_wake_up
from tapstore.errors import TapstoreError
from tapstore.handoffs.mailbox import Mailbox
from tapstore.handoffs.swarm.finding import main_project
from tapstore.handoffs.wakeups.daemon import DaemonFiles
from tapstore.handoffs.wakeups.waker import Waker

if TYPE_CHECKING:
    from tapstore.handoffs.wakeups.notifiers import Ending, Notifier

FILES_SECONDS = 1.0
OTHER_SECONDS = 5.0

STEP_SECONDS = 0.1
"""How often it looks whether a swarm's file asks it to stop."""

MAX_PAUSE_SECONDS = 60.0
"""After many failures in a row."""

SHARE = 20
"""Looking into mailboxes may take one part in so many of the time."""


class Watch:
    """One daemon."""

    def __init__(
        self,
        mail: Mail,
        mailbox: Mailbox,
        teller: Teller,
        notifier: Notifier | None,
        ending: Ending,
        *,
        again_seconds: float,
        interval: float | None,
    ) -> None:
        self._mail = mail
        self._mailbox = mailbox
        self._teller = teller
        self._notifier = notifier
        self._ending = ending
        self._again = again_seconds
        self._interval = interval or (FILES_SECONDS if mail.place.is_files else OTHER_SECONDS)
        self._told_to_stop = threading.Event()
        self._mailboxes: dict[str, Mailbox] = {}
        self._complaints: dict[str, str] = {}
        self._look_at = 0.0
        self._failures = 0

    def run(self) -> None:
        """Until SIGTERM, SIGINT or SIGHUP, or a swarm's `stop` file.

        What is wrong at the first look is raised; later only what cannot pass.
        """
        with ExitStack() as stack:
            stack.enter_context(_signals(self._told_to_stop.set))
            asked, stay = self._files(stack)
            waker = None
            if self._notifier is not None:
                waker = stack.enter_context(
                    Waker(
                        self._notifier,
                        on_failure=lambda *what: warn_about_wake_up(self._mail, *what),
                        again_seconds=self._again,
                    )
                )
                stack.callback(self._ending.begin)
            self._pass(waker)
            self._mail.invocation.note(f"delivering in {self._mail.place.name}")
            while not self._pause(asked):
                stay()
                try:
                    self._pass(waker)
                    self._failures = 0
                except (TapstoreError, OSError) as exc:
                    if self._mail.place.is_ended(exc):
                        raise
                    self._failures += 1
                    self._mail.invocation.warn("DeliverWarning", f"{exc}; it is tried again")

    def _files(self, stack: ExitStack) -> tuple[Callable[[], bool], Callable[[], None]]:
        """Whether the `stop` file is there, and what is done at every look."""
        place = self._mail.place
        if not isinstance(place, SwarmPlace):
            return lambda: False, lambda: None
        files = DaemonFiles(main_project(place.project))
        return lambda: files.is_asked_to_stop, stack.enter_context(files.running())

    def _pass(self, waker: Waker | None) -> None:
        delivered = [
            role for delivery in self._mailbox.deliver() for role in self._teller.tell(delivery)
        ]
        if delivered:
            self._mail.place.ring()
        if waker is None:
            return
        for role in delivered:
            waker.arrived(role)
        if time.monotonic() >= self._look_at:
            started = time.monotonic()
            self._look(waker)
            self._look_at = time.monotonic() + SHARE * (time.monotonic() - started)

    def _look(self, waker: Waker) -> None:
        """What others delivered, what waits for long; in roles as they are now."""
        roles = self._mail.place.roles()
        waker.keep_only(roles)
        for role in roles:
            try:
                self._look_at_one(waker, role)
                self._complaints.pop(role, None)
            except (TapstoreError, OSError) as exc:
                # A worktree that is away must not hold up the others.
                if self._complaints.get(role) != str(exc):
                    self._complaints[role] = str(exc)
                    self._mail.invocation.warn("DeliverWarning", f"{role}: {exc}")

    def _look_at_one(self, waker: Waker, role: str) -> None:
        place = self._mail.place
        if role not in self._mailboxes:
            self._mailboxes[role] = place.mailbox(role)
        waiting = at_work = 0
        for entry in self._mailboxes[role].entries():
            waiting += place.can_begin(entry)
            at_work += place.is_held(entry)
        waker.seen(role, waiting=waiting, at_work=at_work > 0)

    def _pause(self, asked: Callable[[], bool]) -> bool:
        """Wait until the next look; True if it is over."""
        pause = min(self._interval * 2 ** min(self._failures, 10), MAX_PAUSE_SECONDS)
        pause = max(pause, self._interval)
        deadline = time.monotonic() + pause
        while not (self._told_to_stop.is_set() or asked()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._told_to_stop.wait(min(left, STEP_SECONDS))
        return True


@contextmanager
def _signals(stop: Callable[[], Any]) -> Iterator[None]:
    """The first signal stops, and a delivery is finished before; a second one interrupts."""
    came: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        stop()

    before: dict[int, Any] = {}
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        # Who was started with a signal ignored (nohup) is not to be stopped by it.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
