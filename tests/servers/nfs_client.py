"""A guest that has the export mounted, and the programs that run in it.

The guest sees the host's files at their own paths, read-only, and the export at `MOUNT`.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TextIO

from tests.servers import nfs_agent
from tests.servers.process import REPOSITORY, Process, ServerFailedError

MOUNT = "/run/nfs"

_ENV = {
    "HOME": "/run/tmp",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": str(REPOSITORY),
    "TMPDIR": "/run/tmp",
}
_SECONDS = 120.0
_LOOK_SECONDS = 1.0
"""While it boots nobody answers, not even that nobody is there."""


class Running:
    """A program in a guest.  Leaving the context kills it with all that it started."""

    def __init__(self, argv: Sequence[str], control: socket.socket, streams: list[socket.socket]):
        self.argv = argv
        self._control = control
        self._status: int | None = None
        reading, writing, complaining = streams
        self.stdout: TextIO = writing.makefile("r", encoding="utf-8")
        self._input = reading
        self._complaints: list[bytes] = []
        self._listener = threading.Thread(target=self._listen, args=(complaining,), daemon=True)
        self._listener.start()
        writing.close()  # the file keeps it open

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return b"".join(self._complaints).decode(errors="replace")

    def send(self, text: str) -> None:
        """Write to its standard input."""
        self._input.sendall(text.encode())

    def end_input(self) -> None:
        """Let it see the end of its standard input.  Twice is fine."""
        try:
            self._input.shutdown(socket.SHUT_WR)
        except OSError:  # it has ended
            pass

    def signal(self, number: int) -> None:
        """Send a signal to the program and all that it started."""
        try:
            self._control.sendall(b"%d\n" % number)
        except OSError:  # it has ended
            pass

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout: float = _SECONDS) -> int:
        """Its exit status, as `Popen` gives it."""
        if self._status is None:
            self._control.settimeout(timeout)
            line = b""
            while not line.endswith(b"\n"):
                try:
                    part = self._control.recv(16)
                except TimeoutError:
                    raise subprocess.TimeoutExpired(self.argv, timeout) from None
                if not part:
                    raise ServerFailedError(f"the guest of {self.argv} is gone")
                line += part
            self._status = int(line)
            self._listener.join(timeout)
        return self._status

    def _listen(self, stream: socket.socket) -> None:
        with stream:
            try:
                while data := stream.recv(65536):
                    self._complaints.append(data)
            except OSError:  # the guest is gone
                pass

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.kill()
        finally:
            self.stdout.close()
            self._input.close()
            self._control.close()


class Client:
    """One guest: a host of its own, with its own kernel, page cache and clocks."""

    def __init__(
        self,
        name: str,
        address: str,
        process: Process,
        connect: Callable[..., socket.socket],
    ) -> None:
        self.name = name
        """Its host name."""
        self.address = address
        self.process = process
        """The guest as a process of the host."""
        self.mount = MOUNT
        self._connect = connect

    def wait_until_up(self) -> None:
        def connected() -> bool:
            try:
                self._connect(self.address, nfs_agent.PORT, _LOOK_SECONDS).close()
            except OSError:
                return False
            return True

        self.process.wait_until(connected, "up")

    def connect(self, port: int) -> socket.socket:
        """Connect to a program in the guest."""
        return self._connect(self.address, port)

    def start(
        self, argv: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: str = MOUNT
    ) -> Running:
        """Start a program and go on."""
        words = list(map(str, argv))
        control = self._connect(self.address, nfs_agent.PORT)
        control.settimeout(_SECONDS)
        request = {"argv": words, "env": {**_ENV, **(env or {})}, "cwd": cwd}
        control.sendall(json.dumps(request).encode() + b"\n")
        port = b""
        while not port.endswith(b"\n"):
            part = control.recv(1)
            if not part:
                raise ServerFailedError(f"{self.name} can start nothing{self.process.tail()}")
            port += part
        streams = [self._connect(self.address, int(port)) for _ in range(3)]
        for each in streams:
            each.settimeout(None)
        return Running(words, control, streams)

    def python(self, *arguments: object, **options: object) -> Running:
        """Start this Python with these arguments; the project can be imported."""
        return self.start([sys.executable, *arguments], **options)

    def run(
        self,
        argv: Sequence[object],
        *,
        input: str = "",
        timeout: float = _SECONDS,
        env: Mapping[str, str] | None = None,
        cwd: str = MOUNT,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end.  Past `timeout` seconds it is killed, and that is an error."""
        deadline = time.monotonic() + timeout
        with self.start(argv, env=env, cwd=cwd) as running:
            killer = threading.Timer(timeout, running.signal, [signal.SIGKILL])
            killer.start()
            try:
                if input:
                    running.send(input)
                running.end_input()
                output = running.stdout.read()
                status = running.wait()
            finally:
                killer.cancel()
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(
                    running.argv, timeout, output.encode(), running.stderr.encode()
                )
            return subprocess.CompletedProcess(running.argv, status, output, running.stderr)

    def check(self, argv: Sequence[object], **options: object) -> str:
        """The output of a program that must end well."""
        done = self.run(argv, **options)
        if done.returncode:
            said = f"{done.stdout}{done.stderr}"
            raise ServerFailedError(
                f"{self.name}: {done.args} ended with status {done.returncode}: {said}"
            )
        return done.stdout
