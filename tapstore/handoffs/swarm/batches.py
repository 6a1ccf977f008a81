"""Batches: all that waits with the priority of the first, accepted and completed as one.

What a batch is to hold is written down beside the inbox before anything is moved; a command that
dies while it accepts leaves it to the next to move the rest.  Completing is one rename of the whole
folder.  Batches that the original scripts left half-completed are finished.

A batch that was accepted grows no more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tapstore.errors import FormatError
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.mailbox import Accepted, Completed, Item, MailboxStateError
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import Stamp
from tapstore.handoffs.swarm import files, folder, letters
from tapstore.handoffs.swarm.inbox import (
    AMBIGUOUS,
    Batch,
    Inbox,
    InProcess,
    in_process,
    other_shape,
)
from tapstore.handoffs.swarm.letters import Letter
from tapstore.keys import TEMP_MARK

STARTING_SECONDS = 2.0
"""The original scripts make a folder, and then move messages into it."""

_MAX_BYTES = 64 << 20
_LEFTOVERS = (".headers.", TEMP_MARK)


@dataclass(frozen=True, slots=True)
class _Intent:
    """What a batch is to hold."""

    batch: str
    names: tuple[str, ...]


class Batches(Inbox):
    """For a role that takes whatever waits with the priority of the first."""

    def next(self) -> Accepted | None:
        with self.alone():
            self._finish_accepting()
            work = self._current("TASK_IN_PROCESS_IS_SINGLE")
            if work.batches:
                items = tuple(self.resumed(letter) for letter in work.batches[0].letters)
                return Accepted(items, batch=work.batches[0].path, resumed=True)
            # Others may take all of it between our look and the move, but not again and again.
            for _ in range(10):
                chosen = self._chosen()
                if not chosen:
                    return None
                accepted = self._accept(chosen)
                if accepted is not None:
                    return accepted
            return None

    def done(self) -> Completed:
        with self.alone():
            self._drop_intent()
            work = self._current("CURRENT_WORK_IS_SINGLE_TASK")
            if not work.batches:
                raise MailboxStateError("NO_CURRENT_BATCH", "", exit_code=1)
            return self._complete(work.batches[0])

    @property
    def _intent_path(self) -> str:
        return f"{self.where.inbox}/.accept-{self.role.name}"

    def _current(self, single: str) -> InProcess:
        """What is in process, of the right shape."""
        work = in_process(self.role.name, self.where)
        if work.singles:
            raise MailboxStateError(
                single,
                other_shape("task"),
                places=[letter.path for letter in work.singles],
            )
        if len(work.batches) > 1:
            raise MailboxStateError(
                AMBIGUOUS,
                "multiple batches are in process; move the messages of all but one back to "
                "inbox/new",
                places=[batch.path for batch in work.batches],
            )
        for path in work.empty:
            self._remove_empty(path)
        return work

    def _remove_empty(self, path: str) -> None:
        # One that has been completed was emptied just now, and is not being filled.
        is_done = folder.is_folder(f"{self.where.completed}/{os.path.basename(path)}")
        try:
            age = files.now(self.where.inbox_temp) - os.lstat(path).st_mtime
            if age < STARTING_SECONDS and not is_done:
                raise MailboxStateError(
                    AMBIGUOUS,
                    "batch contains no tasks: another command is filling it, or died just now; "
                    "try again in some seconds",
                    places=[path],
                )
            for name in os.listdir(path):
                if name.startswith(_LEFTOVERS):
                    files.remove(f"{path}/{name}")
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise MailboxStateError(
                AMBIGUOUS,
                "batch contains no tasks, but something else; look at it, and remove the folder",
                places=[path],
            ) from exc

    def _chosen(self) -> list[Letter]:
        chosen: list[Letter] = []
        head = None
        for letter in self.startable():
            assert letter.message is not None
            # What the headers say counts; names only order.
            priority = letter.message.priority
            head = priority if head is None else head
            if priority == head:
                chosen.append(letter)
        return chosen

    def _accept(self, chosen: Sequence[Letter]) -> Accepted | None:
        number = 0
        while True:
            number += 1
            name = f"{folder.BATCH}{Stamp(int(self.clock.time()), number)}"
            path = f"{self.where.in_process}/{name}"
            if files.exists(path) or files.exists(f"{self.where.completed}/{name}"):
                continue
            self._intend(_Intent(name, tuple(letter.name for letter in chosen)))
            try:
                os.mkdir(path)
                break
            except FileExistsError:
                continue
        return self._fill(path, chosen)

    def _fill(self, path: str, chosen: Sequence[Letter]) -> Accepted | None:
        at = self.clock.time()
        for letter in chosen:
            self.take(letter, f"{path}/{letter.name}", at)
        items = tuple(self.resumed(letter) for letter in _messages(path))
        if not items:
            os.rmdir(path)
        files.remove(self._intent_path)
        return Accepted(items, batch=path) if items else None

    def _intend(self, intent: _Intent) -> None:
        data = json.dumps({"batch": intent.batch, "messages": intent.names}).encode()
        files.replace(files.write_temp(self.where.inbox_temp, data), self._intent_path)

    def _finish_accepting(self) -> None:
        """Move what somebody who died in the middle has not moved any more."""
        intent = self._intended()
        path = f"{self.where.in_process}/{intent.batch}" if intent else ""
        if intent is None or not folder.is_folder(path):
            # Nothing was moved yet; or the original scripts have completed what was.
            files.remove(self._intent_path)
            return
        rest = []
        for name in intent.names:
            letter = letters.read(f"{self.where.new}/{name}")
            if letter and letter.is_for(self.role.name) and not files.exists(f"{path}/{name}"):
                rest.append(letter)
        self._fill(path, rest)

    def _drop_intent(self) -> None:
        """Let a batch be what is in it: the rest was shown to nobody."""
        intent = self._intended()
        if intent is not None:
            try:
                os.rmdir(f"{self.where.in_process}/{intent.batch}")
            except OSError:
                pass  # it holds something, or was not made
        files.remove(self._intent_path)

    def _intended(self) -> _Intent | None:
        try:
            found = json.loads(files.read(self._intent_path, _MAX_BYTES)[0])
            batch, listed = found["batch"], found["messages"]
        except FileNotFoundError:
            return None
        except (FormatError, ValueError, LookupError, TypeError, RecursionError):
            return None
        if not isinstance(batch, str) or not isinstance(listed, list):
            return None
        if not batch.startswith(folder.BATCH) or not _is_file_name(batch):
            return None
        return _Intent(
            batch,
            tuple(
                name
                for name in listed
                if isinstance(name, str) and names.is_name(name) and _is_file_name(name)
            ),
        )

    def _complete(self, batch: Batch) -> Completed:
        name = os.path.basename(batch.path)
        target = f"{self.where.completed}/{name}"
        at = messages.write_time(self.clock.time())
        half = folder.is_folder(target)
        if half:
            # The original moves one message after the other: it died, and the rest follows.
            taken = [one for one in batch.letters if files.exists(f"{target}/{one.name}")]
            if taken:
                raise MailboxStateError(
                    AMBIGUOUS,
                    "completed batch file already exists; compare the two, and remove the one in "
                    "process if it is the same work",
                    places=[f"{target}/{one.name}" for one in taken],
                )
            at = _completed_at(target) or at
        elif files.exists(target):
            raise MailboxStateError(
                AMBIGUOUS, "completed batch already exists, as no folder", places=[target]
            )
        items = []
        for letter in batch.letters:
            assert letter.message is not None
            # Not by `complete`: what the original wrote may have more digits than we write.
            message = Message({**letter.message.headers, "completed_at": at}, letter.message.body)
            self.write(letter.path, message)
            items.append(Item(f"{target}/{letter.name}", message))
        if half:
            for entry in os.listdir(batch.path):
                if not entry.startswith(_LEFTOVERS):
                    files.move(f"{batch.path}/{entry}", f"{target}/{entry}")
            self._remove_moved(batch.path)
        else:
            files.move(batch.path, target)
        return Completed(tuple(items), batch=target)

    def _remove_moved(self, path: str) -> None:
        for name in os.listdir(path):
            files.remove(f"{path}/{name}")
        os.rmdir(path)


def _messages(path: str) -> list[Letter]:
    return [letter for letter in letters.read_all(path) if letter.message is not None]


def _completed_at(path: str) -> str | None:
    """When the messages of a batch were completed, as it is written there."""
    for letter in _messages(path):
        if letter.message and "completed_at" in letter.message.headers:
            return letter.message.headers["completed_at"]
    return None


def _is_file_name(name: str) -> bool:
    return "/" not in name and "\0" not in name and folder.is_plain(name)
