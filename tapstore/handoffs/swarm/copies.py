"""One copy of a message for one recipient, wherever that recipient has moved it since.

The same id to the same recipient is one message: it is looked for where it waits, is in process
and is completed, alone or in a batch, before a copy is made *and* after.  Messages only ever move
forward, and are looked for in that order, so none slips through between two looks.

Those of us who deliver take turns at an inbox (`guard`).  What remains: where that is not possible,
and beside the original daemon, somebody may deliver, and the recipient complete, between our look
and our copy, which then lies in `new/` until we look again.  `inbox` looks once more before it
accepts; the original scripts do not, and may get it twice then.  What was pruned is not found: that
is the window within which a delivery may be interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tapstore.abc import Clock
from tapstore.errors import FormatError
from tapstore.handoffs import message as messages
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import Stamp, name_for, parse_id
from tapstore.handoffs.swarm import files, folder, guard, letters
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.letters import Letter
from tapstore.handoffs.swarm.roles import Role

Stage = Literal["new", "in_process", "completed"]

WAIT_SECONDS = 2.0
"""For whoever is delivering to the same inbox.  It takes milliseconds, and can be done later."""

_DAY = 24 * 3600
_RACES = 20


class CopyConflictError(FormatError):
    """Something else has the name that a copy must have: it can never be delivered as it is."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A recipient's copy, where it lies now."""

    stage: Stage
    letter: Letter


@dataclass(frozen=True, slots=True)
class Target:
    """What has to be done for one recipient."""

    role: Role
    folder: Folder
    have: bool = False
    """It has its copy already."""

    name: str = ""
    """What its copy will be called."""

    repair: bool = False
    """A half-written copy is in the way that nobody is writing any more."""

    wait: str = ""
    """Why nothing can be done yet."""


def plan(role: Role, where: Folder, name: str, message: Message) -> Target:
    """What has to be done so that `role` has a copy of `message`, whose file is called `name`.

    Raises `CopyConflictError` and `OSError`.
    """
    own = own_name(message, role.name)
    free = name
    for candidate in dict.fromkeys((name, own)):
        for copy in _at(where, candidate, message, role.mode):
            verdict = _judge(copy, role.name, message, where)
            if verdict == "theirs":
                # Roles that share a worktree share its inbox: each has a copy of its own there.
                free = own
                continue
            if verdict == "unfinished":
                reason = f"{copy.letter.path} looks as if somebody were still writing it"
                return Target(role, where, wait=reason)
            if verdict == "left":
                return Target(role, where, name=candidate, repair=True)
            return Target(role, where, have=True)
    return Target(role, where, name=free)


def give(target: Target, name: str, message: Message, clock: Clock) -> bool:
    """Make the copy now, of what is called `name`; False if the recipient turned out to have it.

    Raises `CopyConflictError`, and `OSError` for what may pass.
    """
    role, where = target.role, target.folder
    copy = messages.render(messages.deliver(message, recipient=role.name, at=clock.time()))
    with guard.alone(f"{where.inbox}/.deliver", clock, wait_seconds=WAIT_SECONDS):
        for _ in range(_RACES):
            # Again: since the first look, another one may have delivered.
            target = plan(role, where, name, message)
            if target.have:
                return False
            if target.wait:
                raise OSError(target.wait)
            temp = files.write_temp(where.inbox_temp, copy)
            path = f"{where.new}/{target.name}"
            if target.repair:
                files.replace(temp, path)
            if target.repair or files.create(temp, path):
                return not _withdraw_if_doubled(target, name, message)
    raise OSError(f"{where.new}/{name} comes and goes")


def find(role: Role, where: Folder, name: str, message: Message) -> Copy | None:
    """The copy of `role`, the furthest if there are several."""
    found = None
    for candidate in dict.fromkeys((name, own_name(message, role.name))):
        for copy in _at(where, candidate, message, role.mode):
            if _is_of(copy.letter.message, role.name, message):
                found = copy
    return found


def further(role: Role, where: Folder, name: str, message: Message) -> Copy | None:
    """The copy in process or completed of what waits in `new/` under this name."""
    for candidate in candidates(name, message, role.name):
        for copy in _at(where, candidate, message, role.mode, new=False):
            if _is_of(copy.letter.message, role.name, message):
                return copy
    return None


