"""Runs a command as if it had been called by itself, while something is held for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tapstore.agents.process import tied

GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL, for a command that has to stop."""


class CannotRunError(click.ClickException):
    """The command cannot be started; exits as shells do."""

    exit_code = 126


class NoCommandError(CannotRunError):
    """There is no such command."""

    exit_code = 127


def check(command: Sequence[str]) -> None:
    """Raise an error if there is no such command, or none that can be executed."""
    if shutil.which(command[0]) is not None:
        return
    if os.path.exists(command[0]):
        raise CannotRunError(f"cannot run {command[0]!r}: it is no file that may be executed")
    raise NoCommandError(f"cannot run {command[0]!r}: there is no such command")


class Running:
    """One run of a command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start it and wait for its end; returns what a shell would say that it exited with.

        SIGTERM and SIGHUP are passed on; SIGINT it gets from the terminal, as we do.  On Linux it
        is killed when this process is, so that it does not go on without what is held for it.
        """
        check(command)
        with self._signals():
            try:
                self._process = process = subprocess.Popen(tied(command), env=dict(env))
            except OSError as exc:
                kind = NoCommandError if isinstance(exc, FileNotFoundError) else CannotRunError
                raise kind(f"cannot run {command[0]!r}: {exc.strerror}") from exc
            if self._stopped:
                process.terminate()
            status = process.wait()
        return status if status >= 0 else 128 - status

    def stop(self) -> None:
        """Make it stop: SIGTERM, and SIGKILL if that does not help.  From any thread."""
        self._stopped = True
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def pass_on(number: int, _: Any) -> None:
            if self._process is not None:
                self._process.send_signal(number)

        # Not SIG_IGN for SIGINT: the command would inherit that.
        handlers = {"SIGINT": lambda *_: None, "SIGTERM": pass_on, "SIGHUP": pass_on}
        before = {
            number: signal.signal(number, handler)
            for name, handler in handlers.items()
            if (number := getattr(signal, name, None)) is not None
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
