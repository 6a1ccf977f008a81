"""Keeps what can expire alive in the background, and tells in time when it is lost.

`lost` is set before the ttl is over, whatever becomes of the renewal: refused, failing until time
runs out, or stuck in a store that does not answer.  Renewal ends with its owner: it is not
inherited by a forked child, and stops when the guard is dropped or the interpreter exits.

Not promised: that the work stops.  Whoever does it calls `check()` before each step that matters,
and hands the generation to what can check it.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

from tapstore.abc import Clock, LockService
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ClaimLostError, LeaseLostError, TapstoreError
from tapstore.types import Lease

_MARGIN = 0.1
"""This part of the ttl, at most `_LONGEST_MARGIN_SECONDS`, is left when `lost` is set."""

_LONGEST_MARGIN_SECONDS = 5.0

_LONGEST_JOIN_SECONDS = 5.0


class LostEvent(threading.Event):
    """Set once something is lost, and never cleared.

    It also looks at the time itself: in a process that was stopped, whoever runs first after it
    learns the truth, not only after the thread that would have set it.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        super().__init__()
        self._look = look

    def is_set(self) -> bool:
        return super().is_set() or self._look()

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or super().wait(timeout) or self.is_set()


class Renewer:
    """Calls `renew` every third of the ttl, from `start` to `stop`.

    `renew` returns until when, on the monotonic clock, the thing may be relied on now; it raises
    `LeaseLostError` or `ClaimLostError` to say that it is lost.  Any other exception may pass:
    it tries again as long as there is time, and is the cause of the error if there is none left.
    """

    def __init__(
        self,
        renew: Callable[[], float],
        *,
        ttl: float,
        name: str,
        expires: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        on_lost: Callable[[], object] | None = None,
        error: type[TapstoreError] = LeaseLostError,
    ) -> None:
        """`expires`: until when it may be relied on before the first renewal; a ttl from now.

        `on_lost` is called once, from a thread of its own.  `error` is what `check` raises when
        time ran out.  `name` is for messages: "lease 'gpu-0'".
        """
        self._renew = renew
        self._ttl = ttl
        self._name = name
        self._clock = clock
        self._on_lost = on_lost
        self._error = error
        self._expires = clock.monotonic() + ttl if expires is None else expires
        self._due = self._expires - ttl * 2 / 3
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._stopped = False
        self._fault: TapstoreError | None = None
        self._trouble: Exception | None = None
        self._threads: list[threading.Thread] = []
        self.lost = LostEvent(self._is_lost)
        self.was_refused = False
        """Whether it is lost because `renew` said so, and not because time ran out."""

    def start(self) -> None:
        """Begin; may be called once."""
        for target in (self._keep_renewing, self._watch):
            thread = threading.Thread(target=target, name=f"tapstore: {self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        atexit.register(self.abandon)

    def abandon(self) -> None:
        """End it, without waiting for a renewal that is under way."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        atexit.unregister(self.abandon)

    def stop(self) -> None:
        """End it, and wait (not for ever) for a renewal that is under way."""
        self.abandon()
        if os.getpid() != self._pid:
            return
        for thread in self._threads:
            # `on_lost` may stop us, in the thread that would be waited for.
            if thread is not threading.current_thread():
                thread.join(min(self._ttl, _LONGEST_JOIN_SECONDS))

    def check(self) -> None:
        """Raise if it is lost, else return at once."""
        if os.getpid() != self._pid:
            # No thread lives on in a forked child, and whoever held the mutex holds it for ever.
            raise self._error(
                f"{self._name} belongs to process {self._pid}; a forked child does not inherit it"
            )
        fault = self._look()
        if fault is not None:
            # A copy: one exception raised in several threads would mix their tracebacks.
            raise type(fault)(*fault.args) from fault.__cause__

    def _is_lost(self) -> bool:
        return os.getpid() != self._pid or self._look() is not None

    def _look(self) -> TapstoreError | None:
        """What went wrong, if anything; from the deadline on, something did."""
        with self._changed:
            if self._fault is None and not self._stopped and self._time_left() <= 0:
                trouble = self._trouble
                reason = "not renewed in time"
                if trouble is not None:
                    reason += f": {type(trouble).__name__}: {trouble}"
                fault = self._error(f"{self._name} is lost: {reason}")
                fault.__cause__ = trouble
                self._lose(fault)
            return self._fault

    def _time_left(self) -> float:
        margin = min(self._ttl * _MARGIN, _LONGEST_MARGIN_SECONDS)
        return self._expires - margin - self._clock.monotonic()

    def _lose(self, fault: TapstoreError) -> None:
        self._fault = fault
        self.lost.set()
        self._changed.notify_all()

    # In threads of their own, for a renewal may get stuck

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped and self._fault is None:
                if (left := self._time_left()) > 0:
                    self._changed.wait(left)
                else:
                    break
        if self._look() is not None and self._on_lost is not None:
            self._on_lost()

    def _keep_renewing(self) -> None:
        while self._wait_until_due():
            try:
                expires = self._renew()
            except (LeaseLostError, ClaimLostError) as exc:
                with self._changed:
                    if self._fault is None and not self._stopped:
                        self.was_refused = True
                        self._lose(exc)
            # Whatever it is, time decides; `check` shows it as the cause.
            except Exception as exc:
                with self._changed:
                    self._trouble = exc
                    self._due = self._clock.monotonic() + self._ttl / 12
            else:
                with self._changed:
                    self._trouble = None
                    self._expires = expires
                    self._due = expires - self._ttl * 2 / 3
                    self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        with self._changed:
            while not self._stopped and self._fault is None:
                if (left := self._due - self._clock.monotonic()) <= 0:
                    return True
                self._changed.wait(left)
        return False


class Guard:
    """A lease that is renewed until it is released; as a context manager, until the block ends.

    with Guard(service, service.acquire("gpu-0", owner, ttl=30)) as guard:
        guard.check()
        resource.write(data, fence=guard.generation)
    """

    def __init__(
        self,
        service: LockService,
        lease: Lease,
        *,
        clock: Clock = SYSTEM_CLOCK,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        """`on_lost` is called once, from a thread of its own."""
        self._held = _Held(service, lease)
        self._released = False
        self._pid = os.getpid()
        self._renewer = Renewer(
            self._held.renew,
            ttl=lease.ttl_seconds,
            name=f"lease {lease.name!r} (generation {lease.generation})",
            expires=lease.expires,
            clock=clock,
            on_lost=on_lost,
        )
        self._renewer.start()
        # Nothing that the renewer refers to leads back here, so a guard that nobody has any more
        # stops renewing.
        weakref.finalize(self, self._renewer.abandon)

    @property
    def lease(self) -> Lease:
        """The lease as of its last renewal."""
        return self._held.lease

    @property
    def generation(self) -> int:
        """The fencing token."""
        return self._held.lease.generation

    @property
    def lost(self) -> threading.Event:
        """Set before the lease can pass to somebody else; never cleared."""
        return self._renewer.lost

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost, else return at once."""
        self._renewer.check()

    def release(self) -> None:
        """Give the lease back; harmless if it is lost, and in a forked child.  Safe to repeat."""
        if os.getpid() != self._pid or self._released:
            return
        self._renewer.stop()
        self._held.release()
        self._released = True

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release.  A block that ends well although the lease was lost meanwhile raises that."""
        if error is not None:
            try:
                self.release()
            except TapstoreError as exc:
                error.add_note(f"the lease was not released and ends by its ttl: {exc}")
            return
        try:
            if os.getpid() == self._pid:
                self.check()
        finally:
            self.release()


class _Held:
    """What the renewing thread needs of a guard."""

    def __init__(self, service: LockService, lease: Lease) -> None:
        self._service = service
        self.lease = lease

    def renew(self) -> float:
        self.lease = self._service.renew(self.lease)
        return self.lease.expires

    def release(self) -> None:
        self._service.release(self.lease)