def candidates(name: str, message: Message, role: str) -> tuple[str, ...]:
    """The names that a copy for `role` may have: that of the original, and one of its own."""
    stamp, sender = parse_id(message.id)
    whole = str(name_for(message.priority, stamp, sender, message.recipients))
    return tuple(dict.fromkeys((name, whole, own_name(message, role))))


def own_name(message: Message, role: str) -> str:
    """The name of a copy in an inbox where another role's copy has that of the message."""
    stamp, sender = parse_id(message.id)
    return str(name_for(message.priority, stamp, sender, [role]))


def _withdraw_if_doubled(target: Target, name: str, message: Message) -> bool:
    """Look again now that there is a copy; True if it was one too many, and is gone.

    Only what waits is removed, and never all there is: one that is further stays, else the one
    that has the name of the message, whoever made it.  So of two who look at once neither removes
    what the other leaves.
    """
    ours = f"{target.folder.new}/{target.name}"
    for _ in range(_RACES):
        waiting = []
        is_further = False
        for candidate in dict.fromkeys((name, own_name(message, target.role.name))):
            for copy in _at(target.folder, candidate, message, target.role.mode):
                if _is_of(copy.letter.message, target.role.name, message):
                    is_further = is_further or copy.stage != "new"
                    if copy.stage == "new":
                        waiting.append(copy.letter.path)
        extra = waiting if is_further else waiting[1:]
        removed = [files.remove(path) for path in extra]
        # One that was gone was accepted meanwhile, or removed by who saw the same.
        if all(removed):
            return ours in extra
    return False


def _at(
    where: Folder, name: str, message: Message, mode: str, *, new: bool = True
) -> Iterator[Copy]:
    """Whatever has this name in the inbox, in the order in which a message moves."""
    if new:
        yield from _read("new", where.new, name)
    yield from _read("in_process", where.in_process, name)
    for batch in folder.batches(where.in_process):
        yield from _read("in_process", f"{where.in_process}/{batch}", name)
    yield from _read("completed", where.completed, name)
    # Listing what was completed takes longer and longer: a role that takes one message at a time
    # needs it only if it has had batches before.
    if mode == "batch" or folder.has_folders(where.completed):
        stamp, _ = parse_id(message.id)
        earliest = f"{folder.BATCH}{Stamp(max(stamp.at - _DAY, 0), 0)}"[: len("batch_") + 16]
        for batch in _later(where.completed, earliest):
            yield from _read("completed", f"{where.completed}/{batch}", name)


def _later(where: str, earliest: str) -> Iterator[str]:
    """Folders of batches accepted after a message was made; clocks may differ by a day."""
    try:
        found = os.listdir(where)
    except FileNotFoundError:
        return
    for batch in found:
        if batch.startswith(folder.BATCH) and batch >= earliest and folder.is_plain(batch):
            yield batch


def _read(stage: Stage, where: str, name: str) -> Iterator[Copy]:
    path = f"{where}/{name}"
    if os.path.lexists(path):
        letter = letters.read(path)
        if letter is not None:
            yield Copy(stage, letter)


def _judge(
    copy: Copy, role: str, message: Message, where: Folder
) -> Literal["ours", "theirs", "unfinished", "left"]:
    letter = copy.letter
    found = letter.message
    if found is not None and letters.are_copies(found, message):
        return "ours" if _is_of(found, role, message) else "theirs"
    if letter.torn:
        if letter.is_being_written(_clock_of(where)):
            return "unfinished"
        if copy.stage == "new" and letters.is_beginning_of(letter.data, message):
            return "left"
    what = f"it is hand-off {found.id} with other content" if found else letter.fault
    raise CopyConflictError(
        f"a copy for {role} is in the way that is not the same message: {letter.path}: {what}; "
        "look at both, remove the wrong one, and retry"
    )


def _is_of(found: Message | None, role: str, message: Message) -> bool:
    if found is None or found.id != message.id:
        return False
    # One that says nothing can only be meant for the first.
    return (found.recipient or message.recipients[0]) == role


def _clock_of(where: Folder) -> Callable[[], float]:
    return lambda: files.now(where.inbox_temp)
