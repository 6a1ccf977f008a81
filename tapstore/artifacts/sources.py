"""What may be published: bytes, a file or a binary stream, as something that opens repeatedly.

Repeatedly, because the name that was asked for may turn out to be taken after all of it was
sent.  A stream that cannot be rewound is therefore copied to a temporary file on this host
first; up to `SPOOL_BYTES` stay in memory.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import IO, BinaryIO, cast

from tapstore.artifacts.streams import CHUNK_BYTES, HashingReader, read_failed
from tapstore.errors import InvalidKeyError, NotFoundError, StoreError

SPOOL_BYTES = 8 << 20

Source = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO


class Content(ABC):
    """Bytes that can be read from their start more than once."""

    what = "the source"
    """How messages call it."""

    @abstractmethod
    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Return the bytes from their start."""

    def size(self) -> int | None:
        """How many there will be, as far as that can be told beforehand."""
        return None


class BytesContent(Content):
    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self) -> AbstractContextManager[IO[bytes]]:
        return io.BytesIO(self.data)

    def size(self) -> int:
        return len(self.data)


class FileContent(Content):
    """A file by its path.  With `follow=False` it may not be a symbolic link."""

    def __init__(self, path: str, *, follow: bool = True) -> None:
        self._path = path
        self.what = repr(path)
        self._follow = follow

    def open(self) -> AbstractContextManager[IO[bytes]]:
        # Without O_NONBLOCK a FIFO would wait for a writer, before anybody can see that it is one.
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        if not self._follow:
            flags |= getattr(os, "O_NOFOLLOW", 0)
        try:
            fd = os.open(self._path, flags)
        except FileNotFoundError as exc:
            raise NotFoundError(
                f"no file {self.what} to publish; to publish text, pass it as bytes"
            ) from exc
        except OSError as exc:
            raise read_failed(self.what, exc) from exc
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise InvalidKeyError(
                f"{self.what} is not a regular file; "
                "open a device or pipe yourself and pass the stream"
            )
        return os.fdopen(fd, "rb")

    def size(self) -> int | None:
        with self.open() as stream:
            return os.fstat(stream.fileno()).st_size


class StreamContent(Content):
    """A stream that can be rewound to where it stands now.  It stays open: it is the caller's."""

    def __init__(self, stream: IO[bytes], *, size: int | None = None) -> None:
        self._stream = stream
        self._start = stream.tell()
        self._size = size

    def open(self) -> AbstractContextManager[IO[bytes]]:
        self._stream.seek(self._start)
        return nullcontext(self._stream)

    def size(self) -> int | None:
        return self._size


@contextmanager
def opened(source: Source) -> Iterator[Content]:
    """What to publish from.  Directories are not for here (see `directory`)."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield BytesContent(bytes(source))
    elif isinstance(source, str | os.PathLike):
        yield FileContent(os.fspath(source))
    elif not hasattr(source, "read"):
        raise TypeError(
            f"cannot publish {type(source).__name__}: pass bytes, the path of a file or directory, "
            "or a binary stream"
        )
    elif source.seekable():
        yield StreamContent(source)
    else:
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            size = _copy(source, spool)
            spool.seek(0)
            yield StreamContent(spool, size=size)


@contextmanager
def measured(source: Source) -> Iterator[tuple[Source, int]]:
    """The same source, and how many bytes it has; those of a directory are those of its files.

    A stream that cannot be rewound is copied first, so use what is yielded.  Somebody may still
    write to a file: the size is for choosing a place, not for verifying.
    """
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        yield source, _size_below(os.fspath(source))
        return
    with opened(source) as content:
        with content.open() as stream:
            start = stream.tell()
            size = stream.seek(0, os.SEEK_END) - start
            stream.seek(start)
        yield cast(Source, stream) if isinstance(content, StreamContent) else source, size


def _size_below(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            # What goes meanwhile, or can't be looked at, is for who publishes it to complain of.
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _copy(source: BinaryIO, spool: IO[bytes]) -> int:
    reader = HashingReader(source, Content.what)
    buffer = bytearray(CHUNK_BYTES)
    while count := reader.readinto(buffer):
        try:
            spool.write(memoryview(buffer)[:count])
        except OSError as exc:
            error = StoreError(
                f"cannot keep the stream in {tempfile.gettempdir()}: {exc.strerror or exc}; "
                "free some space, set TMPDIR, or write it to a file and publish that"
            )
            error.errno = exc.errno
            raise error from exc
    return reader.size
