"""The inbox of a session: task files that wake agents, and signals of what was completed.

A task is taken by one claim at a time, never lost, and done once, whoever dies at whatever step:
the claim is decided by the session, the task's own chain of records (`taskbook`) names the claim
that has it, and the log says how that claim ended.  What is left over is finished by the next who
looks.  The format is docs/spec/inbox.md.

Not promised: that a task is done once if its file is dropped again while it is worked on.
Nothing here claims a role or runs anything; see `work`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tapstore.abc import Store
from tapstore.clock import format_time_ms
from tapstore.errors import AlreadyExistsError, FormatError, NotAllowedError
from tapstore.keys import encode_name
from tapstore.sessions.config import new_id
from tapstore.sessions.state import SessionState
from tapstore.tapfile.model import Tapfile
from tapstore.tasks import keeping, removal, taskfile
from tapstore.tasks.standing import Lookout, Seen, Standing, folder, is_left_over
from tapstore.tasks.taskbook import Aside, Done, Taken, TaskBook
from tapstore.tasks.taskfile import Task
from tapstore.types import CREATE

__all__ = ["Inbox", "Seen", "Standing", "Task", "drop", "folder", "send"]


def send(store: Store, tapfile: Tapfile, role: str, document: Mapping[str, Any]) -> str:
    """Drop a task for a role, whole and at once; returns its key.

    `document` has the fields of a task file.  Its `task_id` is the session's id unless given,
    which is what agents that know nothing of tapstore look for.  Raises `FormatError` for what
    could not be done, `NotAllowedError` if there is no such role.
    """
    if role not in tapfile.roles():
        raise NotAllowedError(
            f"session {tapfile.session_id} has no role {role!r}; its roles are "
            f"{', '.join(tapfile.roles()) or '(none)'}"
        )
    return drop(store, role, {"task_id": tapfile.session_id, **document}, delivery=new_id())


def drop(store: Store, role: str, document: Mapping[str, Any], *, delivery: str) -> str:
    """Create the file of a task.  Repeated with the same `delivery`, it is still done once."""
    own = document.get("tapstore")
    stamped = {**(own if isinstance(own, dict) else {}), "delivery": delivery}
    document = {**document, "tapstore": stamped}
    task_id = str(document.get("task_id") or "task")
    key = f"{folder(role)}/{encode_name(task_id)[:120]}~{delivery}.json"
    taskfile.check(document, key=key)
    data = msgspec.json.format(msgspec.json.encode(document))
    try:
        store.put(key, data, CREATE)
    except AlreadyExistsError:
        if store.get(key).data != data:
            raise
    return key


class Inbox:
    """The tasks of one role in one session; safe to use from several processes at once."""

    def __init__(self, state: SessionState, role: str) -> None:
        self.role = role
        self._state = state
        self._store = state.store
        self._book = TaskBook(state.store, f"{state.config.prefix}/tasks")
        self._lookout = Lookout(state, role, self._book)

    def look(self) -> list[Seen]:
        """Every task file for this role and how it stands, by name; changes nothing."""
        return self._lookout.look()

    def pending(self) -> list[Task]:
        """The tasks that can be taken now; finishes what others left unfinished on the way."""
        for prefix in self._lookout.folders:
            for moved, original in removal.unfinished(self._store, prefix):
                self._finish_removal(moved, original)
        settled = (self._settle(seen) for seen in self.look())
        return [seen.task for seen in settled if seen is not None and seen.task is not None]

    def take(self, task: Task, *, claim: str, fence: int, agent: str) -> bool:
        """Give the task to a claim of this role, which has to be alive; False: it is too late."""
        seen = self._lookout.see(task.key, self._state.peek().tapfile)
        if seen is None or seen.standing is not Standing.WAITING or seen.task is None:
            return False
        if seen.digest != task.digest:
            return False  # written anew since: another task, for the next look
        taken = Taken(
            at=self._now(),
            file=task.key,
            claim=claim,
            fence=fence,
            agent=agent,
            attempt=seen.task.attempt,
        )
        return self._book.append(seen.digest, seen.n + 1, taken)

    def settle(self, task: Task) -> None:
        """Write down how the claim that had the task ended, and put the file where it belongs."""
        seen = self._lookout.see(task.key, self._state.peek().tapfile)
        if seen is not None:
            self._settle(seen)

    def _settle(self, seen: Seen) -> Seen | None:
        """Do what is to be done about a file; returns it if the task can be taken then."""
        match seen.standing:
            case Standing.WAITING:
                if seen.ended is None or self._book.append(seen.digest, seen.n + 1, seen.ended):
                    return seen
            case Standing.FINISHED:
                self._finish(seen)
            case Standing.REFUSED:
                self._set_aside(seen)
            case Standing.UNREADABLE:
                note = f"{seen.reason}\nIt was left where it is, unread.\n"
                keeping.explain(self._store, seen.key, seen.key.rpartition("/")[2], note)
        return None

    def _finish(self, seen: Seen) -> None:
        kept = keeping.keep(self._store, seen.key, seen.data, keeping.DONE)
        if isinstance(seen.event, Taken):
            done = Done(at=self._now(), file=seen.key, claim=seen.event.claim, stamp=seen.stamp)
            # If another one was faster with it, the file is still the one that is finished.
            self._book.append(seen.digest, seen.n + 1, done)
        copy = keeping.place(seen.key, kept, keeping.DONE)
        removal.remove(self._store, seen.key, seen.stamp, copy=copy)

    def _set_aside(self, seen: Seen) -> None:
        event = seen.event
        if not (isinstance(event, Aside) and is_left_over(seen, event)):
            event = Aside(at=self._now(), file=seen.key, reason=seen.reason, stamp=seen.stamp)
            if not self._book.append(seen.digest, seen.n + 1, event):
                return
        kept = keeping.keep(self._store, seen.key, seen.data, keeping.FAILED)
        note = f"{event.reason}\nDrop it into the inbox again to have it tried.\n"
        keeping.explain(self._store, seen.key, kept, note)
        copy = keeping.place(seen.key, kept, keeping.FAILED)
        removal.remove(self._store, seen.key, seen.stamp, copy=copy)

    def _finish_removal(self, moved: str, original: str) -> None:
        def is_closed(stamp: str) -> bool:
            data = self._store.get(moved).data
            try:
                digest = taskfile.parse(data, key=original).digest
            except FormatError:
                digest = taskfile.raw_digest(original, data)
            _, event = self._book.last(digest)
            return isinstance(event, Done | Aside) and event.stamp == stamp

        removal.finish(self._store, moved, is_closed)

    def _now(self) -> str:
        return format_time_ms(self._store.now())
