"""Queues to hold hand-offs against: what a user would have instead."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import tapstore
from benchmarks.places import Place
from tapstore.handoffs.queue import opening
from tapstore.stores.local import LocalStore

OURS = "tapstore"
ORIGINAL = "original way"
SQLITE = "SQLite"

DRAFT = b"type: note\nto: reviewer\npriority: 50\nmessage: something of eighty characters at most\n"


class Queue(Protocol):
    """One sender and one receiver."""

    def send(self) -> object: ...
    def next(self) -> object:
        """None if nothing waits."""

    def done(self) -> object: ...


class Ours:
    """Hand-offs in a session."""

    def __init__(self, place: Place) -> None:
        folder = place.new_directory() / "session"
        store = LocalStore(folder, durability="full" if place.fsync else "none")
        self.session = tapstore.create(store, roles=["coder", "reviewer"])
        self._sender = opening.open(self.session, role="coder", agent="c")
        self._receiver = opening.open(self.session, role="reviewer", agent="r")
        self.next: Callable[[], object] = self._receiver.next
        self.done: Callable[[], object] = self._receiver.done

    def send(self) -> object:
        return self._sender.send(DRAFT)


class Original:
    """What the original scripts and their daemon do with files, in plain Python.

    Where writes are to be durable each file and each folder is synced, as it would have to be.
    """

    def __init__(self, place: Place) -> None:
        self.folder = place.new_directory()
        self._fsync = place.fsync
        self._number = 0
        self._current = ""
        for name in ("tmp", "outbox", "sent", "new", "in_process", "completed"):
            (self.folder / name).mkdir()

    def send(self) -> None:
        self._number += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"50_{stamp}_{self._number:06}_from_coder_to_reviewer.handoff"
        text = DRAFT.decode() + f"created_at: {stamp}\n\nbody\n"
        self._write(self.folder / "tmp" / name, text)
        self._move(self.folder / "tmp" / name, self.folder / "outbox" / name)
        copy = text.replace("\n\n", f"\nenqueued_at: {stamp}\n\n", 1)
        self._write(self.folder / "new" / name, copy)
        self._move(self.folder / "outbox" / name, self.folder / "sent" / name)

    def next(self) -> object:
        names = sorted(os.listdir(self.folder / "new"))
        if not names:
            return None
        os.listdir(self.folder / "in_process")
        self._current = names[0]
        path = self.folder / "in_process" / names[0]
        self._move(self.folder / "new" / names[0], path)
        self._add(path, "dequeued_at")
        return path

    def done(self) -> None:
        path = self.folder / "in_process" / self._current
        self._add(path, "completed_at")
        self._move(path, self.folder / "completed" / self._current)

    def _add(self, path: Path, header: str) -> None:
        text = path.read_text()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        beside = path.with_name(".headers.tmp")
        self._write(beside, text.replace("\n\n", f"\n{header}: {now}\n\n", 1))
        os.replace(beside, path)

    def _write(self, path: Path, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)
            if self._fsync:
                file.flush()
                os.fsync(file.fileno())

    def _move(self, source: Path, target: Path) -> None:
        os.rename(source, target)
        if self._fsync:
            fd = os.open(target.parent, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


class Sqlite:
    """A table on one host; a bucket or several hosts it can't serve."""

    def __init__(self, place: Place) -> None:
        self._db = sqlite3.connect(place.new_directory() / "queue.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if place.fsync else 'OFF'}")
        self._db.execute(
            "CREATE TABLE queue (priority INT, id INTEGER PRIMARY KEY, state TEXT, message BLOB, "
            "enqueued REAL, dequeued REAL, completed REAL)"
        )
        self._db.execute("CREATE INDEX waiting ON queue (state, priority, id)")
        self._current = 0

    def send(self) -> None:
        self._db.execute(
            "INSERT INTO queue (priority, state, message, enqueued) VALUES (50, 'new', ?, ?)",
            (DRAFT, time.time()),
        )

    def next(self) -> object:
        found = self._db.execute(
            "UPDATE queue SET state = 'in_process', dequeued = ? WHERE id = (SELECT id FROM queue "
            "WHERE state = 'new' ORDER BY priority, id LIMIT 1) RETURNING id",
            (time.time(),),
        ).fetchone()
        if found is not None:
            self._current = found[0]
        return found

    def done(self) -> None:
        self._db.execute(
            "UPDATE queue SET state = 'completed', completed = ? WHERE id = ?",
            (time.time(), self._current),
        )


QUEUES: dict[str, Callable[[Place], Queue]] = {
    OURS: Ours, ORIGINAL: Original, SQLITE: Sqlite,
}  # fmt: skip
