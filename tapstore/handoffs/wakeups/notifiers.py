"""Ways to wake a role: a command of the user's, tmux as the original daemon does it, a bell.

A command is an argument vector, no shell sees it, and it is killed, with all that it started, when
it takes too long.  That a wake-up succeeded means that the command did, and not that anybody woke
up.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tapstore.errors import TapstoreError
from tapstore.handoffs.swarm import opening, roles

TIMEOUT_SECONDS = 10.0

SENTENCE = "Hand-off mail is waiting for you. If you are idle, run ready_for_next.sh."
"""It names no message, so that who wakes up takes what comes first."""

Notifier = Callable[[str], None]
"""Wakes a role; raises `WakeUpError`."""

_PLACEHOLDER = re.compile(r"\{(role|session|place)\}")


class WakeUpError(TapstoreError):
    """A role could not be woken.  Its mail waits all the same."""


def command(
    argv: Sequence[str],
    *,
    place: str,
    session: Callable[[str], str],
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Notifier:
    """Runs `argv`, in which `{role}`, `{session}` and `{place}` are replaced.

    `session` gives what a role's session is called.  The command also has `TAPSTORE_ROLE`.
    """

    def notify(role: str) -> None:
        values = {"role": role, "place": place}
        if any("{session}" in argument for argument in argv):
            values["session"] = _looked_up(session, role)
        filled = [_PLACEHOLDER.sub(lambda m: values[m[1]], argument) for argument in argv]
        _run(filled, timeout_seconds, {"TAPSTORE_ROLE": role})

    return notify


def _looked_up(session: Callable[[str], str], role: str) -> str:
    """Raises `WakeUpError` if it can't be looked up, or there is none."""
    try:
        found = session(role)
    except (OSError, TapstoreError) as exc:
        raise WakeUpError(f"cannot look up the session of {role}: {exc}") from exc
    if not found:
        # A program that is given no name may take any for it.
        raise WakeUpError(f"{role} has no session")
    return found


def tmux(project: str | os.PathLike[str], *, timeout_seconds: float = TIMEOUT_SECONDS) -> Notifier:
    """Types one sentence into the tmux session of a role.

    Socket and sessions are looked up each time: both change while a swarm runs.
    """

    def notify(role: str) -> None:
        try:
            socket = opening.tmux_socket(project)
            session = roles.read(project)[role].session
        except (OSError, TapstoreError) as exc:
            raise WakeUpError(f"cannot look up the tmux session of {role}: {exc}") from exc
        if not socket or not session:
            raise WakeUpError(f"{role} has no tmux session")
        send = ["tmux", "-S", socket, "send-keys", "-t", session]
        _run([*send, "-l", SENTENCE], timeout_seconds)
        # Programs that paint terminals take what comes at once for pasted text; some send it on a
        # carriage return, others on a line feed.
        time.sleep(0.15)
        _run([*send, "C-m"], timeout_seconds)
        time.sleep(0.05)
        _run([*send, "C-j"], timeout_seconds)

    return notify


def _run(argv: Sequence[str], timeout: float, more: Mapping[str, str] | None = None) -> None:
    try:
        # A file and no pipe: what it leaves in the background would keep that open.
        stream = tempfile.TemporaryFile()
    except OSError as exc:
        raise WakeUpError(f"no room for what {argv[0]} may say: {exc}") from exc
    with stream as said:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **(more or {})},
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise WakeUpError(f"cannot run {argv[0]!r}: {exc}") from exc
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired as exc:
            raise WakeUpError(f"{argv[0]} had not ended after {timeout:g} s") from exc
        finally:
            if process.returncode is None:
                _kill(process)
        if status:
            said.seek(0)
            words = " ".join(said.read(400).decode("utf-8", "replace").split())
            raise WakeUpError(f"{argv[0]} exited with {status}{': ' if words else ''}{words}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()
