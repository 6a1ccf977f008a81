"""Mailboxes of a session in a folder, for processes that die or stop between two of their steps."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tapstore.handoffs.mailbox import Completed
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.inbox import LEFTOVER_BATCH_SECONDS
from tapstore.handoffs.queue.places import Places
from tests.processes.steps import Stopped, killed_before_call
from tests.unit.queue_world import ROLES, World

LEASE = 60
SETTINGS = f"lease_seconds: {LEASE}\nmax_attempts: 3\nreceive: {{QA: batch}}\n"

NAMING = ("link", "rename", "replace", "unlink", "mkdir", "rmdir")
"""What changes something that others can see."""

LOOKING = ("open", *NAMING)
"""Who looks may see something else one step later."""


class FolderWorld(World):
    """A session in a folder, in which time passes when a test says so."""

    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        super().__init__(str(folder), settings)
        self.folder = folder
        self.acknowledged = folder / "acknowledged"
        self.acknowledged.touch()

    def pass_time(self, seconds: float = LEASE + 1, part: str = "in_process") -> None:
        """What was written so far is older by that."""
        at = time.time() - seconds
        for path in (self.folder / "handoffs").rglob("*"):
            if part in str(path) and path.is_file():
                os.utime(path, (at, at))

    def queue(self, to: str, message: str = "m") -> str:
        """Leave a message in the outbox of coder, of which nobody has a copy yet."""
        name = self.send(to=to, message=message)
        sent = self.store.get(Places("coder").sent(name)).data
        for key in self.keys(name):
            self.store.delete(key)
        self.store.put(f"handoffs/coder/outbox/{name}", sent)
        return name

    def done(self, box: Any) -> Completed:
        """Complete what it has in process, and write down that it was told so."""
        completed = box.done()
        with self.acknowledged.open("a") as file:
            for item in completed.items:
                name = item.place.rpartition("/")[2]
                file.write(json.dumps([box.role, name, box.agent, item.attempt]) + "\n")
        return completed

    def work_off(self, role: str, agent: str = "a1") -> list[list[str]]:
        """Do all that waits; returns the texts of what was accepted as one."""
        box = self.box(role, agent)
        texts = []
        while (accepted := box.next()) is not None:
            texts.append([item.message.headers["message"] for item in accepted.items])
            self.done(box)
        return texts

    def completed(self, role: str) -> list[str]:
        """What was completed, in the order of the queue."""
        found = [self.record(role, info) for info in self._names(role)]
        ended = [record for record in found if not records.is_dead(record)]
        return [record.headers.get("message", "?") for record in ended]

    def record(self, role: str, name: str) -> Any:
        return Endings(self.store, Places(role)).record(name)

    def _names(self, role: str) -> list[str]:
        prefix = Places(role).completed_prefix
        return sorted(
            info.key.rpartition("/")[2]
            for info in self.store.list(prefix)
            if info.key.endswith(".handoff")
        )

    def check(self) -> None:
        """Nobody was told yes twice or wrongly, and nothing is left that somebody could see."""
        told = [tuple(json.loads(line)) for line in self.acknowledged.read_text().splitlines()]
        twice = [at for at, n in Counter(each[:2] for each in told).items() if n > 1]
        assert twice == [], "told yes twice"
        for role, name, agent, attempt in told:
            record = self.record(role, name)
            assert record.headers[records.AGENT] == agent
            assert records.number_of(record) == attempt
        self.pass_time(LEFTOVER_BATCH_SECONDS + 60, "")
        for role in ROLES:
            assert self.box(role, "last").next() is None
        parts = ("/new/", "/in_process/", "/outbox/")
        assert [key for key in self.keys() if any(part in key for part in parts)] == []


class Steps:
    """Worlds in which somebody was killed, or stopped, before each of its steps in turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def _world(self, prepare: Callable[[FolderWorld], object], settings: str) -> FolderWorld:
        self._number += 1
        world = FolderWorld(self._folder / str(self._number), settings)
        prepare(world)
        return world

    def killed(
        self,
        prepare: Callable[[FolderWorld], object],
        action: Callable[[FolderWorld], object],
        settings: str = SETTINGS,
    ) -> Iterator[FolderWorld]:
        """Each world is left by who was killed; the last one by who came to the end."""
        step, killed = 0, True
        while killed:
            step += 1
            world = self._world(prepare, settings)
            killed = killed_before_call(step, lambda world=world: action(world), NAMING)
            yield world
            world.check()
            world.session.close()
        assert step > 1, "it changed nothing"

    def stopped(
        self,
        prepare: Callable[[FolderWorld], object],
        action: Callable[[FolderWorld], object],
        settings: str = SETTINGS,
    ) -> Iterator[tuple[FolderWorld, Stopped]]:
        """Who is stopped goes on when the test asks for its outcome."""
        step, was_stopped = 0, True
        while was_stopped:
            step += 1
            world = self._world(prepare, settings)
            stopped = Stopped(step, lambda world=world: action(world), LOOKING)
            was_stopped = stopped.stopped
            try:
                yield world, stopped
                world.check()
            except BaseException:
                stopped.end()
                raise
            world.session.close()
        assert step > 5, "it was not stopped where it should be"
