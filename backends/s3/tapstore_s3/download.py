"""A stream of one version of an object that goes on after its connection broke.

It is fetched by one request.  If that breaks, the rest is asked for under the condition that the
object still has the same ETag, and the reply is looked at, for a server may ignore the condition or
the range: bytes of two versions are never mixed, and none come twice.  Memory: one buffer.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tapstore.abc import Clock
from tapstore_s3.etags import bare
from tapstore_s3.patience import Patience, may_pass
from tapstore_s3.refusal import Refusal

BUFFER_BYTES = 256 << 10

Begin = Callable[[int, str], dict[str, Any]]
"""Send the request for the bytes from a position on, if the object has this ETag."""

Judge = Callable[[Exception], Refusal]
Raise = Callable[[Refusal], Exception]


class Download(io.RawIOBase):
    """The rest of `reply`, whose first byte is at `start`; `size` is that of the object."""

    def __init__(
        self,
        reply: dict[str, Any],
        *,
        start: int,
        size: int,
        begin: Begin,
        judge: Judge,
        failure: Raise,
        clock: Clock,
    ) -> None:
        self._body = reply["Body"]
        self._etag: str = bare(reply["ETag"])
        self._at = start
        self._body_at = first_byte(reply)
        self._size = size
        self._begin = begin
        self._judge = judge
        self._failure = failure
        self._patience = Patience(clock)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self._at >= self._size or not len(view):
            return 0
        pauses = self._patience.pauses()
        while True:
            refusal = None
            try:
                if self._body is None:
                    self._go_on()
                piece = self._next(len(view))
            except Refusal as exc:
                refusal = exc
            # What the libraries below raise for a broken connection has no common base.
            except Exception as exc:
                refusal = self._judge(exc)
            if refusal is None:
                view[: len(piece)] = piece
                self._at += len(piece)
                return len(piece)
            self._drop()
            if not may_pass(refusal) or not self._patience.pause(pauses, refusal):
                raise self._failure(refusal) from refusal

    def _go_on(self) -> None:
        reply = self._begin(self._at, self._etag)
        self._body, self._body_at = reply["Body"], first_byte(reply)
        if bare(reply["ETag"]) != self._etag:
            raise Refusal(
                "get_object", "another version", number=None, status=412, nothing_done=True
            )

    def _next(self, most: int) -> bytes:
        """At most so many bytes from where the stream is; what comes before that is left out."""
        while True:
            before = self._at - self._body_at
            if before < 0:
                raise ConnectionResetError(f"it went on at {self._body_at}, not at {self._at}")
            wanted = min(before, BUFFER_BYTES) if before else min(most, self._size - self._at)
            piece: bytes = self._body.read(wanted)
            if not piece:
                raise ConnectionResetError(f"it ended after {self._body_at} of {self._size} bytes")
            self._body_at += len(piece)
            if not before:
                return piece

    def close(self) -> None:
        self._drop()
        super().close()

    def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()


def first_byte(reply: dict[str, Any]) -> int:
    """Where in the object the body of `reply` begins: at 0 if the server ignored the range."""
    start = reply.get("ContentRange", "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else 0
