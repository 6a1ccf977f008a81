"""A small S3 server of our own, in memory, that does wrong exactly what a test asks for.

It answers what boto3 and s3fs need for objects, conditions, listings and multipart uploads, as AWS
does.  `Stub.dialect` changes how it answers for good, `Stub.rules` what happens to single requests.
It checks no signature: whoever reaches it may do anything.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate

from tapstore.testing.servers.http_server import Handler, HttpServer
from tests.servers import stub_xml as xml
from tests.servers.faults import Action, Cut, Hold, LoseReply, LoseRequest, Refuse, Rules, Trickle
from tests.servers.s3 import S3Server
from tests.servers.stub_model import Dialect, Model, S3Error
from tests.servers.stub_operations import Answer, Request, answer


@dataclass(frozen=True, slots=True)
class Seen:
    """A request; its status is 0 if it was left without an answer."""

    operation: str
    key: str
    status: int


@dataclass(frozen=True, eq=False)
class Stub(S3Server):
    """The running stub.  `requests` has those that were answered or lost, in order.

    The rules know a request by its `operation`, `key`, `method` and `path`.
    """

    dialect: Dialect = field(default_factory=Dialect)
    rules: Rules = field(default_factory=Rules)
    requests: list[Seen] = field(default_factory=list)

    def counted(self) -> Counter[str]:
        """How many requests there were of each operation."""
        return Counter(each.operation for each in self.requests)


@contextmanager
def server() -> Iterator[Stub]:
    """Run the stub in threads of this process."""
    dialect, requests = Dialect(), list[Seen]()
    handler = type(
        "StubHandler",
        (StubHandler,),
        {"model": Model(dialect), "rules": Rules(), "requests": requests},
    )
    http = HttpServer(handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), name="stub-s3", daemon=True)
    thread.start()

    def stop() -> None:
        handler.rules.clear()
        http.stop()
        thread.join()

    address = f"http://127.0.0.1:{http.port}"
    try:
        yield Stub(
            "stub", address, dialect=dialect, rules=handler.rules, requests=requests, stop=stop
        )
    finally:
        stop()


class StubHandler(Handler):
    """Reads requests, lets the rules have their way, and sends the answers."""

    model: Model
    rules: Rules
    requests: list[Seen]

    def handle_request(self) -> None:
        request = Request(self.command, self.path, self.headers)
        action = self.rules.action_for(
            operation=request.operation, key=request.key, method=self.command, path=self.path
        )
        if isinstance(action, Cut) and action.of == "request":
            self.rfile.read(action.after_bytes)
            return self._hang_up(request)
        body = self.read_body()
        match action:
            case LoseRequest():
                return self._hang_up(request)
            case Refuse():
                return self._send(request, action.status, list(action.headers), action.body)
            case Hold():
                action.wait()
        reply = self._answer(request, body)
        match action:
            case LoseReply():
                return self._hang_up(request)
            case Hold():
                action.done.set()
        return self._send(request, *reply, action=action)

    def _answer(self, request: Request, body: bytes) -> Answer:
        try:
            status, headers, content = answer(self.model, request, body)
        except S3Error as failure:
            detail = self.model.dialect.detail
            status, headers = failure.status, [("Content-Type", "application/xml")]
            content = xml.error(failure, self.path, condition=detail == "full")
            if status == 304 or (status == 412 and detail == "none"):
                headers, content = [], b""
        return status, [*headers, ("Date", formatdate(self.model.now(), usegmt=True))], content

    def _send(
        self,
        request: Request,
        status: int,
        headers: list[tuple[str, str]],
        content: bytes,
        *,
        action: Action | None = None,
    ) -> None:
        # Noted before it is sent: who has the answer finds its request counted.
        self.requests.append(Seen(request.operation, request.key, status))
        if not isinstance(action, Cut | Trickle):
            return self.send_answer(status, headers, content)
        self.send_answer(status, [*headers, ("Content-Length", str(len(content)))])
        if isinstance(action, Cut):
            self.wfile.write(content[: action.after_bytes])
            self.wfile.flush()
            return self._close()
        for start in range(0, len(content), action.piece_bytes):
            self.wfile.write(content[start : start + action.piece_bytes])
            self.wfile.flush()
            # Ends early when the client has left, or the server is to stop.
            if select.select([self.connection], [], [], action.pause_seconds)[0]:
                return self._close()
        return None

    def _hang_up(self, request: Request) -> None:
        self.requests.append(Seen(request.operation, request.key, 0))
        self._close()

    def _close(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
