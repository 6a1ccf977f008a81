"""What one role has to do: accepted by one command only, printed again until it is completed.

A rename is what accepts and completes; headers are written by publishing a finished file over what
was moved.  A command that dies between the two leaves a message that was accepted and does not say
when: the next one says it.  Two commands at once on one inbox take turns (`guard`), so the second
gets what the first accepted.

Files that are no messages stay where they are and bar nobody; `lists` shows them.  There are no
leases here: what was accepted stays so until the role completes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tapstore.abc import Clock
from tapstore.errors import NotAllowedError
from tapstore.handoffs import message as messages
from tapstore.handoffs.mailbox import Accepted, Completed, Item, MailboxStateError, Mode
from tapstore.handoffs.message import Message
from tapstore.handoffs.swarm import copies, files, folder, guard, letters
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.letters import Letter
from tapstore.handoffs.swarm.roles import Role

AMBIGUOUS = "AMBIGUOUS_TASK_STATE"


@dataclass(frozen=True, slots=True)
class Batch:
    """A folder in `in_process/` and the messages in it."""

    path: str
    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class InProcess:
    """What a role is at; of a shared inbox only what is its own."""

    singles: tuple[Letter, ...]
    batches: tuple[Batch, ...]
    empty: tuple[str, ...] = ()
    """Folders of batches without a file of a message; nobody can tell whose."""


def in_process(role: str, where: Folder) -> InProcess:
    singles = tuple(one for one in letters.read_all(where.in_process) if one.is_for(role))
    batches = []
    empty = []
    for name in folder.batches(where.in_process):
        path = f"{where.in_process}/{name}"
        found = tuple(one for one in letters.read_all(path) if one.message is not None)
        if any(one.is_for(role) for one in found):
            batches.append(Batch(path, found))
        elif next(folder.listed(path), None) is None and not folder.odd(path):
            empty.append(path)
    return InProcess(singles, tuple(batches), tuple(empty))


class Inbox:
    """The inbox of one role; its folders are there."""

    def __init__(self, role: Role, where: Folder, clock: Clock) -> None:
        self.role = role
        self.where = where
        self.clock = clock

    def alone(self) -> AbstractContextManager[None]:
        """While this is held, no other command of ours changes the inbox."""
        return guard.alone(f"{self.where.inbox}/.lock", self.clock)

    def startable(self) -> Iterator[Letter]:
        """What the role may accept now, in order.  What turns out to be doubled is removed."""
        for letter in letters.read_all(self.where.new):
            if not letter.is_for(self.role.name) or letter.message is None:
                continue
            if letter.is_being_written(lambda: files.now(self.where.inbox_temp)):
                continue
            double = copies.further(self.role, self.where, letter.name, letter.message)
            if double is None or double.letter.message is None:
                yield letter
            elif letters.are_copies(double.letter.message, letter.message):
                files.remove(letter.path)

    def take(self, letter: Letter, target: str, at: float) -> Message | None:
        """Move a message to `target` and note when; None if somebody else took it.

        Raises `MailboxStateError` if something has that name.
        """
        assert letter.message is not None
        message = messages.accept(self._addressed(letter.message), at=at)
        # Written before it is moved: on a full disk nothing is accepted.
        temp = files.write_temp(self.where.inbox_temp, messages.render(message))
        try:
            files.move(letter.path, target)
        except FileNotFoundError:
            files.remove(temp)
            return None
        except FileExistsError:
            files.remove(temp)
            raise MailboxStateError(
                AMBIGUOUS,
                "what would be accepted is in process already; compare the two, and remove one",
                places=(letter.path, target),
            ) from None
        files.replace(temp, target)
        return message

    def write(self, path: str, message: Message) -> None:
        """Publish what the headers of a message in process say now."""
        files.replace(files.write_temp(self.where.inbox_temp, messages.render(message)), path)

    def resumed(self, letter: Letter) -> Item:
        """What was accepted before, as it was then."""
        assert letter.message is not None
        message = letter.message
        if "dequeued_at" not in message.headers:
            message = messages.accept(self._addressed(message), at=self.clock.time())
            self.write(letter.path, message)
        return Item(letter.path, message)

    def _addressed(self, message: Message) -> Message:
        """Whose copy it is, if it did not say: from now on another role leaves it alone."""
        if message.recipient or self.role.name not in message.recipients:
            return message
        return Message({**message.headers, "recipient": self.role.name}, message.body)


class Tasks(Inbox):
    """For a role that takes one message at a time."""

    def next(self) -> Accepted | None:
        with self.alone():
            work = in_process(self.role.name, self.where)
            if work.batches:
                raise MailboxStateError(
                    "TASK_IN_PROCESS_IS_BATCH",
                    other_shape("batch"),
                    places=[batch.path for batch in work.batches],
                )
            _check_single(work.singles)
            if work.singles:
                return Accepted((self.resumed(work.singles[0]),), resumed=True)
            for letter in self.startable():
                target = f"{self.where.in_process}/{letter.name}"
                message = self.take(letter, target, self.clock.time())
                if message is not None:
                    return Accepted((Item(target, message),))
            return None

    def done(self) -> Completed:
        with self.alone():
            work = in_process(self.role.name, self.where)
            if work.batches:
                raise MailboxStateError(
                    "CURRENT_WORK_IS_BATCH",
                    other_shape("batch"),
                    places=[batch.path for batch in work.batches],
                )
            if not work.singles:
                raise MailboxStateError("NO_CURRENT_TASK", "", exit_code=1)
            _check_single(work.singles)
            letter = work.singles[0]
            assert letter.message is not None
            target = f"{self.where.completed}/{letter.name}"
            if files.exists(target):
                raise _completed_already(letter.path, target)
            message = messages.complete(letter.message, at=self.clock.time())
            self.write(letter.path, message)
            try:
                files.move(letter.path, target)
            except FileNotFoundError as exc:
                raise NotAllowedError(
                    f"{letter.path} was moved away by somebody else at this moment; see what "
                    "the inbox holds"
                ) from exc
            except FileExistsError:
                raise _completed_already(letter.path, target) from None
            return Completed((Item(target, message),))


def other_shape(held: Mode) -> str:
    """What to do when what is in process is not what was asked for."""
    return (
        f"a {'batch' if held == 'batch' else 'single task'} is in process; see it with "
        f"ready_for_next_{held}.sh or `tapstore handoff next --mode {held}`, and complete it with "
        f"done_with_current_{held}.sh or `tapstore handoff done --mode {held}`"
    )


def _check_single(singles: tuple[Letter, ...]) -> None:
    if len(singles) > 1:
        raise MailboxStateError(
            AMBIGUOUS,
            "multiple tasks are in process; move all but one back to inbox/new",
            places=[letter.path for letter in singles],
        )


def _completed_already(path: str, target: str) -> MailboxStateError:
    return MailboxStateError(
        AMBIGUOUS,
        "completed file already exists; compare the two, and remove the one in process if it is "
        "the same work",
        places=(path, target),
    )
