"""Gives whole files their names in one step, and makes them outlive a power failure if asked.

A write is a finished temporary file in the target's own folder that gets its name by `link(2)`
for CREATE, which fails if the name is taken, or by `rename(2)` for OVERWRITE.  `linkless` says
what is done where there are no hard links.  A crash leaves the temporary file at most;
`scan.unfinished` finds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tapstore import failures
from tapstore.errors import TapstoreError
from tapstore.keys import TEMP_MARK
from tapstore.stores import scan
from tapstore.stores.confine import Confinement
from tapstore.types import CREATE, PutMode

T = TypeVar("T")

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

_AMBIGUOUS = (errno.EIO, errno.ETIMEDOUT, errno.EINTR)
"""A soft NFS mount answers so when it stops waiting; the server may still do it."""

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""What `link` says where there are none."""


class Publisher:
    """Writes files below one root."""

    def __init__(self, root: str, url: str, confinement: Confinement, *, durable: bool) -> None:
        self._root = root
        self._url = url
        self._confinement = confinement
        self._durable = durable
        self._synced: set[str] = set()
        self._linkless: str | None = None
        """None: there are hard links.  Else why nothing can be created, empty if it can."""
        self._top = root
        while not os.path.isdir(self._top) and self._top != os.path.dirname(self._top):
            self._top = os.path.dirname(self._top)

    def write(self, key: str, data: bytes, mode: PutMode) -> os.stat_result:
        """Write `data` under `key` and return what `fstat` said of the finished file."""
        for _ in range(scan.ATTEMPTS - 1):
            temp, status = self.prepare(key, (data,))
            if self._publish(key, temp, status, mode, last=False):
                return status
        return self.write_once(key, (data,), mode)

    def write_once(self, key: str, chunks: Iterable[bytes], mode: PutMode) -> os.stat_result:
        """The same for what can be read only once."""
        temp, status = self.prepare(key, chunks)
        self._publish(key, temp, status, mode, last=True)
        return status

    def prepare(self, key: str, chunks: Iterable[bytes]) -> tuple[str, os.stat_result]:
        """Write a temporary file beside `key`; what `chunks` raises is passed on.

        Each publication needs a fresh one: the inode of one that was linked is public.
        """
        temp, fd = self._new_temp(key)
        try:
            try:
                for chunk in chunks:
                    self._step(key, _write, fd, chunk)
                status = self._step(key, self._finish, fd)
            except BaseException:
                os.close(fd)
                raise
            # NFS may tell of a full disk as late as now.
            self._step(key, os.close, fd)
        except BaseException:
            discard(temp)
            raise
        return temp, status

    def _new_temp(self, key: str) -> tuple[str, int]:
        name = TEMP_MARK + os.urandom(8).hex()
        for attempt in range(scan.ATTEMPTS):
            try:
                temp = f"{self._confinement.enter(key).rpartition('/')[0]}/{name}"
                return temp, os.open(temp, _WRITE, 0o666)
            except OSError as exc:
                # Somebody may remove a folder again between making it and writing into it.
                last = attempt == scan.ATTEMPTS - 1
                if last or exc.errno not in (errno.ENOENT, errno.ESTALE):
                    raise failures.failed(self._url, key, "write", exc) from exc
            self._make_folder(key)
        raise AssertionError("unreachable")

    def _make_folder(self, key: str) -> None:
        folder = os.path.dirname(self._confinement.plan(key))
        self._synced.clear()
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError as exc:
            raise self._blocked(key, errno.ENOTDIR) from exc
        except FileNotFoundError:
            return  # one above it was removed as empty between two of these steps: once more
        except OSError as exc:
            raise failures.failed(self._url, key, "write", exc) from exc

    def _publish(
        self, key: str, temp: str, status: os.stat_result, mode: PutMode, *, last: bool
    ) -> bool:
        """Give the temporary file its name; False: it has to be written again."""
        path = f"{self._root}/{key}"
        try:
            if mode is CREATE:
                self._create(temp, path)
            else:
                os.replace(temp, path)
        except OSError as exc:
            # Also a success may come back as EEXIST: NFS repeats a LINK whose reply was lost.
            if not _is_at(path, status):
                discard(temp)
                if exc.errno in (errno.ENOENT, errno.ESTALE) and not last:
                    return False
                if isinstance(exc, FileExistsError):
                    # Whoever made it may have failed to sync it, and may be asking just that.
                    self._make_durable(key, path)
                raise self._refusal(key, path, mode, exc) from exc
        if mode is CREATE:
            discard(temp)
        self._make_durable(key, path)
        return True

    def _create(self, temp: str, path: str) -> None:
        if self._linkless is None:
            try:
                os.link(temp, path)
                return
            except OSError as exc:
                if exc.errno not in NO_LINKS:
                    raise
        # Not at the top: it costs each start some milliseconds, and hardly anybody needs it.
        from tapstore.stores import linkless

        if self._linkless is None:
            self._linkless = linkless.why_refused(os.path.dirname(path))
        if self._linkless:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        linkless.rename(temp, path)

    def _make_durable(self, key: str, path: str) -> None:
        if not self._durable:
            return
        try:
            self._sync_names(path.rpartition("/")[0])
        except FileNotFoundError:
            return  # whoever removed the folder has taken what we wrote out of it before
        except OSError as exc:
            raise failures.outcome_unknown(self._url, key, "the write", exc) from exc

    def _refusal(self, key: str, path: str, mode: PutMode, cause: OSError) -> TapstoreError:
        if os.path.isdir(path) and not os.path.islink(path):
            return self._blocked(key, errno.EISDIR)
        if isinstance(cause, FileExistsError):
            return failures.already_exists(self._url, key)
        if cause.errno in _AMBIGUOUS:
            return failures.outcome_unknown(self._url, key, "the write", cause)
        if mode is CREATE and cause.errno in NO_LINKS:
            reason = self._linkless or "this file system has no hard links; use another folder"
            return failures.unsupported(self._url, "create", reason)
        return failures.failed(self._url, key, "write", cause)

    def _blocked(self, key: str, code: int) -> TapstoreError:
        return failures.failed(self._url, key, "write", OSError(code, os.strerror(code)))

    def _sync_names(self, folder: str) -> None:
        """Make the names in `folder` durable, and once those of the folders that lead to it.

        Whoever made those folders may not have come that far yet.
        """
        sync_folder(folder)
        if folder in self._synced:
            return
        above = folder
        while above not in (self._top, os.path.dirname(above)):
            above = os.path.dirname(above)
            sync_folder(above)
        self._synced.add(folder)

    def _finish(self, fd: int) -> os.stat_result:
        if self._durable:
            os.fsync(fd)
        return os.fstat(fd)

    def _step(self, key: str, step: Callable[..., T], *args: Any) -> T:
        try:
            return step(*args)
        except OSError as exc:
            raise failures.failed(self._url, key, "write", exc) from exc


def discard(temp: str) -> None:
    """Remove a temporary file.

    That it cannot be removed says nothing about the write itself: `sweep` finds it later.
    """
    try:
        os.unlink(temp)
    except OSError:
        pass


def _write(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    # Linux writes 2 GiB at most at a time.
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def _is_at(path: str, status: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_ino, found.st_dev) == (status.st_ino, status.st_dev)


def sync_folder(folder: str) -> None:
    """Make the names in a folder outlive a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as exc:
        # SMB and some FUSE file systems have no such operation; names go through at once.
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)
