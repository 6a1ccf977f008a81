"""Machines that share nothing but a network: a network namespace and a folder each.

    with machines.network() as net:
        a, b = net.machine("a"), net.machine("b")
        endpoint = net.reach(server.port)          # of a server on 127.0.0.1 here
        a.run(["curl", f"http://{endpoint}"])

They share the host's file system, too, which nobody can help: give each program its own folder,
`machine.folder`.  Needs root, and `ip` (Debian: iproute2).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.process import ServerMissingError, find_program, temporary_folder

KILL_SECONDS = 10.0


class Machine:
    """Where programs run."""

    def __init__(self, namespace: str, folder: Path, stack: ExitStack) -> None:
        self._namespace = namespace
        self._stack = stack
        self.folder = folder
        folder.mkdir()

    def start(
        self, command: Sequence[str | Path], env: Mapping[str, str], *, out: str
    ) -> subprocess.Popen[bytes]:
        """Start a program in a process group of its own; it prints to the file `out`."""
        written = self._stack.enter_context((self.folder / out).open("wb"))
        process = subprocess.Popen(
            self._command(command),
            env=self._environment(env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._stack.callback(kill, process)
        return process

    def run(
        self, command: Sequence[str | Path], env: Mapping[str, str], *, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            self._command(command),
            env=self._environment(env),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _command(self, command: Sequence[str | Path]) -> list[str | Path]:
        return ["ip", "netns", "exec", self._namespace, *command]

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.folder), "HOME": str(self.folder), **env}


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(KILL_SECONDS)


class Network:
    """A bridge that all machines, and the servers of this host, are attached to."""

    def __init__(self, name: str, subnet: str, folder: Path, stack: ExitStack) -> None:
        self._name, self._subnet, self._folder, self._stack = name, subnet, folder, stack
        self._machines = 0

    @property
    def address(self) -> str:
        return f"{self._subnet}.1"

    def machine(self, name: str) -> Machine:
        """A new machine."""
        self._machines += 1
        namespace, link = f"{self._name}-{name}", f"{self._name}v{self._machines}"
        _ip("netns", "add", namespace)
        self._stack.callback(_ip, "netns", "del", namespace)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", link, "master", self._name, "up")
        inside = ("-n", namespace)
        address = f"{self._subnet}.{self._machines + 1}/24"
        _ip(*inside, "addr", "add", address, "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        _ip(*inside, "link", "set", "lo", "up")
        return Machine(namespace, self._folder / name, self._stack)

    def reach(self, port: int) -> str:
        """`host:port` at which the machines reach a server on 127.0.0.1 of this host."""
        return f"{self.address}:{self._stack.enter_context(_forwarded(self.address, port))}"


@contextmanager
def network() -> Iterator[Network]:
    """A network of its own, gone at the end with all its machines and what runs there."""
    find_program("ip", "make servers")
    if os.geteuid() != 0:
        raise ServerMissingError("network namespaces need root")
    token = secrets.token_hex(2)
    name, subnet = f"tap{token}", f"10.{int(token[:2], 16)}.{int(token[2:], 16)}"
    with temporary_folder("machines") as folder, ExitStack() as stack:
        _ip("link", "add", name, "type", "bridge")
        stack.callback(_ip, "link", "del", name)
        _ip("addr", "add", f"{subnet}.1/24", "dev", name)
        _ip("link", "set", name, "up")
        yield Network(name, subnet, folder, stack)


def _ip(*arguments: str) -> None:
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise ServerMissingError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")


@contextmanager
def _forwarded(host: str, target_port: int) -> Iterator[int]:
    """Pass on connections to `host` to a port of 127.0.0.1; yields the port at `host`."""
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", target_port)
            await asyncio.gather(pump(reader, back), pump(there, writer))
        except (OSError, asyncio.CancelledError):
            writer.close()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(accept, host, 0)

    async def end() -> None:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, name="forward", daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(KILL_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
