"""Ways to wake a role: a command of the user's, tmux as the original daemon does it, a bell.

A command is an argument vector, no shell sees it, and it is killed, with all that it started, when
it takes too long, or who wakes has to end.  That a wake-up succeeded means that the command did,
and not that anybody woke up.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from tapstore.errors import TapstoreError
from tapstore.handoffs.swarm import opening, roles

TIMEOUT_SECONDS = 10.0

GRACE_SECONDS = 2.0
"""How long a daemon that ends waits for a wake-up; less than who stops it waits for its end."""

_STEP_SECONDS = 0.1

SENTENCE = "Hand-off mail is waiting for you. If you are idle, run ready_for_next.sh."
"""It names no message, so that who wakes up takes what comes first."""

Notifier = Callable[[str], None]
"""Wakes a role; raises `WakeUpError`."""

_PLACEHOLDER = re.compile(r"\{(role|session|place)\}")


class WakeUpError(TapstoreError):
    """A role could not be woken.  Its mail waits all the same."""


class Ending:
    """Tells wake-ups that are being made that they have to be over soon."""

    def __init__(self) -> None:
        self._at: float | None = None

    def begin(self) -> None:
        """From now on they have `GRACE_SECONDS`."""
        self._at = time.monotonic() + GRACE_SECONDS

    def is_over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at


NEVER = Ending()
"""One that does not begin."""


def command(
    argv: Sequence[str],
    *,
    place: str,
    session: Callable[[str], str],
    timeout_seconds: float = TIMEOUT_SECONDS,
    ending: Ending = NEVER,
) -> Notifier:
    """Runs `argv`, in which `{role}`, `{session}` and `{place}` are replaced.

    `session` gives what a role's session is called.  The command also has `TAPSTORE_ROLE`.
    """

    def notify(role: str) -> None:
        values = {"role": role, "place": place}
        if any("{session}" in argument for argument in argv):
            values["session"] = _looked_up(session, role)
        filled = [_PLACEHOLDER.sub(lambda m: values[m[1]], argument) for argument in argv]
        _run(filled, timeout_seconds, ending, {"TAPSTORE_ROLE": role})

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


def tmux(
    project: str | os.PathLike[str],
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    ending: Ending = NEVER,
) -> Notifier:
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
        _run([*send, "-l", SENTENCE], timeout_seconds, ending)
        # Programs that paint terminals take what comes at once for pasted text; some send it on a
        # carriage return, others on a line feed.
        time.sleep(0.15)
        _run([*send, "C-m"], timeout_seconds, ending)
        time.sleep(0.05)
        _run([*send, "C-j"], timeout_seconds, ending)

    return notify


def _run(
    argv: Sequence[str],
    timeout: float,
    ending: Ending,
    more: Mapping[str, str] | None = None,
) -> None:
    with ExitStack() as stack:
        try:
            # A file and no pipe: what it leaves in the background would keep that open.
            said = stack.enter_context(tempfile.TemporaryFile())
        except OSError as exc:
            raise WakeUpError(f"no room for what {argv[0]} may say: {exc}") from exc
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
            status = _status(process, time.monotonic() + timeout, ending)
        except subprocess.TimeoutExpired as exc:
            over = "when the daemon ended" if ending.is_over() else f"after {timeout:g} s"
            raise WakeUpError(f"{argv[0]} had not ended {over}") from exc
        finally:
            if process.returncode is None:
                _kill(process)
        if status:
            said.seek(0)
            words = " ".join(said.read(400).decode("utf-8", "replace").split())
            raise WakeUpError(f"{argv[0]} exited with {status}{': ' if words else ''}{words}")


def _status(process: subprocess.Popen[bytes], deadline: float, ending: Ending) -> int:
    while True:
        left = deadline - time.monotonic()
        try:
            return process.wait(max(min(left, _STEP_SECONDS), 0))
        except subprocess.TimeoutExpired:
            if left <= _STEP_SECONDS or ending.is_over():
                raise


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()
