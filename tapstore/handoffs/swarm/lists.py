"""What the folders of a swarm hold, for who wants to know: lists, single messages, receipts.

Nothing is changed here.  Files that are no messages are listed with the reason.

Not promised: one moment.  A message that moves meanwhile is found, since it moves forward and is
looked for in that order; in a list it may be there twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tapstore.errors import FormatError, InvalidKeyError, NotFoundError
from tapstore.handoffs.mailbox import Entry, Item, Receipt, Standing
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import is_name, parse_id
from tapstore.handoffs.swarm import copies, folder, letters, outbox
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.inbox import in_process
from tapstore.handoffs.swarm.letters import Letter
from tapstore.handoffs.swarm.roles import Role, Roster


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of this role where its own copy lies."""

    letter: Letter
    standing: Standing
    """`queued`, `delivered` (all have it) or `failed`."""


def entries(role: Role, where: Folder) -> Iterator[Entry]:
    """What waits, is in process or failed, and what was queued and is not delivered."""
    for letter in _own(where.outbox, role.name, sent=True):
        noted = outbox.tries(where, letter.name)
        yield _entry(
            letter, "queued", role, attempt=noted.count, reason=noted.reason, time="created_at"
        )
    for letter in _own(where.new, role.name, sent=False):
        yield _entry(letter, "delivered", role, time="enqueued_at")
    for letter in _in_process(role, where):
        yield _entry(letter, "accepted", role, attempt=1, time="dequeued_at")
    for letter in _own(where.failed, role.name, sent=True):
        reason = outbox.why_failed(where, letter.name)
        yield _entry(letter, "failed", role, reason=reason)
    yield from _odd(role, where)


def current(role: Role, where: Folder) -> Iterator[Item]:
    """What is in process, alone or in a batch."""
    for letter in _in_process(role, where):
        if letter.message is not None:
            yield Item(letter.path, letter.message)


def _in_process(role: Role, where: Folder) -> Iterator[Letter]:
    batches = [f"{where.in_process}/{batch}" for batch in folder.batches(where.in_process)]
    for place in (where.in_process, *batches):
        yield from _own(place, role.name, sent=False)


def find(role: Role, where: Folder, wanted: str) -> Item:
    """The message of this name or id, own or received.

    Raises `NotFoundError`, or `InvalidKeyError` for what is neither.
    """
    check_wanted(wanted)
    completed = [f"{where.completed}/{batch}" for batch in folder.batches(where.completed)]
    started = [f"{where.in_process}/{batch}" for batch in folder.batches(where.in_process)]
    for place in (
        *(where.outbox, where.new, where.in_process, *started, where.completed, *completed),
        *(where.sent, where.failed),
    ):
        for letter in _named(place, wanted):
            message = letter.message
            if message and (message.sender == role.name or message.recipient == role.name):
                return Item(letter.path, message)
    raise NotFoundError(f"no hand-off {wanted!r} of {role.name} is below {where.root}")


def find_sent(role: Role, where: Folder, wanted: str, *, failed: bool = False) -> Sent:
    """A message that this role has sent, or tried to, only those that `failed` if so.

    Raises as `find`.
    """
    check_wanted(wanted)
    places: tuple[tuple[str, Standing], ...] = (
        (where.outbox, "queued"),
        (where.sent, "delivered"),
        (where.failed, "failed"),
    )
    for place, standing in places:
        if failed and standing != "failed":
            continue
        for letter in _named(place, wanted):
            if letter.message and letter.message.sender == role.name:
                return Sent(letter, standing)
    what = "no failed hand-off" if failed else "sent no hand-off"
    raise NotFoundError(f"{role.name} has {what} {wanted!r} below {where.root}")


def receipts(roster: Roster, where: Folder, sent: Sent) -> tuple[Receipt, ...]:
    """What became of each recipient's copy."""
    message = sent.letter.message
    assert message is not None
    return tuple(_receipt(roster, where, sent, message, name) for name in message.recipients)


