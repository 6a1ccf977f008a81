"""Objects of any size from a stream: one request if they fit, else parts side by side.

An object appears whole or not at all: if the source raises, what was sent is taken back.  A
source is read once, so what becomes of a request is found out here and not by a caller who
repeats: each upload has a write id in the object's metadata, and after a reply that was lost the
object tells whose it is.

Memory: the parts on their way, one being read and one to tell whether more follows.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, BinaryIO

from tapstore.abc import Clock
from tapstore.errors import UnsupportedOperationError
from tapstore.types import CREATE, PutMode
from tapstore_s3.options import Options
from tapstore_s3.patience import Patience, may_pass
from tapstore_s3.refusal import Refusal

Reply = dict[str, Any]
Send = Callable[..., Reply]

WRITE_ID = "tapstore-write-id"
"""The name in an object's metadata."""

MAX_PARTS = 10_000


class Uploads:
    """Everything that an upload needs but its name and source."""

    def __init__(self, send: Send, options: Options, clock: Clock) -> None:
        self._send = send
        self._part_bytes = options.part_bytes
        self._concurrency = options.concurrency
        self._patience = Patience(clock)

    def upload(
        self, name: str, source: BinaryIO, mode: PutMode, *, before_large: Callable[[], None]
    ) -> Reply:
        """Return a reply that has the ETag; raise `Refusal`, or what `source` raises.

        `before_large` may object before an upload in parts is begun.
        """
        write_id = os.urandom(16).hex()
        # What begins it goes when it was sent: parts are large, and a name would keep one for long.
        begun = deque((_piece(source, self._part_bytes), _piece(source, self._part_bytes)))
        if not begun[-1]:
            put = partial(self._send, "put_object", Key=name, Body=begun[0])
            return self._decide(
                partial(put, Metadata={WRITE_ID: write_id}, IfNoneMatch=_condition(mode)),
                name,
                write_id,
            )
        try:
            before_large()
        except BaseException:
            # Who catches it uploads it in another way, and may keep this frame until then.
            begun.clear()
            raise
        with _nothing_appears():
            upload = self._patience.repeat(
                lambda: self._send(
                    "create_multipart_upload", Key=name, Metadata={WRITE_ID: write_id}
                )["UploadId"]
            )
        try:
            with _nothing_appears():
                parts = self._send_parts(name, upload, _pieces(begun, source, self._part_bytes))
            complete = partial(
                self._send,
                "complete_multipart_upload",
                Key=name,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                IfNoneMatch=_condition(mode),
            )
            reply = self._decide(complete, name, write_id)
        except BaseException as exc:
            self._abort(name, upload, exc)
            raise
        # Some servers date an object from the beginning of its upload, and the reply doesn't say.
        return self._look(name, write_id) or reply

    def _send_parts(self, name: str, upload: str, pieces: Iterator[bytes]) -> list[Reply]:
        stop = Event()

        def send(number: int, piece: bytes) -> Reply:
            def once() -> Reply:
                if stop.is_set():
                    raise Refusal("upload_part", "stopped", number=None, nothing_done=True)
                return self._send(
                    "upload_part", Key=name, UploadId=upload, PartNumber=number, Body=piece
                )

            reply = self._patience.repeat(once)
            # AWS asks for the checksums again, where there are some, when the upload is completed.
            sums = {key: value for key, value in reply.items() if key.startswith("Checksum")}
            return {"PartNumber": number, "ETag": reply["ETag"], **sums}

        done: list[Reply] = []
        under_way: deque[Future[Reply]] = deque()
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="tapstore-s3-upload")
        try:
            for number, piece in enumerate(pieces, start=1):
                if number > MAX_PARTS:
                    raise UnsupportedOperationError(
                        f"cannot upload {name!r}: it has more than {MAX_PARTS} parts of "
                        f"{self._part_bytes} bytes; raise the storage option default_block_size"
                    )
                under_way.append(pool.submit(send, number, piece))
                if len(under_way) >= self._concurrency:
                    done.append(under_way.popleft().result())
            done.extend(future.result() for future in under_way)
        finally:
            stop.set()
            # A part that arrives after the upload was aborted would stay.
            pool.shutdown(cancel_futures=True)
        return done

    def _decide(self, request: Callable[[], Reply], name: str, write_id: str) -> Reply:
        """Send the request that makes the object appear until it is known what came of it."""
        pauses = self._patience.pauses()
        doubt: Refusal | None = None
        while True:
            try:
                return request()
            except Refusal as exc:
                refusal = exc
            if not refusal.nothing_done:
                doubt = refusal
            elif doubt is None and not may_pass(refusal):
                raise refusal
            if doubt is not None:
                found = self._look(name, write_id)
                if found is not None:
                    return found
                if refusal.nothing_done and not may_pass(refusal):
                    # Refused because ours landed and was replaced, or because it never did.
                    raise doubt
            if not self._patience.pause(pauses, refusal):
                raise doubt or refusal

    def _look(self, name: str, write_id: str) -> Reply | None:
        """What a HEAD says of the object, if it is the one that this upload made."""
        try:
            found = self._patience.repeat(lambda: self._send("head_object", Key=name))
        except Refusal:
            return None
        return found if found.get("Metadata", {}).get(WRITE_ID) == write_id else None

    def _abort(self, name: str, upload: str, reason: BaseException) -> None:
        try:
            self._patience.repeat(
                lambda: self._send("abort_multipart_upload", Key=name, UploadId=upload)
            )
        except Refusal as exc:
            if exc.code != "NoSuchUpload":
                reason.add_note(f"what was sent of it stays until a sweep removes it ({exc})")

    def sweep(self, base: str, before: float, *, dry_run: bool) -> list[str]:
        """Abort the uploads below `base` that began before that time; return their keys."""
        found = []
        for entry in self._begun(base):
            if entry["Initiated"].timestamp() <= before:
                found.append(entry["Key"].removeprefix(base))
                if not dry_run:
                    self._remove(entry["Key"], entry["UploadId"])
        return found

    def _begun(self, base: str) -> Iterator[Reply]:
        key = upload = None
        while True:
            page = self._send(
                "list_multipart_uploads", Prefix=base, KeyMarker=key, UploadIdMarker=upload
            )
            yield from page.get("Uploads", ())
            key, upload = page.get("NextKeyMarker"), page.get("NextUploadIdMarker")
            if not page.get("IsTruncated") or not key:
                return

    def _remove(self, name: str, upload: str) -> None:
        try:
            self._send("abort_multipart_upload", Key=name, UploadId=upload)
        except Refusal as exc:
            # It ended meanwhile.
            if exc.code != "NoSuchUpload":
                raise


@contextmanager
def _nothing_appears() -> Iterator[None]:
    """Whatever became of these requests, there is no object before the upload is completed."""
    try:
        yield
    except Refusal as exc:
        exc.nothing_done = True
        raise


def _condition(mode: PutMode) -> str | None:
    return "*" if mode is CREATE else None


def _pieces(begun: deque[bytes], source: BinaryIO, size: int) -> Iterator[bytes]:
    """Those that were read already, and the rest of `source`; none is kept here."""
    while begun:
        yield begun.popleft()
    yield from iter(partial(_piece, source, size), b"")


def _piece(source: BinaryIO, size: int) -> bytes:
    """The next `size` bytes, however little `source` gives at a time; less at its end."""
    piece = source.read(size)
    if len(piece) == size or not piece:
        return piece
    rest = bytearray(piece)
    while len(rest) < size and (some := source.read(size - len(rest))):
        rest += some
    return bytes(rest)
