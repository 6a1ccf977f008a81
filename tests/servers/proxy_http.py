"""HTTP/1.1 as the proxy sees it: messages are recognised, counted and passed on unchanged.

Headers, Host among them, and bodies go through byte for byte; signatures stay valid.  A client that
sends its next request before it has the answer to the one before has to wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.servers.faults import Action, Cut, Hold, LoseReply, LoseRequest, Refuse, Rules, Trickle
from tests.servers.proxy_link import PIECE_BYTES, Link

HOLD_POLL_SECONDS = 0.005
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Passed:
    """A request that reached the server; `status` is 0 if no answer came from it.

    `path` has the query, as it was sent.
    """

    method: str
    path: str
    status: int


class HangUpError(Exception):
    """The connection is to be closed without another word."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a message, as they came and taken apart; names are in lower case."""

    raw: bytes
    first: list[str]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        return int(self.first[1])

    def body_of_reply(self, method: str) -> str | int:
        if method == "HEAD" or self.status in (204, 304):
            return 0
        return self.body(otherwise="until the end")

    def body(self, otherwise: str | int = 0) -> str | int:
        """Its length in bytes, or how else its end is found."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return "chunked"
        length = self.headers.get("content-length")
        return otherwise if length is None else int(length)


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Raises `asyncio.IncompleteReadError` where the sender has closed."""
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(raw, first.split(" ", 2), headers)


async def read_body(reader: asyncio.StreamReader, size: str | int) -> AsyncIterator[bytes]:
    """The pieces of a body as they come, with the marks of chunks."""
    if size == "until the end":
        while data := await reader.read(PIECE_BYTES):
            yield data
    elif isinstance(size, int):
        while size:
            data = await reader.read(min(size, PIECE_BYTES))
            if not data:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(data)
            yield data
    else:
        last = False
        while not last:
            line = await reader.readuntil(b"\r\n")
            last = int(line.split(b";")[0], 16) == 0
            yield line
            if not last:
                async for data in read_body(reader, int(line.split(b";")[0], 16)):
                    yield data
                yield await reader.readuntil(b"\r\n")
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            yield line
        yield line


class Exchanges:
    """The requests of one connection, one after the other."""

    def __init__(
        self,
        client: asyncio.StreamReader,
        server: asyncio.StreamReader,
        up: Link,
        down: Link,
        rules: Rules,
        passed: list[Passed],
    ) -> None:
        self._client, self._server = client, server
        self._up, self._down = up, down
        self._rules, self._passed = rules, passed

    async def run(self, *, not_before: float) -> None:
        """Pass on requests until one side closes.  Nothing arrives for `not_before`."""
        try:
            while True:
                await self._exchange(await self._next_head(), not_before)
        except (asyncio.IncompleteReadError, ConnectionError, HangUpError):
            pass

    async def _next_head(self) -> Head:
        # A server may close a connection that is idle; its client must see that before it sends.
        reading = asyncio.create_task(read_head(self._client))
        closing = asyncio.create_task(self._server.read(1))
        try:
            await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise HangUpError
            return await reading
        finally:
            reading.cancel()
            closing.cancel()
            # Two readers of one stream are an error.
            await asyncio.gather(closing, return_exceptions=True)

    async def _exchange(self, head: Head, not_before: float) -> None:
        method, path = head.first[0], head.first[1]
        action = self._rules.action_for(method=method, path=path)
        match action:
            case Refuse():
                await self._swallow(head)
                loop = asyncio.get_running_loop()
                arrived = max(loop.time(), not_before) + self._up.delay_seconds()
                await self._down.put(_answer(action, method), not_before=arrived)
                return
            case LoseRequest():
                await self._swallow(head)
                raise HangUpError
            case Hold():
                pieces = await self._swallow(head)
                action.arrived.set()
                while not action.released:
                    await asyncio.sleep(HOLD_POLL_SECONDS)
                for piece in [head.raw, *pieces]:
                    await self._up.put(piece)
                sending = asyncio.create_task(asyncio.sleep(0))
            case _:
                await self._up.put(head.raw, not_before=not_before)
                sending = asyncio.create_task(self._send(head, action, not_before))
        try:
            await self._reply(method, path, action, sending)
            await sending
        finally:
            sending.cancel()

    async def _swallow(self, head: Head) -> list[bytes]:
        """Take the body of a request that is not passed on, or not yet."""
        if head.headers.get("expect", "").lower() == "100-continue":
            await self._down.put(CONTINUE)
        return [piece async for piece in read_body(self._client, head.body())]

    async def _send(self, head: Head, action: Action | None, not_before: float) -> None:
        left = action.after_bytes if isinstance(action, Cut) and action.of == "request" else None
        async for piece in read_body(self._client, head.body()):
            if left is None:
                await self._up.put(piece, not_before=not_before)
                continue
            await self._up.put(piece[:left], not_before=not_before)
            left -= len(piece)
            if left <= 0:
                await self._up.settle()
                self._up.abort()
                raise HangUpError

    async def _reply(
        self, method: str, path: str, action: Action | None, sending: asyncio.Task[None]
    ) -> None:
        try:
            while (head := await self._head_of_reply(sending)).status < 200:
                if not isinstance(action, Hold):  # its client was told to go on, if it asked
                    await self._down.put(head.raw)
        except (asyncio.IncompleteReadError, ConnectionError, HangUpError):
            self._passed.append(Passed(method, path, 0))
            raise
        # Noted before it is passed on: who has the answer finds its request counted.
        self._passed.append(Passed(method, path, head.status))
        size = head.body_of_reply(method)
        body = read_body(self._server, size)
        if isinstance(action, LoseReply):
            async for _ in body:
                pass
            raise HangUpError
        if isinstance(action, Hold):
            action.done.set()
        await self._down.put(head.raw)
        left = action.after_bytes if isinstance(action, Cut) and action.of == "reply" else None
        async for piece in body:
            if isinstance(action, Trickle):
                for start in range(0, len(piece), action.piece_bytes):
                    await self._down.put(piece[start : start + action.piece_bytes])
                    await asyncio.sleep(action.pause_seconds)
                continue
            await self._down.put(piece if left is None else piece[:left])
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    await self._down.settle()
                    raise HangUpError
        if size == "until the end":
            raise HangUpError

    async def _head_of_reply(self, sending: asyncio.Task[None]) -> Head:
        """Also ends when the request can't be sent to its end."""
        reading = asyncio.create_task(read_head(self._server))
        try:
            waiting = {reading, sending}
            while reading in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if sending in done and reading not in done and sending.exception():
                    raise sending.exception()
            return reading.result()
        finally:
            reading.cancel()


def _answer(action: Refuse, method: str) -> bytes:
    headers = [*action.headers, ("Content-Length", str(len(action.body)))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {action.status} Injected\r\n{lines}\r\n".encode("latin-1")
    return head + (b"" if method == "HEAD" else action.body)
