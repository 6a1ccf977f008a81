"""One direction of a connection: bytes keep their order and arrive a fixed time after they came.

What is under way does not hold up what follows, so the delay costs no bandwidth.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

PIECE_BYTES = 65_536
# So much may be under way: 64 MiB, more than a fast client sends in any delay that tests use.
UNDER_WAY_PIECES = 1024


class Link:
    """Writes to `writer` what is put into it, when its time has come and `open` is set."""

    def __init__(
        self, writer: asyncio.StreamWriter, delay_seconds: Callable[[], float], open: asyncio.Event
    ) -> None:
        self._writer = writer
        self.delay_seconds = delay_seconds
        self._open = open
        self._queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(UNDER_WAY_PIECES)
        self._broken = False
        self._task = asyncio.create_task(self._deliver())

    async def put(self, data: bytes, *, not_before: float = 0.0) -> None:
        """Send `data`; its way begins now, or at `not_before` in the loop's time."""
        if self._broken:
            raise ConnectionResetError("the other end has closed the connection")
        now = asyncio.get_running_loop().time()
        await self._queue.put((max(now, not_before) + self.delay_seconds(), data))

    async def finish(self) -> None:
        """Wait until all has arrived, then close this direction."""
        await self._queue.put((asyncio.get_running_loop().time() + self.delay_seconds(), None))
        await self._task

    async def settle(self) -> None:
        """Wait until all that was put has arrived."""
        await self._queue.join()

    def abort(self) -> None:
        """Close the connection now; what is under way is lost."""
        self._task.cancel()
        self._writer.transport.abort()

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._queue.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._open.wait()
            try:
                if self._broken:
                    pass  # take from the queue what nobody gets any more
                elif data is None:
                    self._writer.write_eof()
                else:
                    self._writer.write(data)
                    await self._writer.drain()
            except OSError:
                self._broken = True
            self._queue.task_done()
            if data is None:
                return


def without_nagle(writer: asyncio.StreamWriter) -> None:
    """Send small packets at once."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def pump(reader: asyncio.StreamReader, link: Link, *, not_before: float = 0.0) -> None:
    """Pass on everything until the sender closes."""
    try:
        while data := await reader.read(PIECE_BYTES):
            await link.put(data, not_before=not_before)
    except ConnectionError:
        pass
    await link.finish()
