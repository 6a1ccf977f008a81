"""HTTP/1.1 with connections that stay open, for servers that answer from memory.

A request's body is read as a whole (Content-Length or chunked) and an answer is complete before it
is sent.  There is no TLS, no pipelining, and nothing against clients that mean harm.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What http.server allows for a line.
MAX_LINE_BYTES = 65_536
STOP_SECONDS = 10.0


class HttpServer(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1, with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._closed = threading.Condition()
        self._open: set[socket.socket] = set()

    @property
    def port(self) -> int:
        return self.server_address[1]

    def stop(self) -> None:
        """Close the port and all connections, and wait for their threads."""
        self.shutdown()
        self.server_close()
        with self._closed:
            for each in self._open:
                with suppress(OSError):  # the client may have closed it before
                    each.shutdown(socket.SHUT_RDWR)
            self._closed.wait_for(lambda: not self._open, STOP_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._closed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._closed:
            self._open.discard(request)
            self._closed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may leave at any time
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Calls `handle_request` for each request, whatever its method."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body of a small answer in one packet

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_request(self) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.handle_request
        raise AttributeError(name)

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def read_body(self) -> bytes:
        """All of the request's body.  Raises `ConnectionError` if the client leaves before."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks())
        return self._exactly(int(self.headers.get("Content-Length") or 0))

    def _chunks(self) -> Iterable[bytes]:
        while size := int(self._line().split(b";")[0], 16):
            yield self._exactly(size)
            self._line()
        while self._line().strip():  # trailers
            pass

    def _exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionResetError(f"the client left after {len(data)} of {size} bytes")
        return data

    def _line(self) -> bytes:
        line = self.rfile.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the client left within a line")
        return line

    def send_answer(
        self, status: int, headers: Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> None:
        """Send a complete answer; Content-Length is added unless `headers` say otherwise."""
        self.send_response_only(status)
        named = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "date" not in named:
            self.send_header("Date", self.date_time_string())
        if "content-length" not in named and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass
