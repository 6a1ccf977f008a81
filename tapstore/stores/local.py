"""A folder as a store: on a local disk, a tmpfs or an NFS mount.

Every write is atomic for all readers and outlives a power failure (`publish` says how); CREATE
is exclusive between all hosts that mount it.

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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import BinaryIO, Literal, TypeVar

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import InvalidKeyError, NotFoundError
from tapstore.keys import check_key, check_prefix
from tapstore.stores import scan
from tapstore.stores.confine import Confinement
from tapstore.stores.freshness import refresh
from tapstore.stores.order import Listing
from tapstore.stores.publish import Publisher, discard
from tapstore.stores.storetime import StoreTime
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

_CHUNK = 1 << 20

_STALE_ATTEMPTS = 20
"""More than for writing: somebody may overwrite it all the time."""

_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    # A FIFO under a key must not block its reader for ever.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


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
        self._time = StoreTime(clock, self._probe)
        self._confinement = Confinement(self.root)
        self._publisher = Publisher(
            self.root, self.url, self._confinement, durable=durability == "full"
        )
        self._listing = Listing(
            partial(scan.entries, self.root), self._describe, scan.is_plain_file
        )

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        failures.check_range(start, end)

        def attempt(path: str) -> GetResult:
            fd = os.open(path, _READ)
            try:
                status = _regular(os.fstat(fd))
                data = _read(fd, start, end, status.st_size)
                return GetResult(data=data, info=_info(key, status))
            finally:
                os.close(fd)

        return self._reaching(check_key(key), "read", attempt)

    def head(self, key: str) -> ObjectInfo:
        def attempt(path: str) -> os.stat_result:
            try:
                # Opened, since NFS answers for seconds from memory who only asks for the status.
                fd = os.open(path, _READ)
            except PermissionError:
                return _look(path)
            try:
                return _regular(os.fstat(fd))
            finally:
                os.close(fd)

        return _info(key, self._reaching(check_key(key), "read", attempt))

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        mode = self._check_write(key, mode)
        return self._written(self._publisher.write(key, data, mode))

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        mode = self._check_write(key, mode)
        chunks = iter(partial(source.read, _CHUNK), b"")
        return self._written(self._publisher.write_once(key, chunks, mode))

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        if version is not None:
            raise failures.unsupported(
                self.url,
                "conditional_delete",
                "a file system cannot compare and delete in one step",
            )
        try:
            self._reaching(key, "delete", os.unlink)
        except NotFoundError:
            return

    def drop_empty_folders(self, key: str, *, below: str) -> None:
        folder = check_key(key).rpartition("/")[0]
        try:
            self._confinement.plan(key)
        except InvalidKeyError:
            return  # a link leads out: nothing of ours lies there
        while len(folder) > len(below) and folder.startswith(below):
            try:
                os.rmdir(f"{self.root}/{folder}")
            except OSError:
                return  # something lies in it, or somebody was faster
            folder = folder.rpartition("/")[0]

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._guarded(prefix, self._listing.objects(prefix, start_after))

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._guarded(prefix, self._listing.children(prefix))

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        failures.check_range(start, None)
        fd, _ = self._open(check_key(key))
        stream = os.fdopen(fd, "rb")
        stream.seek(start)
        return stream

    def now(self) -> float:
        return self._time.now()

    def local_path(self, key: str) -> str:
        path = self._confinement.plan(check_key(key))
        if os.path.islink(path):
            self._confinement.follow(key)
        return path

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        # A writer that slept for longer than that finds its file gone and writes it again.
        limit = self._probe() - older_than_seconds
        swept = []
        for name, status in self._guarded("", scan.unfinished(self.root)):
            if status.st_mtime < limit:
                if not dry_run:
                    discard(f"{self.root}/{name}")
                swept.append(name)
        return tuple(sorted(swept))

    def _check_write(self, key: str, mode: PutMode | Update) -> PutMode:
        check_key(key)
        failures.check_mode(mode)
        if isinstance(mode, Update):
            raise failures.unsupported(
                self.url, "update", "a file system has no compare-and-set; `commitlog` builds one"
            )
        return mode

    def _open(self, key: str) -> tuple[int, os.stat_result]:
        def attempt(path: str) -> tuple[int, os.stat_result]:
            fd = os.open(path, _READ)
            try:
                return fd, _regular(os.fstat(fd))
            except BaseException:
                os.close(fd)
                raise

        return self._reaching(key, "read", attempt)

    def _reaching(self, key: str, verb: str, action: Callable[[str], T]) -> T:
        """Do `action` on the file of `key`; it raises ELOOP if that is a symbolic link."""
        asked_again = False
        for attempt in range(_STALE_ATTEMPTS):
            last = attempt == _STALE_ATTEMPTS - 1
            try:
                try:
                    return action(self._confinement.enter(key))
                except OSError as exc:
                    if exc.errno != errno.ELOOP:
                        raise
                return action(self._confinement.follow(key))
            except (FileNotFoundError, NotADirectoryError) as exc:
                folder = f"{self.root}/{key}".rpartition("/")[0]
                if asked_again or last or not refresh(folder):
                    raise failures.not_found(self.url, key) from exc
                asked_again = True
            except OSError as exc:
                # NFS: the file was replaced after it was looked up (v3 tells so as late as in the
                # middle of reading); look it up again.
                if exc.errno != errno.ESTALE or last:
                    raise failures.failed(self.url, key, verb, exc) from exc
        raise AssertionError("unreachable")

    def _guarded(self, prefix: str, found: Iterator[T]) -> Iterator[T]:
        try:
            yield from found
        except OSError as exc:
            raise failures.failed(self.url, prefix, "list", exc) from exc

    def _describe(self, key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
        status = scan.status(entry)
        if status is not None and stat.S_ISLNK(status.st_mode):
            try:
                status = os.stat(self._confinement.follow(key))
            except (OSError, InvalidKeyError):
                # It leads nowhere or out; `get` says so to who asks for it.
                return None
        return _info(key, status) if status and stat.S_ISREG(status.st_mode) else None

    def _written(self, status: os.stat_result) -> PutResult:
        self._time.see(status.st_mtime)
        return PutResult(version=_version(status), modified=status.st_mtime)

    def _probe(self) -> float:
        temp, status = self._publisher.prepare("clock", (b"?",))
        discard(temp)
        return status.st_mtime


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


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key, size=status.st_size, version=_version(status), modified=status.st_mtime
    )
