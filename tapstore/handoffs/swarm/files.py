"""Files that appear whole, and are read with bounds: the few steps by which hand-offs move.

A reader finds under a name nothing or a finished file, and no name that is taken is overwritten by
what `create` or `move` does.  Symbolic links, pipes and devices are never opened.

Not promised: protection from somebody who swaps folders for links while we work.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tapstore.errors import FormatError
from tapstore.keys import TEMP_MARK
from tapstore.stores import linkless
from tapstore.stores.freshness import refresh
from tapstore.stores.publish import NO_LINKS, discard, sync_folder

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    # A pipe under such a name must not block its reader for ever.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def read(path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file.

    Raises `FileNotFoundError`, other `OSError`, and `FormatError` for what is no regular file or
    has more than `limit` bytes.
    """
    try:
        fd = os.open(path, _READ)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise FormatError(f"{path} is a symbolic link, which is not followed") from exc
        if exc.errno == errno.ENXIO:
            raise FormatError(f"{path} is not a regular file") from exc
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path} is not a regular file")
        if status.st_size > limit:
            raise FormatError(f"{path} has {status.st_size:,} bytes; at most {limit:,} are read")
        chunks = []
        left = limit + 1
        while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
        if left <= 0:
            raise FormatError(f"{path} has more than {limit:,} bytes")
        return b"".join(chunks), status
    finally:
        os.close(fd)


def write_temp(folder: str, data: bytes, *, durable: bool = True) -> str:
    """The path of a new, finished file in a folder for temporary ones; synced if `durable`."""
    path = f"{folder}/{TEMP_MARK}{secrets.token_hex(8)}"
    fd = os.open(path, _WRITE, 0o666)
    try:
        with _named(folder):
            try:
                written = 0
                while written < len(data):
                    written += os.write(fd, memoryview(data)[written:])
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
    except BaseException:
        discard(path)
        raise
    return path


def create(temp: str, path: str) -> bool:
    """Give a finished file its name; False if that is taken.  `temp` is gone afterwards."""
    try:
        inode = _inode(temp)
        try:
            os.link(temp, path)
        except FileExistsError:
            # NFS repeats a LINK whose reply was lost: it may be our own that is in the way.
            if _inode(path) != inode:
                return False
        except OSError as exc:
            if exc.errno not in NO_LINKS:
                raise
            reason = linkless.why_refused(os.path.dirname(path))
            if reason:
                raise OSError(errno.EOPNOTSUPP, reason, path) from exc
            try:
                linkless.rename(temp, path)
            except FileExistsError:
                return False
        sync(os.path.dirname(path))
        return True
    finally:
        discard(temp)


def replace(temp: str, path: str, *, durable: bool = True) -> None:
    """Publish a finished file in the place of another; `temp` is gone afterwards."""
    try:
        os.replace(temp, path)
    except BaseException:
        discard(temp)
        raise
    if durable:
        sync(os.path.dirname(path))


def move(source: str, target: str) -> None:
    """Move a file or folder to a name that is free: of several who move it, one succeeds.

    Raises `FileNotFoundError` if somebody else was first, `FileExistsError` if the name is taken.
    """
    # No two have the same source, and whoever makes this target moves this source: the name can
    # not be taken between the look and the move without the source being gone.
    if exists(target):
        if not exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(source, target)
    sync(os.path.dirname(target))
    sync(os.path.dirname(source))


def exists(path: str) -> bool:
    """Whether anything has this name, be it a link that leads nowhere."""
    refresh(os.path.dirname(path))
    return os.path.lexists(path)


def remove(path: str) -> bool:
    """Remove a file; False if there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def make_folder(path: str) -> None:
    """Make a folder in one that is there, if it is not there yet.

    Raises `NotADirectoryError` if its name is a link's, or no folder's.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no folder"
        raise NotADirectoryError(errno.ENOTDIR, f"it is {what}, and has to be a folder", path)


def sync(folder: str) -> None:
    """Make the names in a folder outlive a power failure."""
    # Gone again, or not ours to read: what was done in it stands all the same.
    with suppress(FileNotFoundError, PermissionError):
        sync_folder(folder)


def now(folder: str) -> float:
    """The time of the file system, in seconds since the epoch: that of a file just written."""
    path = f"{folder}/{TEMP_MARK}{secrets.token_hex(8)}"
    fd = os.open(path, _WRITE, 0o666)
    try:
        with _named(folder):
            os.write(fd, b"?")
            return os.fstat(fd).st_mtime
    finally:
        os.close(fd)
        discard(path)


@contextmanager
def _named(folder: str) -> Iterator[None]:
    """A full disk is told by what has no path: say where it is."""
    try:
        yield
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, folder) from exc


def _inode(path: str) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return (0, 0)
    return status.st_dev, status.st_ino
