"""Ends a worker the way its operator asks: the first signal stops it, a second one interrupts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tapstore.agents.loop import Loop

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")


@contextmanager
def stopping_on_signals(worker: Loop[Any]) -> Iterator[list[str]]:
    """While it lasts, SIGTERM, SIGINT and SIGHUP stop the worker; yields the names that came.

    The command gets SIGTERM, and its work is released.  A second signal raises
    `KeyboardInterrupt`: then the command is killed at once.  Main thread only.
    """
    came: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(signal.Signals(number).name)
        if len(came) > 1:
            raise KeyboardInterrupt
        worker.stop()

    before: dict[int, Any] = {}
    for name in _NAMES:
        number = getattr(signal, name, None)
        # Who was started with a signal ignored (nohup) is not to be stopped by it.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
