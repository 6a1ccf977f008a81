"""Runs an action in a forked process that gets a signal before one of its system calls.

With the numbers of the calls in turn, an action is killed or stopped at each of its steps.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Any

CHANGING = (
    "open", "write", "fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "ftruncate",
)  # fmt: skip
"""What may change something on a place of files."""


def _hit(number: int, calls: Sequence[str], hit: signal.Signals) -> None:
    """From now on, send ourselves `hit` before call `number` of these."""
    count = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), hit)
            return function(*args, **kwargs)

        return counted

    for name in dict.fromkeys(calls):
        setattr(os, name, wrap(getattr(os, name)))


def killed_before_call(
    number: int, action: Callable[[], object], calls: Sequence[str] = CHANGING
) -> bool:
    """Run `action` in a child that is killed before its call `number`; False: it ended before."""
    child = os.fork()
    if child == 0:
        try:
            _hit(number, calls, signal.SIGKILL)
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the action itself failed"
    return status == signal.SIGKILL


class Stopped:
    """A child that runs `action` and stops before its call `number`."""

    def __init__(
        self, number: int, action: Callable[[], object], calls: Sequence[str] = CHANGING
    ) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reader)
            write = os.write
            try:
                _hit(number, calls, signal.SIGSTOP)
                action()
                write(writer, b"done")
            except BaseException as exc:
                write(writer, f"{type(exc).__name__}: {exc}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        self.stopped = os.WIFSTOPPED(status)
        """False: it ended before that call."""
        self._waits = self.stopped

    def end(self) -> None:
        """Kill it, if nobody asked for its outcome: what is stopped keeps our pipes open."""
        if self._waits:
            self._waits = False
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._reader)

    def outcome(self) -> str:
        """Let it go on, and return `done` or what it raised."""
        if self._waits:
            self._waits = False
            os.kill(self._pid, signal.SIGCONT)
            os.waitpid(self._pid, 0)
        with os.fdopen(self._reader) as file:
            return file.read()
