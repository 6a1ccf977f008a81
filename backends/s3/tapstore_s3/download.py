"""A stream of one version of an object that goes on after its connection broke.

It is fetched by one request.  If that breaks, the rest is asked for under the condition that the
object still has the same ETag: bytes of two versions are never mixed.  Memory: one buffer.
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
                    self._body = self._begin(self._at, self._etag)["Body"]
                piece = self._body.read(min(len(view), self._size - self._at))
                if not piece:
                    raise ConnectionResetError(f"it ended after {self._at} of {self._size} bytes")
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

    def close(self) -> None:
        self._drop()
        super().close()

    def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()
