"""Streams that hash what passes through them: one pass, bounded memory.

They know neither stores nor files, and close nothing that they did not open.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, BinaryIO

from tapstore.errors import ChecksumError, ConflictError, FormatError, StoreError, TapstoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1 << 20

_CHECKSUM = re.compile(r"sha256:([0-9a-fA-F]{64})")

Progress = Callable[[int, int | None], None]
"""Called with the bytes done and their total, or None where that is not known."""


def checksum_of(hex_digest: str) -> str:
    """The written form of a sum: `sha256:<hex>`."""
    return f"sha256:{hex_digest}"


def check_checksum(checksum: str, what: str) -> str:
    """Return the sum in its usual form; `FormatError` if it is not one of ours."""
    match = _CHECKSUM.fullmatch(checksum)
    if not match:
        raise FormatError(
            f"{what}: the checksum {checksum[:80]!r} is not 'sha256:' and 64 hexadecimal digits, "
            "so nothing can be verified by it; register the artifact again"
        )
    return checksum_of(match[1].lower())


class Meter:
    """Tells a hook how far a transfer of several parts has come."""

    def __init__(self, total: int | None, hook: Progress | None) -> None:
        self.done = 0
        self.total = total
        self._hook = hook

    def add(self, count: int) -> None:
        self.move(self.done + count)

    def move(self, done: int) -> None:
        self.done = done
        if self._hook is not None:
            self._hook(done, self.total)


class HashingReader(io.RawIOBase):
    """Hands a binary source on, and knows the sum and size of what it handed on.

    With `expected` it refuses to end if the sum is another one, so that a store which writes
    whole objects or none writes none.
    """

    def __init__(
        self, source: IO[bytes], what: str, *, expected: str = "", meter: Meter | None = None
    ) -> None:
        self._source = source
        self._what = what
        self._expected = expected
        self._meter = meter
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def checksum(self) -> str:
        return checksum_of(self._digest.hexdigest())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._read(len(view))
        view[: len(chunk)] = chunk
        self._digest.update(chunk)
        self.size += len(chunk)
        if not chunk and self._expected and self.checksum != self._expected:
            raise ConflictError(
                f"{self._what} had {self._expected}, and {self.checksum} when it was read again: "
                "somebody writes to it; publish it when it is finished"
            )
        if self._meter is not None and chunk:
            self._meter.add(len(chunk))
        return len(chunk)

    def _read(self, count: int) -> bytes:
        try:
            chunk = self._source.read(count)
        except TapstoreError:
            raise
        except OSError as exc:
            # Unmarked, a store would take it for a failure of its own.
            raise read_failed(self._what, exc) from exc
        if chunk is None:
            raise BlockingIOError(f"{self._what} is non-blocking and has no data yet")
        if not isinstance(chunk, bytes):
            raise TypeError(
                f"{self._what} gave {type(chunk).__name__}, not bytes: open it in binary mode"
            )
        return chunk


DRAIN_BYTES = 64 * 1024 * 1024
"""How much too long an artifact may be for its sum to be named in the error."""


class VerifyingReader(io.RawIOBase):
    """Hands out bytes that end only if they are the ones that were registered.

    It reads one chunk ahead: the last bytes are handed out after the sum of all was found right,
    so who has read to the end has read what was registered.  Who stops earlier has read bytes
    that nobody verified.  Raises `ChecksumError`, then and at each later read.
    """

    def __init__(
        self,
        source: IO[bytes],
        *,
        what: str,
        checksum: str,
        size: int | None,
        meter: Meter | None = None,
    ) -> None:
        """`checksum` may be empty and `size` None: then that is not verified."""
        self._source = source
        self._what = what
        self._expected = checksum
        self._expected_size = size
        self._meter = meter
        self._digest = hashlib.sha256()
        self._size = 0
        self._held = memoryview(b"")
        self._ahead: bytes | None = None
        self._fault: TapstoreError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._fault is not None:
            raise self._fault
        view = memoryview(buffer).cast("B")
        if not self._held:
            self._advance()
        count = min(len(view), len(self._held))
        view[:count] = self._held[:count]
        self._held = self._held[count:]
        if self._meter is not None and count:
            self._meter.add(count)
        return count

    def _advance(self) -> None:
        try:
            held = self._fetch() if self._ahead is None else self._ahead
            self._ahead = self._fetch() if held else b""
        except TapstoreError as exc:
            self._fault = exc
            raise
        self._held = memoryview(held)

    def _fetch(self) -> bytes:
        try:
            chunk = self._source.read(CHUNK_BYTES)
        except TapstoreError:
            raise
        except OSError as exc:
            raise read_failed(self._what, exc) from exc
        self._digest.update(chunk)
        self._size += len(chunk)
        over = self._expected_size is not None and self._size > self._expected_size
        if over or not chunk:
            self._verify(over=over and not self._drained())
        return chunk

    def _drained(self) -> bool:
        """Read on, so that the sum of what is there can be named; False if it does not end."""
        limit = self._size + DRAIN_BYTES
        while self._size <= limit:
            chunk = self._source.read(CHUNK_BYTES)
            if not chunk:
                return True
            self._digest.update(chunk)
            self._size += len(chunk)
        return False

    def _verify(self, *, over: bool) -> None:
        size, found = self._expected_size, checksum_of(self._digest.hexdigest())
        if over:
            # Not read to its end, which may be far: so its sum is not known.
            raise ChecksumError(
                f"{self._what} has more than the {size} bytes that were registered"
                f"{self._expected and f' with {self._expected}'}; {_ADVICE}"
            )
        if self._expected and found != self._expected:
            raise ChecksumError(
                f"{self._what} was registered with {self._expected}"
                f"{f' ({size} bytes)' if size is not None else ''}, but its bytes have {found} "
                f"({self._size} bytes); {_ADVICE}"
            )
        if size is not None and self._size != size:
            raise ChecksumError(
                f"{self._what} was registered with {size} bytes, but has {self._size}; {_ADVICE}"
            )


_ADVICE = (
    "somebody changed or damaged them after they were registered: "
    "restore them from a copy, or publish it again"
)


def read_failed(what: str, cause: OSError) -> StoreError:
    """Reading did not work.  Raise it `from cause`."""
    error = StoreError(f"cannot read {what}: {cause.strerror or cause}")
    error.errno = cause.errno
    return error


def buffered(raw: io.RawIOBase) -> BinaryIO:
    """The stream with `read(n)` that returns n bytes unless it ends, lines and so on."""
    return io.BufferedReader(raw, CHUNK_BYTES)
