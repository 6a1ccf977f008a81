"""What one worktree sends: queued whole, tried again while it can't be delivered, kept afterwards.

Beside a message in `outbox/` may be `<name>.retry` (how often it was tried in vain, and when it is
tried next), beside one in `failed/` is `<name>.error`, the reason.

Nothing here decides whether a message can be delivered.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from tapstore.abc import Clock
from tapstore.errors import FormatError, NotFoundError
from tapstore.handoffs import message as messages
from tapstore.handoffs.draft import Draft
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import HandoffName, Stamp
from tapstore.handoffs.swarm import files, sequence
from tapstore.handoffs.swarm.folder import Folder

LONGEST_PAUSE_SECONDS = 60.0

RETRY = ".retry"
ERROR = ".error"

_MAX_NOTE_BYTES = 64 * 1024
_MAX_REASON = 2000
_DRAWS = 100
_PREFIX = re.compile(r"[0-9TZ:.\-]{16,40}_(?:[0-9]+_)?(?=[0-9]{2}_[0-9]{8}T)")


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a delivery was tried in vain, why, and when it is tried next."""

    count: int = 0
    next_at: float = 0.0
    reason: str = ""
    waiting: tuple[str, ...] = ()
    """Recipients who had no copy yet."""

    def is_due(self, now: float) -> bool:
        # A time beyond the longest pause was written by a clock that is wrong, or by nobody.
        return not now < self.next_at <= now + LONGEST_PAUSE_SECONDS

    def again(self, now: float, reason: str, waiting: tuple[str, ...] = ()) -> Tries:
        count = self.count + 1
        pause = min(2.0 ** min(count - 1, 10), LONGEST_PAUSE_SECONDS)
        return Tries(count, now + pause, reason[:_MAX_REASON], waiting)


def queue(where: Folder, checked: Draft, clock: Clock) -> tuple[HandoffName, Message]:
    """Put a message into the outbox, under a name and an id that no other has."""
    for _ in range(_DRAWS):
        stamp = sequence.draw(where, clock)
        name, message = checked.message(stamp, created_at=clock.time())
        temp = files.write_temp(where.outbox_temp, messages.render(message))
        if files.create(temp, f"{where.outbox}/{name}"):
            return name, message
    raise FormatError(f"{where.root}/sequence counts numbers that are all taken; write 0 into it")


def tries(where: Folder, name: str) -> Tries:
    """What is noted; none if nothing is, or nothing that can be read."""
    try:
        data, _ = files.read(f"{where.outbox}/{name}{RETRY}", _MAX_NOTE_BYTES)
        found = json.loads(data)
        count, next_at, reason = found["tries"], found["next"], found["reason"]
        waiting = found["waiting"]
        if not (isinstance(count, int) and 0 < count < 1 << 31 and isinstance(reason, str)):
            return Tries()
        if not math.isfinite(next_at) or not isinstance(waiting, list):
            return Tries()
    except (OSError, FormatError, ValueError, LookupError, TypeError, RecursionError):
        # It only says how long to wait: without it, a delivery is tried at once.
        return Tries()
    return Tries(count, float(next_at), _one_line(reason), tuple(map(str, waiting)))


def note_tries(where: Folder, name: str, noted: Tries) -> None:
    data = json.dumps(
        {
            "tries": noted.count,
            "next": noted.next_at,
            "reason": noted.reason,
            "waiting": noted.waiting,
        }
    )
    try:
        temp = files.write_temp(where.outbox_temp, data.encode(), durable=False)
        files.replace(temp, f"{where.outbox}/{name}{RETRY}", durable=False)
    except OSError:
        # The disk may be full, which may be why it is tried again: then it is, sooner.
        return


def close(where: Folder, name: str) -> str:
    """Move a message that all recipients have to `sent/`; returns its path there.

    Raises `FileNotFoundError` if somebody else has done it.
    """
    path = _archive(where, name, where.sent)
    files.remove(f"{where.outbox}/{name}{RETRY}")
    return path


def fail(where: Folder, name: str, reason: str) -> str:
    """Move a message that can never be delivered to `failed/`, with the reason beside it.

    Raises `FileNotFoundError` if somebody else has done it.
    """
    target = _free(where.failed, name)
    # First the reason: one without a message is written again, a message never lacks its own.
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in reason)
    temp = files.write_temp(where.outbox_temp, f"{text}\n".encode())
    files.replace(temp, f"{target}{ERROR}")
    try:
        files.move(f"{where.outbox}/{name}", target)
    except FileNotFoundError:
        if not files.exists(target):
            files.remove(f"{target}{ERROR}")
        raise
    files.remove(f"{where.outbox}/{name}{RETRY}")
    return target


def why_failed(where: Folder, name: str) -> str:
    """The reason beside a message in `failed/`; the original daemon leaves it in `outbox/`."""
    for path in (f"{where.failed}/{name}{ERROR}", f"{where.outbox}/{name}{ERROR}"):
        try:
            data, _ = files.read(path, _MAX_NOTE_BYTES)
        except (OSError, FormatError):
            continue
        return _one_line(data.decode("utf-8", "replace"))
    return "no reason was left with it"


def queue_again(where: Folder, name: str) -> str:
    """Move a message from `failed/` back to the outbox; returns its name there.

    Raises `NotFoundError`, and `FileExistsError` if one of its name is there.
    """
    plain = plain_name(name)
    files.remove(f"{where.outbox}/{plain}{RETRY}")
    try:
        files.move(f"{where.failed}/{name}", f"{where.outbox}/{plain}")
    except FileNotFoundError as exc:
        raise NotFoundError(f"{where.failed}/{name} is not there any more") from exc
    for path in (f"{where.failed}/{name}{ERROR}", f"{where.outbox}/{name}{ERROR}"):
        files.remove(path)
    return plain


def plain_name(name: str) -> str:
    """The name of a message without what was put before it because the name was taken."""
    return _PREFIX.sub("", name, count=1)


def _archive(where: Folder, name: str, target: str) -> str:
    path = _free(target, name)
    files.move(f"{where.outbox}/{name}", path)
    return path


def _free(target: str, name: str) -> str:
    """A path that is not taken: nothing that was kept is ever overwritten."""
    path = f"{target}/{name}"
    number = 0
    while files.exists(path):
        number += 1
        prefix = Stamp(int(files.now(target)), 0).__str__()[:16]
        path = f"{target}/{prefix}_{number}_{name}"
    return path


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MAX_REASON]
