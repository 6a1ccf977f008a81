"""SMB servers (Windows, Samba), through fsspec's `SMBFileSystem` (smbprotocol).

CREATE makes a hard link that must not replace; OVERWRITE renames and replaces.  All is opened so
that others may read, rename and delete meanwhile.  A lost connection is made anew by the next
call, also in a forked child; a server that is silent for a minute has lost it.

Not promised: that names which differ only in case are two (most servers
take them for one: the second CREATE is refused); anything on servers without hard links (FAT,
exFAT: refused).
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from shutil import copyfileobj
from typing import Any, BinaryIO, Literal, TypeVar

from tapstore.stores.fileservers import FileServer, parents

T = TypeVar("T")

_SHARED = "rwd"
_CHUNK = 1 << 20
_CONNECTIONS = 4
_PATIENCE_SECONDS = 10.0

ANSWER_SECONDS = 60.0
"""Who is silent for so long is taken for gone: of a network that was cut nobody is told."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ACCESS_DENIED = 0xC0000022
_PASSING = (0xC0000043, 0xC0000056)
"""SHARING_VIOLATION, DELETE_PENDING: somebody has the file open, which will end."""

_NO_LINKS = (0xC00000BB, 0xC0000003, 0xC0000010, 0xC000000D)
"""NOT_SUPPORTED, INVALID_INFO_CLASS, INVALID_DEVICE_REQUEST, INVALID_PARAMETER."""

_FOLDER = 0x10
_ELSEWHERE = 0x400
"""Attributes: a directory; a reparse point, such as a link."""


