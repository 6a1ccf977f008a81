"""The numbers of a worktree's messages, counted together with the original scripts.

The same file `sequence` under the same lock, a folder `sequence.lock`.  Stamps rise strictly: also
when the number begins again after 999999, the clock is set back, or the file is lost.

A folder does not end with who made it, so one that is old is taken away.  Not promised: that
somebody who was stopped while holding it for longer than that has not drawn the same number; the
name of its message is then taken, and it draws another one.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.abc import Clock
from tapstore.errors import InvalidKeyError, LeaseUnavailableError
from tapstore.handoffs.names import MAX_SEQUENCE, Stamp, next_stamp, parse_id
from tapstore.handoffs.swarm import files, guard
from tapstore.handoffs.swarm.folder import Folder
from tapstore.keys import TEMP_MARK

STALE_SECONDS = 10.0
"""The scripts hold the lock for milliseconds."""

WAIT_SECONDS = 30.0

_POLL_SECONDS = 0.02
_DRAWS = 5
_MAX_BYTES = 1000
_NUMBER = re.compile(r"[0-9]{1,18}")
_NOBODY = "_from_x"


def draw(folder: Folder, clock: Clock) -> Stamp:
    """The next stamp of this worktree; its folders are there.

    Raises `LeaseUnavailableError` if somebody holds the lock all the time.
    """
    for _ in range(_DRAWS):
        with guard.alone(_guard_path(folder), clock), _locked(folder, clock) as lock:
            stamp = following(_number(folder), _last(folder), clock.time())
            # Ours first: if we die between the two, a number is left out, and no stamp returns.
            _write(folder, ".sequence.last", f"{stamp}\n")
            if _identity(lock.path) == lock.identity:
                _write(folder, "sequence", f"{stamp.sequence:06}\n")
                return stamp
    raise LeaseUnavailableError(
        f"{lock_path(folder)} was taken away {_DRAWS} times while this process was counting; see "
        "who does that, and try again"
    )


def following(number: int, last: Stamp | None, now: float) -> Stamp:
    """The stamp after `number`, which anybody counted, and `last`, which we drew."""
    at = last.at if last else int(now)
    stamp = next_stamp(Stamp(min(at, int(now)), min(number, MAX_SEQUENCE)), now)
    if last and stamp <= last:
        # The number began again, or the clock was set back.
        stamp = Stamp(last.at + (stamp.sequence <= last.sequence), stamp.sequence)
    return stamp


def lock_path(folder: Folder) -> str:
    return f"{folder.root}/sequence.lock"


def free_for_others(folder: Folder, clock: Clock) -> None:
    """Take away a lock that nobody holds any more, unless one of us is counting."""
    try:
        with guard.alone(_guard_path(folder), clock, wait_seconds=0):
            free_stale(folder)
    except LeaseUnavailableError:
        return  # it sees to that itself


def free_stale(folder: Folder) -> bool:
    """Take away the lock if who made it has died: the original scripts wait for it for ever."""
    path = lock_path(folder)
    seen = _identity(path)
    if not seen or files.now(folder.outbox_temp) - seen[1] / 1e9 < STALE_SECONDS:
        return False
    private = f"{folder.root}/{TEMP_MARK}{secrets.token_hex(8)}"
    try:
        os.rename(path, private)
    except FileNotFoundError:
        return True
    if _identity(private) != seen:
        # Taken away and made again by others between our look and the move: it goes back.
        try:
            os.rename(private, path)
        except OSError:
            pass
        return False
    try:
        os.rmdir(private)
    except OSError:
        pass  # somebody put a file into it; it bars nobody under this name
    return True


class _Lock:
    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = _identity(path)


@contextmanager
def _locked(folder: Folder, clock: Clock) -> Iterator[_Lock]:
    path = lock_path(folder)
    end = clock.monotonic() + WAIT_SECONDS
    while True:
        try:
            os.mkdir(path)
            break
        except FileExistsError:
            pass
        if free_stale(folder):
            continue
        if clock.monotonic() >= end:
            raise LeaseUnavailableError(
                f"{path} has been taken for {WAIT_SECONDS:g} s, and is not old enough to be taken "
                "away; try again, or remove it if surely nobody is sending"
            )
        clock.sleep(_POLL_SECONDS)
    lock = _Lock(path)
    try:
        yield lock
    finally:
        if _identity(path) == lock.identity:
            try:
                os.rmdir(path)
            except OSError:
                pass  # taken away just now


def _guard_path(folder: Folder) -> str:
    return f"{folder.root}/.sequence.guard"


def _number(folder: Folder) -> int:
    text = _text(f"{folder.root}/sequence")
    return int(text) if _NUMBER.fullmatch(text) else 0


def _last(folder: Folder) -> Stamp | None:
    text = _text(f"{folder.root}/.sequence.last")
    try:
        return parse_id(text + _NOBODY)[0]
    except InvalidKeyError:
        return None


def _text(path: str) -> str:
    try:
        return files.read(path, _MAX_BYTES)[0].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _write(folder: Folder, name: str, text: str) -> None:
    # Not synced: should a power failure take it back, stamps go on from a later second.
    temp = files.write_temp(folder.outbox_temp, text.encode(), durable=False)
    files.replace(temp, f"{folder.root}/{name}", durable=False)


def _identity(path: str) -> tuple[int, int] | None:
    """A folder made again under the same name has a later time, even if it gets the same inode."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
