"""Keeps something that expires alive, and tells in time when it is lost.

Renewal runs in a daemon thread and ends with its owner: it is not inherited by a forked child and
stops at interpreter exit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

from tapstore.abc import Clock, LockService
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ClaimLostError, LeaseLostError, TapstoreError
from tapstore.types import Lease


class Renewer:
    """Calls `renew` every third of the ttl until it is stopped or the thing is lost."""

    def __init__(
        self,
        renew: Callable[[], float],
        *,
        ttl: float,
        name: str,
        clock: Clock = SYSTEM_CLOCK,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._renew = renew
        self._ttl = ttl
        self._name = name
        self._clock = clock
        self._on_lost = on_lost
        self._expires = clock.monotonic() + ttl
        self._stopped = threading.Event()
        self._pid = os.getpid()
        self.lost = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._pid == os.getpid() and threading.current_thread() is not self._thread:
            self._thread.join()

    def check(self) -> None:
        if self.lost.is_set():
            raise self.error or LeaseLostError(f"{self._name}: lost")

    def _run(self) -> None:
        while not self._stopped.wait(self._ttl / 3 if self.error is None else self._ttl / 12):
            try:
                self._expires = self._renew()
                self.error = None
            except (LeaseLostError, ClaimLostError) as exc:
                self._lose(exc)
                return
            except (TapstoreError, OSError) as exc:
                self.error = exc
                if self._clock.monotonic() >= self._expires - self._ttl / 6:
                    self._lose(exc)
                    return

    def _lose(self, exc: Exception) -> None:
        self.error = exc
        self.lost.set()
        if self._on_lost is not None:
            self._on_lost()


class Guard:
    """A lease in a `with` block."""

    def __init__(
        self,
        service: LockService,
        lease: Lease,
        *,
        clock: Clock = SYSTEM_CLOCK,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._service = service
        self.lease = lease
        self._renewer = Renewer(
            self._renew, ttl=lease.ttl_seconds, name=f"lease {lease.name}", clock=clock,
            on_lost=on_lost,
        )  # fmt: skip
        self.lost = self._renewer.lost
        self._renewer.start()

    def _renew(self) -> float:
        self.lease = self._service.renew(self.lease)
        return self.lease.expires

    def check(self) -> None:
        self._renewer.check()

    def release(self) -> None:
        self._renewer.stop()
        self._service.release(self.lease)

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