def waiting_for(role: Role) -> bool:
    """Whether a role has mail that it can start with, and nothing in process."""
    where = Folder(role.worktree)
    work = in_process(role.name, where)
    if work.singles or work.batches:
        return False
    return any(letter.is_for(role.name) for letter in letters.read_all(where.new))


def check_wanted(wanted: str) -> None:
    """Raises `InvalidKeyError` for what is neither a name nor an id."""
    if is_name(wanted) and "/" not in wanted and folder.is_plain(wanted):
        return
    try:
        parse_id(wanted)
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"it is no name of a file of a hand-off, and {exc}") from exc


def _receipt(
    roster: Roster, where: Folder, sent: Sent, message: Message, recipient: str
) -> Receipt:
    role = roster.roles.get(recipient)
    if role is not None:
        found = copies.find(role, Folder(role.worktree), sent.letter.name, message)
        if found is not None and found.letter.message is not None:
            copy = found.letter.message
            if found.stage == "completed":
                at = copy.time("completed_at")
                return Receipt(recipient, "completed", at or found.letter.modified, attempt=1)
            if found.stage == "in_process":
                at = copy.time("dequeued_at")
                return Receipt(recipient, "accepted", at or found.letter.modified, attempt=1)
            at = copy.time("enqueued_at")
            return Receipt(recipient, "delivered", at or found.letter.modified)
    name = sent.letter.name
    if sent.standing == "failed":
        reason = outbox.why_failed(where, name)
        return Receipt(recipient, "failed", sent.letter.modified, reason=reason)
    if sent.standing == "queued":
        noted = outbox.tries(where, name)
        return Receipt(recipient, "queued", message.time("created_at"), reason=noted.reason)
    reason = "its copy is not there any more: it was pruned or removed"
    if role is None:
        reason = f"{recipient} is not in the swarm any more"
    elif not os.path.isdir(role.worktree):
        reason = f"the worktree {role.worktree} is not there"
    return Receipt(recipient, "delivered", reason=reason)


def _own(place: str, role: str, *, sent: bool) -> Iterator[Letter]:
    """What this role sent from here or received here, and what nobody can read."""
    for letter in letters.read_all(place):
        message = letter.message
        if message is None or (message.sender == role if sent else letter.is_for(role)):
            yield letter


def _entry(
    letter: Letter,
    standing: Standing,
    role: Role,
    *,
    attempt: int = 0,
    reason: str = "",
    time: str = "",
) -> Entry:
    since = letter.message.time(time) if letter.message and time else None
    return Entry(
        letter.name,
        standing,
        letter.path,
        role.name,
        letter.modified if since is None else since,
        attempt=attempt,
        reason=reason if letter.message else letter.fault,
    )


def _odd(role: Role, where: Folder) -> Iterator[Entry]:
    """Files whose names can't be shown as they are: nobody takes them for messages."""
    places: tuple[tuple[str, Standing], ...] = (
        (where.outbox, "queued"),
        (where.new, "delivered"),
        (where.in_process, "accepted"),
    )
    for place, standing in places:
        for name in folder.odd(place):
            shown = ascii(name)
            try:
                modified = os.lstat(f"{place}/{name}").st_mtime
            except FileNotFoundError:
                continue
            reason = "its name has characters that cannot be printed; rename it"
            yield Entry(shown, standing, f"{place}/{shown}", role.name, modified, reason=reason)


def _named(place: str, wanted: str) -> Iterator[Letter]:
    """Messages of a folder with this name or id; the folder may keep it under a longer name."""
    for name in folder.listed(place):
        if name == wanted or name.endswith(f"_{wanted}") or f"_{wanted}_to_" in name:
            try:
                letter = letters.read(f"{place}/{name}")
            except (OSError, FormatError):
                continue
            if letter and letter.message and wanted in (letter.message.id, *_names(letter)):
                yield letter


def _names(letter: Letter) -> tuple[str, ...]:
    return (letter.name, outbox.plain_name(letter.name))
