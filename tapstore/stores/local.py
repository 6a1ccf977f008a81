"""A folder as a store: on a local disk, a tmpfs or an NFS mount.

Every write is a finished temporary file in the target's own folder that gets its name in one
step: by `link(2)` for CREATE, which fails if the name is taken (also on NFS, where O_EXCL alone
would show a file without its content), by `rename(2)` for OVERWRITE.

Not promised: Update and conditional delete (no file system has them; `commitlog` builds
compare-and-set from CREATE); that a deletion outlives a power failure; that a version never
repeats (its parts are inode, time and size: two overwrites within one tick of the file system's
clock may bring an earlier one back); protection from somebody who swaps folders for links while
we work.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Literal, TypeVar

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import InvalidKeyError, TapstoreError
from tapstore.keys import TEMP_MARK, check_key, check_prefix
from tapstore.stores import failures, walk
from tapstore.stores.confine import Confinement
from tapstore.types import (
    CREATE,
    Capabilities,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)

Durability = Literal["full", "none"]
T = TypeVar("T")

_ATTEMPTS = 5
_CHUNK = 1 << 20
_CLOCK_SECONDS = 60.0
"""For how long the store's time is extrapolated by this process' monotonic clock."""

_AMBIGUOUS = (errno.EIO, errno.ETIMEDOUT, errno.EINTR)
"""A soft NFS mount answers so when it stops waiting; the server may still do it."""

_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    # A FIFO under a key must not block its reader for ever.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


class LocalStore(Store):
    """Keys are the paths of files below `root`, which is made by the first write.

    `durability="full"` returns from a write when file and name are on the disk; `"none"` leaves
    that to the system (a crash of the *host* may lose the last seconds).
    """

    capabilities = Capabilities(create=True, update=False, conditional_delete=False, files=True)

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if durability not in ("full", "none"):
            raise ValueError(f"durability must be 'full' or 'none', not {durability!r}")
        self.root = os.path.abspath(root)
        self.url = f"file://{self.root}"
        self._durable = durability == "full"
        self._clock = clock
        self._confinement = Confinement(self.root)
        self._synced: set[str] = set()
        self._top = self.root
        while not os.path.isdir(self._top) and self._top != os.path.dirname(self._top):
            self._top = os.path.dirname(self._top)
        self._offset = 0.0
        self._offset_since: float | None = None

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        failures.check_range(start, end)
        fd, status = self._open(check_key(key))
        try:
            return GetResult(data=_read(fd, start, end, status.st_size), info=_info(key, status))
        except OSError as exc:
            raise failures.failed(self.url, key, "read", exc) from exc
        finally:
            os.close(fd)

    def head(self, key: str) -> ObjectInfo:
        return _info(key, self._reading(check_key(key), _look))

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        self._check_write(key, mode)
        for attempt in range(_ATTEMPTS):
            temp, status = self._write_temp(key, (data,))
            if self._publish(key, temp, status, mode, last=attempt == _ATTEMPTS - 1):
                break
        return PutResult(version=_version(status), modified=status.st_mtime)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        self._check_write(key, mode)
        temp, status = self._write_temp(key, iter(lambda: source.read(_CHUNK), b""))
        # Once: the source cannot be read again.
        self._publish(key, temp, status, mode, last=True)
        return PutResult(version=_version(status), modified=status.st_mtime)

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        if version is not None:
            raise failures.unsupported(
                self.url,
                "conditional_delete",
                "a file system cannot compare and delete in one step",
            )
        try:
            os.unlink(self._confinement.enter(key))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as exc:
            raise failures.failed(self.url, key, "delete", exc) from exc

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        found = walk.files(self.root, prefix, start_after, self._linked)
        return self._listed(prefix, (_info(key, status) for key, status in found))

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._listed(prefix, walk.children(self.root, prefix, self._linked))

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        failures.check_range(start, None)
        fd, _ = self._open(check_key(key))
        stream = os.fdopen(fd, "rb")
        stream.seek(start)
        return stream

    def now(self) -> float:
        since = self._offset_since
        if since is None or self._clock.monotonic() - since > _CLOCK_SECONDS:
            self._probe()
        return self._offset + self._clock.monotonic()

    def local_path(self, key: str) -> str:
        path = self._confinement.plan(check_key(key))
        if os.path.islink(path):
            self._confinement.follow(key)
        return path

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        # A writer that slept for longer than that finds its file gone and writes it again.
        limit = self._probe() - older_than_seconds
        swept = []
        for name, status in self._listed("", walk.unfinished(self.root)):
            if status.st_mtime < limit:
                if not dry_run:
                    _discard(f"{self.root}/{name}")
                swept.append(name)
        return tuple(sorted(swept))

    def _check_write(self, key: str, mode: PutMode | Update) -> None:
        check_key(key)
        if isinstance(failures.check_mode(mode), Update):
            raise failures.unsupported(
                self.url, "update", "a file system has no compare-and-set; `commitlog` builds one"
            )

    def _open(self, key: str) -> tuple[int, os.stat_result]:
        def attempt(path: str) -> tuple[int, os.stat_result]:
            fd = os.open(path, _READ)
            try:
                return fd, _regular(os.fstat(fd))
            except BaseException:
                os.close(fd)
                raise

        return self._reading(key, attempt)

    def _reading(self, key: str, action: Callable[[str], T]) -> T:
        """Do `action` on the file of `key`; it raises ELOOP if that is a symbolic link."""
        for attempt in range(_ATTEMPTS):
            try:
                try:
                    return action(self._confinement.enter(key))
                except OSError as exc:
                    if exc.errno != errno.ELOOP:
                        raise
                return action(self._confinement.follow(key))
            except (FileNotFoundError, NotADirectoryError) as exc:
                raise failures.not_found(self.url, key) from exc
            except OSError as exc:
                # NFS: the file was replaced between lookup and open; look it up again.
                if exc.errno != errno.ESTALE or attempt == _ATTEMPTS - 1:
                    raise failures.failed(self.url, key, "read", exc) from exc
        raise AssertionError("unreachable")

    def _listed(self, prefix: str, found: Iterator[T]) -> Iterator[T]:
        try:
            yield from found
        except OSError as exc:
            raise failures.failed(self.url, prefix, "list", exc) from exc

    def _linked(self, key: str) -> os.stat_result | None:
        try:
            return os.stat(self._confinement.follow(key))
        except (OSError, InvalidKeyError):
            return None

    def _write_temp(self, key: str, chunks: Iterable[bytes]) -> tuple[str, os.stat_result]:
        """Write a finished temporary file beside `key`.

        Each publication needs a fresh one: the inode of one that was linked is public.
        """
        temp, fd = self._new_temp(key)
        try:
            try:
                for chunk in chunks:
                    self._step(key, _write, fd, chunk)
                written = self._clock.monotonic()
                if self._durable:
                    self._step(key, os.fsync, fd)
                status = self._step(key, os.fstat, fd)
            except BaseException:
                os.close(fd)
                raise
            # NFS may tell of a full disk as late as now.
            self._step(key, os.close, fd)
        except BaseException:
            _discard(temp)
            raise
        self._offset, self._offset_since = status.st_mtime - written, written
        return temp, status

    def _new_temp(self, key: str) -> tuple[str, int]:
        name = TEMP_MARK + os.urandom(8).hex()
        for attempt in range(_ATTEMPTS):
            try:
                folder = os.path.dirname(self._confinement.enter(key))
                return f"{folder}/{name}", os.open(f"{folder}/{name}", _WRITE, 0o666)
            except OSError as exc:
                # Somebody may remove a folder again between making it and writing into it.
                if exc.errno not in (errno.ENOENT, errno.ESTALE) or attempt == _ATTEMPTS - 1:
                    raise failures.failed(self.url, key, "write", exc) from exc
            self._make_folder(key)
        raise AssertionError("unreachable")

    def _make_folder(self, key: str) -> None:
        folder = os.path.dirname(self._confinement.plan(key))
        self._synced.clear()
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError as exc:
            blocked = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            raise failures.failed(self.url, key, "write", blocked) from exc
        except OSError as exc:
            raise failures.failed(self.url, key, "write", exc) from exc

    def _publish(
        self, key: str, temp: str, status: os.stat_result, mode: PutMode | Update, *, last: bool
    ) -> bool:
        """Give the temporary file its name; False: it has to be written again."""
        path = f"{self.root}/{key}"
        try:
            if mode is CREATE:
                os.link(temp, path)
            else:
                os.replace(temp, path)
        except OSError as exc:
            # Also a success may come back as EEXIST: NFS repeats a LINK whose reply was lost.
            ours = self._is_ours(path, status)
            if not ours:
                _discard(temp)
                if exc.errno in (errno.ENOENT, errno.ESTALE) and not last:
                    return False
                raise self._refusal(key, path, mode, exc) from exc
        if mode is CREATE:
            _discard(temp)
        if self._durable:
            try:
                self._sync_folder(os.path.dirname(path))
            except OSError as exc:
                raise failures.outcome_unknown(self.url, key, "the write", exc) from exc
        return True

    def _is_ours(self, path: str, status: os.stat_result) -> bool:
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return (found.st_ino, found.st_dev) == (status.st_ino, status.st_dev)

    def _refusal(
        self, key: str, path: str, mode: PutMode | Update, cause: OSError
    ) -> TapstoreError:
        if os.path.isdir(path) and not os.path.islink(path):
            blocked = IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return failures.failed(self.url, key, "write", blocked)
        if isinstance(cause, FileExistsError):
            return failures.already_exists(self.url, key)
        if cause.errno in _AMBIGUOUS:
            return failures.outcome_unknown(self.url, key, "the write", cause)
        if mode is CREATE and cause.errno in _NO_LINKS:
            return failures.unsupported(
                self.url, "create", "this file system has no hard links; use another folder"
            )
        return failures.failed(self.url, key, "write", cause)

    def _sync_folder(self, folder: str) -> None:
        """Make the names in `folder` durable, and once the names of the folders above it.

        Whoever made those folders may not have come that far yet.
        """
        _sync(folder)
        if folder in self._synced:
            return
        above = folder
        while above not in (self._top, os.path.dirname(above)):
            above = os.path.dirname(above)
            _sync(above)
        self._synced.add(folder)

    def _probe(self) -> float:
        """Return the store's time, seen on a file written just now."""
        temp, status = self._write_temp("clock", (b"?",))
        _discard(temp)
        return status.st_mtime

    def _step(self, key: str, step: Callable[..., T], *args: Any) -> T:
        try:
            return step(*args)
        except OSError as exc:
            raise failures.failed(self.url, key, "write", exc) from exc


def _read(fd: int, start: int, end: int | None, size: int) -> bytes:
    if start:
        os.lseek(fd, start, os.SEEK_SET)
    wanted = (size if end is None else min(end, size)) - start
    parts = []
    while wanted > 0:
        part = os.read(fd, wanted)
        if not part:
            break
        parts.append(part)
        wanted -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    # Linux writes 2 GiB at most at a time.
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def _look(path: str) -> os.stat_result:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return _regular(status)


def _regular(status: os.stat_result) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return status


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as exc:
        # SMB and some FUSE file systems have no such operation; names go through at once.
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def _discard(temp: str) -> None:
    try:
        os.unlink(temp)
    except OSError:
        # What is left behind is left to `sweep`; it says nothing about the write itself.
        pass


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key, size=status.st_size, version=_version(status), modified=status.st_mtime
    )
