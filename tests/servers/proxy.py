"""A proxy on loopback between a client and a server: counts, delays, and does wrong when told to.

    with proxy.http(server.port, delay_seconds=0.02) as link:
        client = server.at(link.endpoint)
        link.rules.add(LoseReply(), method="PUT", path=".*/state")

`delay_seconds` counts once per direction, and a new connection takes a round trip more, as over a
real link; bandwidth is not limited.  `tcp` passes on any protocol, without rules and counts.  The
proxy shares the GIL with the test; `process` runs it elsewhere, with the delay alone, to measure.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.servers.faults import Rules
from tests.servers.process import (
    Process,
    announce,
    announced,
    python_module,
    temporary_folder,
)
from tests.servers.proxy_http import Exchanges, Passed
from tests.servers.proxy_link import Link, pump, without_nagle

MAX_HEAD_BYTES = 2**20
T = TypeVar("T")


class Proxy:
    """A running proxy.  `requests` are those that it passed on, in the order of their answers."""

    def __init__(self, target_port: int, *, http: bool, delay_seconds: float) -> None:
        self.target_port = target_port
        self.delay_seconds = delay_seconds
        self.rules = Rules()
        self.requests: list[Passed] = []
        self.connections = 0
        self._http = http
        self._open: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def counted(self) -> Counter[str]:
        """How many requests there were of each method."""
        return Counter(each.method for each in self.requests)

    def cut(self) -> None:
        """Close all connections now; new ones are accepted."""
        self._call(self._cut)

    def freeze(self) -> None:
        """Let nothing through until `thaw`, in neither direction; connections stay open."""
        self._call(self._thawed.clear)

    def thaw(self) -> None:
        """Let everything through again, first what has come since `freeze`."""
        self._call(self._thawed.set)

    async def serve(self, started: Callable[[], object]) -> None:
        """Serve until cancelled; `started` is called when the port is open."""
        self._loop = asyncio.get_running_loop()
        self._thawed = asyncio.Event()
        self._thawed.set()
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=MAX_HEAD_BYTES, backlog=512
        )
        self._port = server.sockets[0].getsockname()[1]
        started()
        try:
            await self._loop.create_future()
        finally:
            server.close()
            self._cut()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._connection(client, to_client)
        except asyncio.CancelledError:
            pass  # cut
        finally:
            self._open.discard(task)
            to_client.transport.abort()

    async def _connection(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        # Over a real link the first byte leaves the client when the handshake is over.
        ready = self._loop.time() + 2 * self.delay_seconds
        try:
            server, to_server = await asyncio.open_connection(
                "127.0.0.1", self.target_port, limit=MAX_HEAD_BYTES
            )
        except OSError:
            return
        for writer in (to_client, to_server):
            without_nagle(writer)
        up, down = (
            Link(writer, lambda: self.delay_seconds, self._thawed)
            for writer in (to_server, to_client)
        )
        try:
            if self._http:
                exchanges = Exchanges(client, server, up, down, self.rules, self.requests)
                await exchanges.run(not_before=ready)
                await down.settle()
            else:
                await asyncio.gather(
                    pump(client, up, not_before=ready), pump(server, down, not_before=ready)
                )
        finally:
            for link in (up, down):
                link.abort()

    def _cut(self) -> None:
        for task in self._open:
            task.cancel()

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


@contextmanager
def http(target_port: int, *, delay_seconds: float = 0.0) -> Iterator[Proxy]:
    """Stand before an HTTP server on 127.0.0.1, in a thread of this process."""
    yield from _threaded(Proxy(target_port, http=True, delay_seconds=delay_seconds))


@contextmanager
def tcp(target_port: int, *, delay_seconds: float = 0.0) -> Iterator[Proxy]:
    """Stand before any server on 127.0.0.1, in a thread of this process."""
    yield from _threaded(Proxy(target_port, http=False, delay_seconds=delay_seconds))


@contextmanager
def process(target_port: int, *, delay_seconds: float) -> Iterator[int]:
    """Stand before any server on 127.0.0.1, in a process of its own; yields the port."""
    with temporary_folder("proxy") as folder:
        port_file = folder / "port"
        running = Process(
            "proxy",
            python_module("tests.servers.proxy", port_file, target_port, delay_seconds),
            folder,
        )
        try:
            yield running.wait_until(lambda: announced(port_file), "listening")
        finally:
            running.stop()


def _threaded(proxy: Proxy) -> Iterator[Proxy]:
    started = threading.Event()
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        serving = asyncio.ensure_future(proxy.serve(started.set))
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(serving.cancel))
        try:
            await serving
        except asyncio.CancelledError:
            pass

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="proxy", daemon=True)
    thread.start()
    if not started.wait(10):
        raise TimeoutError("the proxy did not start")
    try:
        yield proxy
    finally:
        proxy.rules.clear()
        stop[0]()
        thread.join()


def main(port_file: Path, target_port: int, delay_seconds: float) -> None:
    """What `process` runs: serve until killed."""
    proxy = Proxy(target_port, http=False, delay_seconds=delay_seconds)
    asyncio.run(proxy.serve(lambda: announce(port_file, proxy.port)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