class SmbFiles(FileServer):
    """Paths are `/share/folder/file`.

    Each call has a connection for itself: smbprotocol's run out of credits when many threads share
    one.
    """

    def __init__(self, fs: Any) -> None:
        super().__init__(fs)
        self._client: Any = import_module("smbclient")
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(_CONNECTIONS)
        self._idle: list[dict[str, Any]] = []

    @property
    def host(self) -> str:
        port = self._fs.port
        return f"{self._fs.host}:{port}" if port else str(self._fs.host)

    def info(self, path: str) -> dict[str, Any]:
        with self._named(path) as (unc, at):
            found = self._patiently(lambda: self._client.stat(unc, **at))
        modified = found.st_mtime_ns
        kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
        return _described(path, kind, found.st_size, found.st_ino, modified)

    def ls(self, path: str, *, detail: Literal[True]) -> list[dict[str, Any]]:
        del detail
        with self._named(path) as (unc, at):
            entries = [entry.smb_info for entry in self._client.scandir(unc, **at)]
        return [
            _described(
                f"{path.rstrip('/')}/{entry.file_name}",
                "directory" if entry.file_attributes & _FOLDER else "file",
                entry.end_of_file, entry.file_id, _nanoseconds(entry.last_write_time),
            )
            for entry in entries
            # It could lead round in a circle, or out.
            if not entry.file_attributes & _ELSEWHERE
        ]  # fmt: skip

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        with self._opened(path) as stream:
            stream.seek(start or 0)
            data: bytes = stream.read(-1 if end is None else end - (start or 0))
            return data

    def copy_to(self, path: str, target: BinaryIO) -> None:
        with self._opened(path) as stream:
            copyfileobj(stream, target, _CHUNK)

    def rm_file(self, path: str) -> None:
        with self._named(path) as (unc, at):
            self._patiently(lambda: self._client.remove(unc, **at))

    def rmdir(self, path: str) -> None:
        with self._named(path) as (unc, at):
            self._client.rmdir(unc, **at)

    def makedirs(self, path: str, *, exist_ok: Literal[True]) -> None:
        del exist_ok
        # The first name is the share.
        for folder in list(parents(path))[1:]:
            try:
                with self._named(folder) as (unc, at):
                    self._client.mkdir(unc, **at)
            except FileExistsError:
                if self.info(folder)["type"] != "directory":
                    raise NotADirectoryError(20, os.strerror(20), folder) from None

    def _write(self, path: str, source: BinaryIO) -> None:
        with self._named(path) as (unc, at), self._client.open_file(
            unc, "xb", share_access=_SHARED, **at
        ) as stream:  # fmt: skip
            copyfileobj(source, stream, _CHUNK)
            # Also on the server's disk.
            stream.flush()

    def _link(self, path: str, new: str) -> None:
        with self._named(path, new) as (unc, at):
            target = self._unc(new)

            def link() -> None:
                try:
                    self._client.link(unc, target, **at)
                except OSError as exc:
                    if _status(exc) in _NO_LINKS:
                        raise NotImplementedError("the server makes no hard links") from exc
                    raise

            self._patiently(link)

    def _replace(self, path: str, new: str) -> None:
        with self._named(path, new) as (unc, at):
            target = self._unc(new)
            # Samba denies it as long as anybody has the old file open.
            self._patiently(
                lambda: self._client.replace(unc, target, **at),
                _ACCESS_DENIED,
            )

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        with self._named(path) as (unc, at):
            stream = self._patiently(
                lambda: self._client.open_file(unc, "rb", share_access=_SHARED, **at)
            )
            with stream:
                yield stream

    @contextmanager
    def _named(self, path: str, shown: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """The name in SMB's words and by which connection; errors come in those of Python."""
        with self._connection() as at:
            try:
                yield self._unc(path), at
            except OSError as exc:
                code = errno.EACCES if _status(exc) == _ACCESS_DENIED else exc.errno
                if _status(exc) is not None and code:
                    # Of the class that goes with the number, unlike smbprotocol's.
                    raise OSError(code, os.strerror(code), shown or path) from exc
                raise

    @contextmanager
    def _connection(self) -> Iterator[dict[str, Any]]:
        if os.getpid() != self._pid:
            # Those connections are the parent's; what comes on them must not be read here.
            self._inherited = self._idle
            self._begin()
        with self._turns:
            with self._lock:
                cache = self._idle.pop() if self._idle else {}
            try:
                self._log_in(cache)
            except BaseException:
                self._part_with(cache)
                raise
            try:
                yield {"port": self._fs._port, "connection_cache": cache}
            except TimeoutError:
                self._part_with(cache)
                raise
            except OSError:
                # The server has answered.
                self._give_back(cache)
                raise
            except BaseException:
                self._part_with(cache)
                raise
            self._give_back(cache)

    def _log_in(self, cache: dict[str, Any]) -> None:
        fs = self._fs
        name = f"{fs.host.lower()}:{fs._port}"  # under which smbclient looks for it
        if name not in cache or not cache[name].transport.connected:
            cache[name] = self._new_connection()
        # smbclient knows no credentials for a connection that it has to make anew by itself.
        self._client.register_session(
            fs.host, username=fs.username, password=fs.password, port=fs._port,
            encrypt=fs.encrypt, connection_timeout=fs.timeout, connection_cache=cache,
        )  # fmt: skip

    def _new_connection(self) -> Any:
        fs = self._fs
        # Each is a client of its own: Samba hands a further connection of a client over to the
        # process of its first, and if that one is about to end, nobody answers on it.
        made = import_module("smbprotocol.connection").Connection(uuid.uuid4(), fs.host, fs._port)
        receive = made.receive

        def receive_in_time(
            request: Any,
            wait: bool = True,
            timeout: float | None = None,
            *args: Any,
            **options: Any,
        ) -> Any:
            # Nobody who calls this gives a time-out, and without one it waits for ever.
            try:
                return receive(request, wait, timeout or ANSWER_SECONDS, *args, **options)
            except Exception as exc:
                if request.response_event.is_set():
                    raise
                # What it would still answer is not waited for: closing asks it no more.
                made.transport.close()
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from exc

        made.receive = receive_in_time
        made.connect(timeout=fs.timeout)
        return made

    def _give_back(self, cache: dict[str, Any]) -> None:
        with self._lock:
            self._idle.append(cache)

    def _part_with(self, cache: dict[str, Any]) -> None:
        self._client.reset_connection_cache(fail_on_error=False, connection_cache=cache)

    def close(self) -> None:
        if os.getpid() == self._pid:
            with self._lock:
                idle, self._idle = self._idle, []
            for cache in idle:
                self._part_with(cache)

    def _unc(self, path: str) -> str:
        return f"\\\\{self._fs.host}" + path.replace("/", "\\")

    def _patiently(self, action: Callable[[], T], *passing: int) -> T:
        """Repeat what others stand in the way of, for a while."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.002
        while True:
            try:
                return action()
            except OSError as exc:
                if _status(exc) not in (*_PASSING, *passing) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 0.25)


def _status(exc: OSError) -> int | None:
    return getattr(exc, "ntstatus", None)


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _described(path: str, kind: str, size: int, inode: int, modified: int) -> dict[str, Any]:
    # A listing tells microseconds, a look at one file a tenth of that.
    microseconds = modified // 1000
    return {
        "name": path,
        "size": size,
        "type": kind,
        "generation": f"{inode:x}",
        "mtime": microseconds / 1e6,
    }
