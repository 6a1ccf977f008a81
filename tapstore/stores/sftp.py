"""SFTP servers that have OpenSSH's extensions, through fsspec's `SFTPFileSystem` (paramiko).

CREATE is `hardlink@openssh.com`: `link(2)` on the server.  OVERWRITE is
`posix-rename@openssh.com`, the data is flushed by `fsync@openssh.com`.  A lost connection is made
anew by the next call, also in a forked child; a server that is silent for a minute has lost it.

Not promised: anything on servers without these extensions (refused).

SFTP tells times in seconds and no inode, so two overwrites with as many bytes within a second
would look the same.  Each file that is written here therefore gets a random *access* time, far in
the future, where `relatime` leaves it alone; it is part of the version.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import copyfileobj
from typing import Any, BinaryIO, Literal, TypeVar

from tapstore.keys import TEMP_MARK
from tapstore.stores.fileservers import FileServer, missing, parents, taken

T = TypeVar("T")

_EXTENDED = 200
"""SSH_FXP_EXTENDED: a request by its name."""

_CHANNELS = 4
"""sshd allows 10 for each connection; fsspec holds one, and others may share it."""

ANSWER_SECONDS = 60.0
"""Who is silent for so long is taken for gone: of a network that was cut nobody is told."""

_CHUNK = 32 * 1024
"""Bytes in one request."""

_MARKED = 1 << 31
"""Seconds: access times from here on (the year 2038) are marks of ours."""


class SftpFiles(FileServer):
    """Each call has a channel for itself: paramiko's channels lose the replies of other threads."""

    def __init__(self, fs: Any) -> None:
        super().__init__(fs)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(_CHANNELS)
        self._idle: list[Any] = []

    def close(self) -> None:
        if os.getpid() == self._pid:
            with self._lock:
                idle, self._idle = self._idle, []
            for sftp in idle:
                sftp.close()

    @property
    def host(self) -> str:
        port = self._fs.ssh_kwargs.get("port")
        return f"{self._fs.host}:{port}" if port else str(self._fs.host)

    def info(self, path: str) -> dict[str, Any]:
        with self._channel() as sftp:
            return _described(path, _found(path, sftp.stat))

    def ls(self, path: str, *, detail: Literal[True]) -> list[dict[str, Any]]:
        del detail
        found = []
        with self._channel() as sftp:
            for entry in _found(path, sftp.listdir_attr):
                name = f"{path.rstrip('/')}/{entry.filename}"
                if stat.S_ISLNK(entry.st_mode or 0):
                    try:
                        entry = _found(name, sftp.stat)
                    except FileNotFoundError:
                        # It leads nowhere.
                        continue
                    if stat.S_ISDIR(entry.st_mode or 0):
                        # It could lead round in a circle.
                        continue
                found.append(_described(name, entry))
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        with self._opened(path, start or 0, end) as (stream, wanted):
            parts = []
            while wanted > 0 and (part := stream.read(wanted)):
                parts.append(part)
                wanted -= len(part)
            return b"".join(parts)

    def copy_to(self, path: str, target: BinaryIO) -> None:
        with self._opened(path, 0, None) as (stream, _):
            copyfileobj(stream, target)

    def rm_file(self, path: str) -> None:
        with self._channel() as sftp:
            _found(path, sftp.remove)

    def rmdir(self, path: str) -> None:
        with self._channel() as sftp:
            sftp.rmdir(path)

    def makedirs(self, path: str, *, exist_ok: Literal[True]) -> None:
        del exist_ok
        with self._channel() as sftp:
            for folder in parents(path):
                try:
                    sftp.mkdir(folder)
                except OSError:
                    # "Failure" is all that is said of one that is there.
                    if not stat.S_ISDIR(_found(folder, sftp.stat).st_mode or 0):
                        raise NotADirectoryError(20, os.strerror(20), folder) from None

    def why_unreliable(self, base: str) -> str:
        path = f"{base}{TEMP_MARK}{os.urandom(8).hex()}"
        self.pipe_file(path, b"?")
        try:
            before = self.info(path)
            self.cat_file(path)
            if "generation" in before and self.info(path) == before:
                return ""
        finally:
            self._discard(path)
        return (
            "it does not keep the access time that a file is given, by which versions of the same "
            "second are told apart (mounted strictatime?)"
        )

    def _write(self, path: str, source: BinaryIO) -> None:
        with self._channel() as sftp, _made(sftp, path) as stream:
            # Not pipelined: paramiko then drops what the server says of all writes but the
            # last, so that a full disk could leave a hole.
            while chunk := source.read(_CHUNK):
                stream.write(chunk)
            stream.flush()
            sftp._request(_EXTENDED, "fsync@openssh.com", stream.handle)
            mark = _MARKED + secrets.randbelow(_MARKED)
            stream.utime((mark, stream.stat().st_mtime))

    def _link(self, path: str, new: str) -> None:
        with self._channel() as sftp:
            try:
                sftp._request(_EXTENDED, "hardlink@openssh.com", path, new)
            except OSError as exc:
                # "Failure" is all that is said of a name that is taken.
                try:
                    sftp.lstat(new)
                except OSError:
                    if "unsupported" in str(exc).lower():
                        raise NotImplementedError(
                            "the server makes no hard links (hardlink@openssh.com)"
                        ) from exc
                    raise exc from None
                raise taken(new) from exc

    def _replace(self, path: str, new: str) -> None:
        with self._channel() as sftp:
            sftp.posix_rename(path, new)

    @contextmanager
    def _opened(self, path: str, start: int, end: int | None) -> Iterator[tuple[Any, int]]:
        with self._channel() as sftp, _found(path, lambda path: sftp.open(path, "rb")) as stream:
            size = stream.stat().st_size
            wanted = (size if end is None else min(end, size)) - start
            if start:
                stream.seek(start)
            elif wanted > _CHUNK:
                # All requests at once; their replies come while the first ones are read.
                stream.prefetch(wanted)
            yield stream, wanted

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        if os.getpid() != self._pid:
            # The connection is the parent's; what it says must not be read here.  Kept, since
            # paramiko says goodbye on one that is collected.
            self._inherited = (self._fs.client, self._fs.ftp, self._idle)
            self._begin()
            self._fs._connect()
        with self._turns:
            with self._lock:
                transport = self._fs.client.get_transport()
                if transport is None or not transport.is_active():
                    self._idle.clear()
                    self._fs._connect()
                client = self._fs.client
                self._idle = [idle for idle in self._idle if not idle.sock.closed]
                sftp = self._idle.pop() if self._idle else None
            if sftp is None:
                sftp = _new_channel(client)
            try:
                yield sftp
            except TimeoutError:
                # What it would still answer is not waited for, nor taken for another answer.
                client.close()
                raise
            except OSError:
                # The server has answered.
                self._give_back(client, sftp)
                raise
            except BaseException:
                # There may be replies on their way that nobody waits for any more.
                sftp.close()
                raise
            self._give_back(client, sftp)

    def _give_back(self, client: Any, sftp: Any) -> None:
        with self._lock:
            if client is self._fs.client:
                self._idle.append(sftp)


def _new_channel(client: Any) -> Any:
    silent = threading.Event()

    def leave() -> None:
        silent.set()
        client.close()

    # paramiko waits for an hour for a channel, and without end for what is to run in it.
    watch = threading.Timer(ANSWER_SECONDS, leave)
    watch.daemon = True
    watch.start()
    try:
        sftp = client.open_sftp()
    except Exception as exc:
        if silent.is_set():
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from exc
        raise
    finally:
        watch.cancel()
    sftp.get_channel().settimeout(ANSWER_SECONDS)
    return sftp


def _found(path: str, action: Callable[[str], T]) -> T:
    try:
        return action(path)
    except FileNotFoundError as exc:
        raise missing(path) from exc


def _made(sftp: Any, path: str) -> Any:
    return _found(path, lambda path: sftp.open(path, "wx"))


def _described(path: str, found: Any) -> dict[str, Any]:
    mode, accessed = found.st_mode or 0, found.st_atime or 0
    raw: dict[str, Any] = {
        "name": path,
        "size": found.st_size,
        "type": "directory" if stat.S_ISDIR(mode) else "file",
        "mtime": float(found.st_mtime),
    }
    if accessed >= _MARKED:
        raw["generation"] = f"{accessed:x}"
    return raw
