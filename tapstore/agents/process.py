"""Runs one command under supervision: its output is handed on, and it ends when it has to.

The command is an argument vector and is never given to a shell.  It gets a process group of its
own, and whatever is left of that group when it ends is killed.  On Linux the command also dies
with the thread that started it; what it started itself may outlive a killed supervisor, and can
do no harm to the session, because its claim is fenced off.

POSIX only, and only when it is used.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import IO

from tapstore.errors import NotFoundError, UnsupportedOperationError

CHUNK_BYTES = 65536
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL."""

DRAIN_SECONDS = 1.0
"""How long output is read after the end, if something else keeps the pipe open."""

# PR_SET_PDEATHSIG, set by a program of its own: what `subprocess` could run between fork and exec
# is not safe in a process with threads.  The parent may have died before it was set.
_LAUNCHER = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(137)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as exc:
    print(f"{sys.argv[2]}: {exc.strerror}", file=sys.stderr)
    os._exit(127 if isinstance(exc, FileNotFoundError) else 126)
"""

Sink = Callable[[bytes], object]


class Order(Enum):
    """What the supervisor is told to do with a running command."""

    GO_ON = "go on"
    STOP = "stop"
    """SIGTERM, and SIGKILL after a grace period."""

    KILL = "kill"
    """SIGKILL at once."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended."""

    code: int
    """Exit code; negative: the number of the signal that ended it."""

    ordered: Order
    """Whether it ended by itself or was made to."""

    timed_out: bool = False

    @property
    def says(self) -> str:
        """For people: `exit code 1`, `signal SIGSEGV`."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"signal {-self.code}"


def check_command(argv: Sequence[str]) -> None:
    """Raise an error if the command can't be started here at all, before anything is claimed."""
    if os.name != "posix":
        raise UnsupportedOperationError("agents that run commands need a POSIX system")
    from shutil import which

    if not argv:
        raise ValueError("the command is empty")
    if which(argv[0]) is None:
        raise NotFoundError(f"no program {argv[0]!r} to run: check the name and PATH")


def tied(argv: Sequence[str]) -> list[str]:
    """The command, in such a way that it dies with the thread that starts it, where that can be.

    It can on Linux.  What cannot be executed prints why and exits as shells do.
    """
    if sys.platform == "linux" and sys.executable:
        return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv]
    return list(argv)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: IO[bytes],
    on_stdout: Sink,
    on_stderr: Sink,
    order: Callable[[], Order],
    timeout: float | None = None,
    grace: float = GRACE_SECONDS,
) -> Exit:
    """Run a command to its end, in the folder `cwd`; its program is found from here.

    `order` is asked ten times a second; `timeout` in seconds is as if it said STOP.  Output is
    handed to the sinks as it comes, in this thread, and kept nowhere.  If a sink raises, the
    command is killed.
    """
    with _started(argv, env, cwd, stdin) as process:
        return _Supervisor(process, on_stdout, on_stderr, order, timeout, grace).supervise()


@contextmanager
def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdin: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    if cwd is not None and os.sep in argv[0]:
        argv = [os.path.abspath(argv[0]), *argv[1:]]
    process = subprocess.Popen(
        tied(argv),
        env=dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_group(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal the command and all it started, unless it was waited for."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill whoever is left, also in the background, and wait for the command.

    In this order: once the command was waited for, its number may be that of another group.
    """
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


class _Supervisor:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_stdout: Sink,
        on_stderr: Sink,
        order: Callable[[], Order],
        timeout: float | None,
        grace: float,
    ) -> None:
        self._process = process
        self._order = order
        self._grace = grace
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._ordered = Order.GO_ON
        self._timed_out = False
        self._kill_at: float | None = None
        self._selector = selectors.DefaultSelector()
        for stream, sink in ((process.stdout, on_stdout), (process.stderr, on_stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, sink)

    def supervise(self) -> Exit:
        with self._selector:
            pause = 0.001
            while not _has_exited(self._process):
                self._obey()
                if self._selector.get_map():
                    self._pump(POLL_SECONDS)
                else:
                    time.sleep(pause)
                    pause = min(pause * 2, POLL_SECONDS)
            # Whoever is left of its group would keep the pipes open.
            _end_group(self._process)
            end = time.monotonic() + DRAIN_SECONDS
            while self._selector.get_map() and (left := end - time.monotonic()) > 0:
                self._pump(left)
        assert self._process.returncode is not None
        return Exit(self._process.returncode, self._ordered, self._timed_out)

    def _obey(self) -> None:
        now = time.monotonic()
        order = self._order()
        if order is Order.GO_ON and self._deadline is not None and now >= self._deadline:
            self._timed_out = self._ordered is Order.GO_ON
            order = Order.STOP
            self._deadline = None
        if order is Order.KILL and self._ordered is not Order.KILL:
            self._ordered, self._kill_at = Order.KILL, now
        elif order is Order.STOP and self._ordered is Order.GO_ON:
            self._ordered, self._kill_at = Order.STOP, now + self._grace
            _signal_group(self._process, signal.SIGTERM)
        if self._kill_at is not None and now >= self._kill_at:
            _signal_group(self._process, signal.SIGKILL)

    def _pump(self, wait: float) -> None:
        for key, _ in self._selector.select(wait):
            try:
                chunk = os.read(key.fd, CHUNK_BYTES)
            except BlockingIOError:
                continue
            if chunk:
                key.data(chunk)
            else:
                self._selector.unregister(key.fileobj)
