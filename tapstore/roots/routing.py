"""Brings tasks from the inbox of a root to the sessions that they are for.

Safe to repeat and to do by several at once: what is delivered carries an id that follows from the
file that was dropped, and a session does a delivery once, however often it arrives.  A crash at
any step leaves the file, and the next who looks goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    NotFoundError,
    SessionNotFoundError,
)
from tapstore.keys import decode_name, encode_name
from tapstore.roots import template
from tapstore.sessions.config import new_id
from tapstore.sessions.session import Session
from tapstore.tasks import inbox, keeping, removal, standing, taskfile
from tapstore.tasks.standing import FOLDER
from tapstore.tasks.taskfile import Task

if TYPE_CHECKING:
    from tapstore.roots.root import Root


def send(root: Root, role: str, document: Mapping[str, Any]) -> str:
    """Drop a task into the root's inbox; see `Root.send`."""
    if not (document.get("session_id") or document.get("task_id")):
        raise FormatError(f"a task for {root.url} has to name its session: give a session_id")
    return inbox.drop(root.store, role, document, delivery=new_id())


def keys(root: Root) -> Iterator[str]:
    """The files in the root's inbox that may be tasks."""
    for name in root.store.children(f"{FOLDER}/"):
        if name.endswith("/") and name[0] != ".":
            for inner in root.store.children(f"{FOLDER}/{name}"):
                if taskfile.is_task_name(inner):
                    yield f"{FOLDER}/{name}{inner}"
        elif taskfile.is_task_name(name):
            yield f"{FOLDER}/{name}"


def deliver(root: Root, key: str) -> None:
    """Deliver one task, or set it aside, if it can be judged now."""
    store = root.store
    try:
        got = standing.read(store, key)
    except NotFoundError:
        return
    except standing.UnreadableError as exc:
        note = f"{exc}\nIt was left where it is, unread.\n"
        keeping.explain(store, key, key.rpartition("/")[2], note)
        return
    rested = standing.has_rested(store, got.info)
    if not rested and not taskfile.is_whole(got.data):
        return
    stamp = removal.stamp(got.info)
    try:
        task = taskfile.parse(got.data, key=key)
        role = _role(task)
        session = _session(root, task)
        if role not in session.tapfile.roles():
            raise NotAllowedError(
                f"{key}: session {session.id} has no role {role!r}; its roles are "
                f"{', '.join(session.tapfile.roles())}"
            )
    except (FormatError, NotAllowedError, InvalidKeyError, SessionNotFoundError) as exc:
        if not rested:
            return
        kept = keeping.keep(store, key, got.data, keeping.FAILED)
        keeping.explain(store, key, kept, f"{exc}\nDrop it into the inbox again to try again.\n")
    else:
        arrival = f"{stamp}@{_changed(store, key)}"
        own = taskfile.delivery(task.document) or taskfile.raw_digest(arrival, got.data)[:16]
        inbox.drop(session.store, role, task.document, delivery=own)
    removal.remove(store, key, stamp)


def _changed(store: Store, key: str) -> int:
    """When the system last changed a file: no later one has that, even with the same inode, time
    and content, as `cp -p` makes them."""
    if store.capabilities.files:
        with suppress(OSError):
            return os.lstat(store.local_path(key)).st_ctime_ns
    return 0


def _role(task: Task) -> str:
    parts = task.key.split("/")
    lies_in = decode_name(parts[1]) if len(parts) == 3 else ""
    if task.role and lies_in and task.role != lies_in:
        raise FormatError(
            f"{task.key}: it lies in the inbox of {lies_in}, but names the role {task.role}"
        )
    role = task.role or lies_in
    if not role:
        raise FormatError(f"{task.key}: it names no role; put it into {FOLDER}/<role>/")
    return role


def _session(root: Root, task: Task) -> Session:
    """The session that a task is for, made from the template if there is none."""
    name = task.session_id or str(task.document.get("task_id") or "")
    if not name:
        raise FormatError(f"{task.key}: it names no session: give a session_id, or a task_id")
    try:
        return root.session(name)
    except SessionNotFoundError as exc:
        found = template.load(root.store)
        if found is None:
            raise SessionNotFoundError(
                f"{task.key}: {exc}; {template.KEYS[0]} would start one"
            ) from exc
    with suppress(AlreadyExistsError):  # another agent has just made it
        return root.create(encode_name(name), session_id=name, by="template", **found.options())
    return root.session(name)
