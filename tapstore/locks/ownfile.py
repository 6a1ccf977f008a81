"""A file of this process that is linked to the name of a lock to take it.

The inode and the time of the link tell the lock from every other one, and `flock` on the inode
keeps apart those who want to remove it.

Not promised: that `flock` works on every mount.  Where it does not, two who remove at once are
kept apart by looking again only, with the gap between a look and an action.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.keys import TEMP_MARK
from tapstore.stores.freshness import refresh
from tapstore.stores.publish import NO_LINKS

_OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_LOOK = _OPEN | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class OwnFile:
    """A finished file beside the lock, open as long as this object lives."""

    def __init__(self, folder: str, data: bytes) -> None:
        self.path = temp_path(folder)
        self.pid = os.getpid()
        self.fd = os.open(self.path, _OPEN | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        self._finish = weakref.finalize(self, _remove, self.path, self.fd, self.pid)
        try:
            os.write(self.fd, data)
            self._inode = _inode(os.fstat(self.fd))
        except BaseException:
            self.close()
            raise

    def link(self, path: str) -> bool:
        """Take the name `path`; False if it is somebody else's.

        Raises FileNotFoundError if a sweep for old temporary files took ours, or the folder is
        gone.
        """
        try:
            os.link(self.path, path)
        except FileExistsError:
            # NFS repeats a LINK whose reply was lost: it may be our own that is in the way.
            return self.is_at(path)
        except OSError as exc:
            if exc.errno not in NO_LINKS:
                raise
            return self._move(path)
        return True

    def _move(self, path: str) -> bool:
        """The same on a mount without hard links; this file is then there only under `path`."""
        from tapstore.stores import linkless

        reason = linkless.why_refused(os.path.dirname(path))
        if reason:
            raise OSError(errno.EOPNOTSUPP, reason, path)
        try:
            linkless.rename(self.path, path)
        except FileExistsError:
            return self.is_at(path)
        return True

    def is_at(self, path: str) -> bool:
        """Whether the name is linked to this file now."""
        refresh(os.path.dirname(path))
        try:
            return _inode(os.lstat(path)) == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Remove the file; what is linked to it stays."""
        self._finish()


def temp_path(folder: str) -> str:
    return f"{folder}/{TEMP_MARK}{secrets.token_hex(8)}"


def open_lock(path: str) -> int:
    """Open a lock to look at it, and to hold `flock` on it where we may.

    Raises FileNotFoundError, and PermissionError if it must not be read.
    """
    refresh(os.path.dirname(path))
    try:
        # NFS grants an exclusive flock only to who could write.
        return os.open(path, _LOOK | os.O_RDWR)
    except PermissionError:
        return os.open(path, _LOOK | os.O_RDONLY)


def identity(status: os.stat_result) -> str:
    """What tells one holding of a lock from any other: linking changes the time of the inode."""
    return f"{status.st_ino:x}-{status.st_ctime_ns:x}"


def identity_at(path: str) -> str:
    """The identity of what is there now; empty if nothing is."""
    refresh(os.path.dirname(path))
    try:
        return identity(os.lstat(path))
    except FileNotFoundError:
        return ""


def check_regular(status: os.stat_result) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return status


@contextmanager
def removing(fd: int) -> Iterator[bool]:
    """Keep others from removing the lock that is open as `fd`; False: one of them is at it."""
    try:
        import fcntl
    except ImportError:
        yield True
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    except OSError:
        # A mount without locks.
        yield True
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def remove(path: str, seen: str) -> bool:
    """Remove the lock whose identity is `seen`; False if another one is there, or being removed.

    It is moved to a private name first and looked at once more: a program that knows nothing of
    `flock` may have removed it and taken the name again between our look and the move.  Then it
    gets its lock back, unless somebody else took the name in that moment.
    """
    try:
        fd = open_lock(path)
    except FileNotFoundError:
        return True
    try:
        inode = _inode(os.fstat(fd))
        with removing(fd) as alone:
            if not alone or identity_at(path) != seen:
                return False
            private = temp_path(os.path.dirname(path))
            os.rename(path, private)
            try:
                if _inode_at(private) == inode:
                    return True
                _restore(private, path)
                return False
            finally:
                _discard(private)
    except FileNotFoundError:
        return True
    finally:
        os.close(fd)


def _inode_at(path: str) -> tuple[int, int]:
    try:
        # Opened: NFS takes what was moved for what it remembers under the old name.
        fd = open_lock(path)
    except PermissionError:
        return _inode(os.lstat(path))
    try:
        return _inode(os.fstat(fd))
    finally:
        os.close(fd)


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _restore(private: str, path: str) -> None:
    """Give a lock its name back, unless somebody else took the name."""
    try:
        os.link(private, path)
    except FileExistsError:
        pass
    except OSError as exc:
        if exc.errno not in NO_LINKS:
            raise
        from tapstore.stores import linkless

        try:
            linkless.rename(private, path)
        except FileExistsError:
            pass


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # it has its name back, where that moved it


def _remove(path: str, fd: int, pid: int) -> None:
    # A forked child has this object too; the file is its parent's.
    os.close(fd)
    if os.getpid() == pid:
        try:
            os.unlink(path)
        except OSError:
            pass  # swept already, or the folder is gone; else `sweep` finds it
