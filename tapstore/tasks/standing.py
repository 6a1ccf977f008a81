"""How the task files of one role stand: waiting, taken, done, or not to be read.  Changes nothing.

The judgement rests on what does not change any more: records that are there, and claims that
have ended.  Whoever acts on it (`inbox`) creates the next record, and so learns whether somebody
else was faster.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from tapstore.abc import Store
from tapstore.clock import format_time_ms
from tapstore.errors import FormatError, InvalidKeyError, NotFoundError, StoreError
from tapstore.keys import decode_name, encode_name, is_key
from tapstore.sessions.state import SessionState
from tapstore.tapfile.model import Tapfile
from tapstore.tasks import fate, removal, taskfile
from tapstore.tasks.taskbook import AnyEvent, Aside, Done, Ended, Taken, TaskBook
from tapstore.tasks.taskfile import Task
from tapstore.types import GetResult, ObjectInfo

FOLDER = "inbox"

REST_SECONDS = 2.0
"""What can't be read, or may go on, may be half-written: it is judged after this long."""

_UNREADABLE = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""No permission, no regular file, a link in a circle: not a failure of the place."""


class Standing(Enum):
    """What the next who looks can do about a task file."""

    WAITING = "waiting"
    """It can be taken."""

    TAKEN = "taken"
    """A live claim has it."""

    RESTING = "resting"
    """It was written just now and may not be finished."""

    FINISHED = "finished"
    """Its claim completed: the file is to be kept as done."""

    REFUSED = "refused"
    """It is no task, or its attempts are used up: the file is to be set aside."""

    UNREADABLE = "unreadable"
    """It stays; a note says why it is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A task file and how it stands."""

    key: str
    standing: Standing
    task: Task | None = None
    """None: it could not be read as one."""

    reason: str = ""
    agent: str = ""
    """Who has it."""

    digest: str = ""
    data: bytes = b""
    stamp: str = ""
    n: int = 0
    """Number of its newest record."""

    event: AnyEvent | None = None
    """That record."""

    ended: Ended | None = None
    """The record to create next: how the claim in the newest one ended."""


def folder(role: str) -> str:
    """Where tasks for a role, and signals for a role or agent, are dropped: `inbox/coder`."""
    return f"{FOLDER}/{encode_name(role)}"


def _folders(role: str) -> tuple[str, ...]:
    """Where tasks for a role are looked for: also where a person would make its folder."""
    plain = f"{FOLDER}/{role}"
    # What has a percent sign could be the folder of another role.
    if plain == folder(role) or "%" in role or "/" in role or not is_key(plain):
        return (f"{folder(role)}/",)
    return (f"{folder(role)}/", f"{plain}/")


def for_nobody(store: Store, tapfile: Tapfile) -> Iterator[tuple[str, Seen]]:
    """What looks like a task in the folder of a role that the session does not have.

    Yields the role that is meant, and the file; nobody reads it, and it stays.
    """
    for name in store.children(f"{FOLDER}/"):
        role = decode_name(name[:-1])
        if name[-1] != "/" or name[0] == "." or role in tapfile.roles():
            continue
        for inner in filter(taskfile.is_task_name, store.children(f"{FOLDER}/{name}")):
            key = f"{FOLDER}/{name}{inner}"
            reason = f"there is no role {role!r}; the roles are {', '.join(tapfile.roles())}"
            yield role, Seen(key=key, standing=Standing.UNREADABLE, reason=reason)


class UnreadableError(Exception):
    """A file that is no task and will not be touched, with the reason."""


def read(store: Store, key: str) -> GetResult:
    """A file in an inbox.  Raises `NotFoundError`, or `UnreadableError`."""
    try:
        got = store.get(key, end=taskfile.MAX_BYTES + 1)
    except NotFoundError:
        raise
    except (InvalidKeyError, StoreError) as exc:
        if isinstance(exc, StoreError) and exc.errno not in _UNREADABLE:
            raise
        raise UnreadableError(str(exc)) from exc
    if got.info.size > taskfile.MAX_BYTES:
        raise UnreadableError(
            f"{key}: it has {got.info.size:,} bytes, a task at most {taskfile.MAX_BYTES:,}"
        )
    return got


def has_rested(store: Store, info: ObjectInfo) -> bool:
    """Whether its writer has most likely finished with a file."""
    # Also the future is far from now: a time copied along must not keep a file for ever.
    return abs(store.now() - info.modified) >= REST_SECONDS


class Lookout:
    """Looks at the task files of one role in one session."""

    def __init__(self, state: SessionState, role: str, book: TaskBook) -> None:
        self._state = state
        self._store = state.store
        self._role = role
        self._book = book
        self._own = _folders(role)
        self.folders = (*self._own, f"{FOLDER}/")

    def look(self) -> list[Seen]:
        """Every task file for this role, by name.

        Those directly in `inbox/` that can't be read, or name no role, are shown to every role.
        """
        tapfile = self._state.peek().tapfile
        found = []
        for prefix in self.folders:
            names = list(self._store.children(prefix))
            for name in filter(taskfile.is_task_name, names):
                seen = self.see(prefix + name, tapfile)
                if seen is not None:
                    found.append(seen)
            found += self._strangers(prefix, frozenset(names))
        return found

    def see(self, key: str, tapfile: Tapfile) -> Seen | None:
        """How one file stands; None if it is gone, or is for another role."""
        try:
            got = read(self._store, key)
        except NotFoundError:
            return None
        except UnreadableError as exc:
            return Seen(key=key, standing=Standing.UNREADABLE, reason=str(exc))
        seen = Seen(
            key=key,
            standing=Standing.WAITING,
            data=got.data,
            stamp=removal.stamp(got.info),
            digest=taskfile.raw_digest(key, got.data),
        )
        rested = has_rested(self._store, got.info)
        try:
            task = self._parse(key, got.data, tapfile)
        except FormatError as exc:
            if not rested:
                return replace(seen, standing=Standing.RESTING, reason=str(exc))
            return self._by_records(replace(seen, standing=Standing.REFUSED, reason=str(exc)))
        if task.role != self._role:
            return None
        seen = replace(seen, task=task, digest=task.digest)
        if not rested and not taskfile.is_whole(got.data):
            return replace(seen, standing=Standing.RESTING)
        return self._by_records(seen)

    def _parse(self, key: str, data: bytes, tapfile: Tapfile) -> Task:
        task = taskfile.parse(data, key=key)
        if task.session_id not in ("", tapfile.session_id):
            raise FormatError(
                f"{key}: it is for session {task.session_id}, but this is {tapfile.session_id}"
            )
        if key.startswith(self._own):
            if task.role not in ("", self._role):
                raise FormatError(
                    f"{key}: it lies in the inbox of {self._role}, but names the role {task.role}"
                )
            return replace(task, role=self._role)
        if task.role not in tapfile.roles():
            says = f"names the role {task.role!r}" if task.role else "names no role"
            raise FormatError(
                f"{key}: it {says}; put it into {FOLDER}/<role>/, or name one of the roles "
                f"{', '.join(tapfile.roles())}"
            )
        return task

    def _by_records(self, seen: Seen) -> Seen:
        """What its records say of a file that was read."""
        n, event = self._book.last(seen.digest)
        seen = replace(seen, n=n, event=event)
        if isinstance(event, Done | Aside) and is_left_over(seen, event):
            over = Standing.FINISHED if isinstance(event, Done) else Standing.REFUSED
            return replace(seen, standing=over)
        task = seen.task
        if task is None:
            return seen
        ended = event if isinstance(event, Ended) else None
        if isinstance(event, Taken):
            ending = fate.fate(self._state, event.claim, fence=event.fence)
            if ending == fate.LIVE:
                return replace(seen, standing=Standing.TAKEN, agent=event.agent)
            if ending == fate.COMPLETED:
                return replace(seen, standing=Standing.FINISHED)
            ended = Ended(
                at=format_time_ms(self._store.now()),
                file=seen.key,
                claim=event.claim,
                fate=ending,
                attempts=event.attempt - (ending == fate.RELEASED),
                reason=f"the claim of {event.agent} ended: {ending}",
            )
            seen = replace(seen, ended=ended)
        if ended is None:
            return seen
        limit = self._state.config.max_attempts
        if limit and ended.attempts >= limit:
            reason = f"{seen.key}: attempt {ended.attempts} of {limit}, the last; {ended.reason}"
            return replace(seen, standing=Standing.REFUSED, reason=reason)
        task = replace(task, attempt=ended.attempts + 1)
        return replace(seen, task=task, reason=ended.reason)

    def _strangers(self, prefix: str, known: frozenset[str]) -> Iterator[Seen]:
        """What looks like a task on a disk but is no object of the store, which leaves it out."""
        if not self._store.capabilities.files:
            return
        try:
            with os.scandir(self._store.local_path(prefix[:-1])) as found:
                entries = [e for e in found if taskfile.is_task_name(e.name)]
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = prefix + entry.name
            if entry.name not in known and (fault := self._fault(key, entry)):
                reason = f"{key}: {fault}"
                yield Seen(key=key, standing=Standing.UNREADABLE, reason=reason)

    def _fault(self, key: str, entry: os.DirEntry[str]) -> str:
        """Why it is no object; empty if it is one, dropped after the store was listed."""
        if not is_key(key):
            return "its name is not portable; use letters, digits, '-', '_' and '.'"
        try:
            self._store.head(key)
        except (NotFoundError, InvalidKeyError, StoreError):
            if entry.is_symlink():
                return "it is a symbolic link that leads nowhere, or out of the session"
            return "it is a folder" if entry.is_dir() else "it is no regular file"
        return ""


def is_left_over(seen: Seen, event: Done | Aside) -> bool:
    """Whether this is the very file that the record is about, and not one dropped since."""
    if event.stamp == seen.stamp:
        return True
    # What was set aside may be dropped again; what was delivered and done may only arrive again.
    delivered = seen.task is not None and taskfile.delivery(seen.task.document)
    return isinstance(event, Done) and bool(delivered)
