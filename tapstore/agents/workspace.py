"""A private folder of this host for one piece of work; it goes when the work ends, or later.

An agent that is killed cannot remove its folder, and inputs may be large.  So the next agent of
the same user on the same host does: a folder is locked as long as its process lives, and the
kernel ends such a lock with the process, however that ends.

Where the temporary folder knows no locks, folders of killed agents stay.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "tapstore-work-"
_LOCK = ".lock"


@contextmanager
def workspace() -> Iterator[Path]:
    """Make a folder below the temporary folder of this host, and remove it afterwards."""
    parent = tempfile.gettempdir()
    _sweep(parent)
    folder, lock = _made(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _made(parent: str) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        locked = try_lock(lock)
        if locked is None:
            # Without a lock it must not look like one whose owner has died.
            os.close(lock)
            os.unlink(folder / _LOCK)
            return folder, None
        if locked and os.path.exists(folder / _LOCK):
            return folder, lock
        # A sweep came between the two steps, and removes it, or has.
        os.close(lock)


def _sweep(parent: str) -> None:
    """Remove the folders whose agents have died."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                # Those of other users can't be opened.
                with suppress(OSError):
                    _remove_if_dead(entry.path)


def _remove_if_dead(folder: str) -> None:
    # Anybody may have put a link there: what it leads to is not ours.
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        if try_lock(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def try_lock(descriptor: int) -> bool | None:
    """Lock a file until its process ends; False: somebody has it; None: there are no locks."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
