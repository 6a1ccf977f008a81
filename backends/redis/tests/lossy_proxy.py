"""A TCP proxy that loses what a test tells it to lose."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Loss = Literal["reply", "request", "silence"]
"""The answer is dropped and the connection cut; the same before the server sees the request; the
answer is dropped and the connection stays."""


class LossyProxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._planned: list[tuple[Loss, bytes]] = []
        self.lost = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def lose(self, loss: Loss, *, containing: bytes = b"EVAL", times: int = 1) -> None:
        """Lose the next exchanges whose request contains these bytes."""
        with self._mutex:
            self._planned += [(loss, containing)] * times

    def forget(self) -> None:
        """Lose nothing more."""
        with self._mutex:
            self._planned.clear()

    def _loss(self, request: bytes) -> Loss | None:
        with self._mutex:
            for number, (loss, containing) in enumerate(self._planned):
                if containing in request:
                    del self._planned[number]
                    self.lost += 1
                    return loss
        return None

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                state = _Pair(client, server)
                for run in (state.requests, state.replies):
                    threading.Thread(target=run, args=(self._loss,), daemon=True).start()

    def cut(self) -> None:
        """Break all connections."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()


class _Pair:
    """One connection through the proxy.  A client sends one request and awaits its answer."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.loss: Loss | None = None

    def requests(self, plan: Callable[[bytes], Loss | None]) -> None:
        with suppress(OSError):
            while data := self.client.recv(65536):
                self.loss = plan(data) or self.loss
                if self.loss == "request":
                    break
                self.server.sendall(data)
        self._cut()

    def replies(self, _: object) -> None:
        with suppress(OSError):
            while data := self.server.recv(65536):
                if self.loss == "reply":
                    break
                if self.loss != "silence":
                    self.client.sendall(data)
        self._cut()

    def _cut(self) -> None:
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def lossy_proxy(port: int) -> Iterator[LossyProxy]:
    proxy = LossyProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
