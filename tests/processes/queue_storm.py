"""Senders and workers of hand-offs, killed and stopped at random, and what they were told.

Each process writes down what it was told when a call had returned, so a line is never about what
did not happen.  Who is killed in between has done more than it says, never less.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tapstore
from tapstore.errors import LeaseLostError
from tapstore.handoffs import names
from tapstore.handoffs.queue import opening, records
from tapstore.handoffs.queue import settings as settings_file
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.places import Places

LEASE = 2.0
ATTEMPTS = 4
SENDERS = ("coder", "coder", "lead", "lead")
WORKERS = ("reviewer",) * 4 + ("cleaner",) * 3 + ("QA",)
RECIPIENTS = ("reviewer", "cleaner", "QA")
SETTINGS = f"lease_seconds: {LEASE}\nmax_attempts: {ATTEMPTS}\nreceive: {{cleaner: batch}}\n"
POISON = "poison"


@dataclass
class Process:
    """What one of them is to do, and whether it is stopped."""

    kind: str
    role: str
    name: str
    until: float = 0.0
    """When it goes on, if it is stopped."""


@dataclass
class Storm:
    """`blows` is the time in seconds between two blows, `pause` that between two looks."""

    url: str
    folder: Path
    count: int
    chance: random.Random
    options: Mapping[str, Any] = field(default_factory=dict)
    blows: float = 1.0
    pause: float = 0.02
    running: dict[int, Process] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    started: int = 0

    def session(self) -> Any:
        return tapstore.open(self.url, storage_options=dict(self.options))

    def create(self) -> None:
        roles = sorted({*SENDERS, *RECIPIENTS})
        with tapstore.create(self.url, roles=roles, storage_options=dict(self.options)) as session:
            settings_file.save(session.store, SETTINGS.encode())

    # Processes

    def start(self, process: Process) -> None:
        """As a child without threads: clients of a place are made in it."""
        seed = self.chance.random()
        self.started += 1
        act = {"send": self.send, "work": self.work, "create": self.create_in_child}[process.kind]
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                act(process, random.Random(seed))
                status = 0
            except BaseException:
                with (self.folder / "errors").open("a") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(status)
        self.running[pid] = process

    def create_in_child(self, *_: Any) -> None:
        self.create()

    def say(self, kind: str, *what: Any) -> None:
        """One line, which is there as a whole when this returns."""
        fd = os.open(self.folder / kind, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, (json.dumps(what) + "\n").encode())
        finally:
            os.close(fd)

    def said(self, kind: str) -> list[list[Any]]:
        path = self.folder / kind
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def send(self, process: Process, chance: random.Random) -> None:
        box = opening.open(self.session(), role=process.role, agent=process.name)
        mine = sum(1 for line in self.said("sent") if line[0] == process.name)
        while mine < self.count // len(SENDERS):
            several = chance.random() < 0.1
            to = RECIPIENTS if several else (chance.choice(RECIPIENTS),)
            poison = POISON if not several and chance.random() < 0.002 else "work"
            text = f"{poison} {chance.getrandbits(64):016x}"
            text += " " + hashlib.sha256(text.encode()).hexdigest()[:16]
            priority = chance.choice(("20", "70"))
            queued = box.send(
                f"type: note\nto: {','.join(to)}\npriority: {priority}\nmessage: {text}\n".encode()
            )
            self.say("sent", process.name, str(queued.name), to)
            mine += 1

    def work(self, process: Process, chance: random.Random) -> None:
        session = self.session()
        box = opening.open(session, role=process.role, agent=process.name)
        parent = os.getppid()
        while os.getppid() == parent:
            try:
                accepted = box.next()
                if accepted is None:
                    if self.all_sent() and self.nothing_left(session.store, box):
                        return
                    time.sleep(self.pause)
                    continue
                texts = [whole(item.message) for item in accepted.items]
                if any(text.startswith(POISON) for text in texts):
                    if chance.random() < 0.5:
                        os.kill(os.getpid(), signal.SIGKILL)
                    box.release(POISON)
                    continue
                completed = box.done()
            except LeaseLostError:
                self.say("late", process.name)
                continue
            for item in completed.items:
                name = item.place.rpartition("/")[2]
                self.say("done", process.role, name, process.name, item.attempt)

    def all_sent(self) -> bool:
        return (self.folder / "all-sent").exists()

    @staticmethod
    def nothing_left(store: Any, box: Any) -> bool:
        if any(True for role in {*SENDERS} for _ in store.list(Places(role).outbox)):
            list(box.deliver())
            return False
        return next(iter(store.list(Places(box.role).new)), None) is None

    # Blows

    def run(self, seconds: float) -> None:
        """Until everything was sent and done."""
        end = time.monotonic() + seconds
        try:
            self._one(Process("create", "", ""))
            for number, role in enumerate(SENDERS):
                self.start(Process("send", role, f"s{number}"))
            for number, role in enumerate(WORKERS):
                self.start(Process("work", role, f"w{number}"))
            blow_at = time.monotonic() + self.blows
            while self.running:
                now = time.monotonic()
                assert now < end, f"{self.running} still run; {self.kinds}"
                self._collect()
                self._continue(now)
                if now >= blow_at:
                    blow_at = now + self.blows
                    self._blow(now)
                time.sleep(0.01)
        finally:
            for pid in self.running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _one(self, process: Process) -> None:
        self.start(process)
        (pid,) = self.running
        _, status = os.waitpid(pid, 0)
        del self.running[pid]
        assert status == 0, (self.folder / "errors").read_text()

    def _collect(self) -> None:
        for pid in list(self.running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            process = self.running.pop(pid)
            if status == signal.SIGKILL:
                again = self.chance.random() < 0.5 or process.kind == "send"
                name = process.name if again else f"{process.role}-{self.started}"
                self.start(Process(process.kind, process.role, name))
                continue
            assert status == 0, (self.folder / "errors").read_text()
            if not any(each.kind == "send" for each in self.running.values()):
                (self.folder / "all-sent").touch()

    def _continue(self, now: float) -> None:
        for pid, process in self.running.items():
            if process.until and now >= process.until:
                process.until = 0.0
                os.kill(pid, signal.SIGCONT)

    def _blow(self, now: float) -> None:
        pid = self.chance.choice(list(self.running))
        process = self.running[pid]
        if process.until:
            return
        if self.chance.random() < 0.4:
            os.kill(pid, signal.SIGSTOP)
            process.until = now + LEASE * self.chance.uniform(1.1, 1.6)
            self.kinds[f"stop {process.kind}"] += 1
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.kinds[f"kill {process.kind}"] += 1

    # What came of it

    def judge(self) -> None:
        errors = self.folder / "errors"
        assert not errors.exists(), errors.read_text()
        with self.session() as session:
            self._judge(session.store)

    def _judge(self, store: Any) -> None:
        told = Counter((role, name) for role, name, _, _ in self.said("done"))
        assert [copy for copy, times in told.items() if times > 1] == [], "told yes twice"
        ended = {
            (role, info.key.rpartition("/")[2])
            for role in RECIPIENTS
            for info in store.list(Places(role).completed_prefix)
        }
        found = {at: Endings(store, Places(at[0])).record(at[1]) for at in ended}
        for role, name, agent, attempt in self.said("done"):
            record = found[role, name]
            assert not records.is_dead(record)
            assert (record.headers[records.AGENT], records.number_of(record)) == (agent, attempt)
        sent = self.said("sent")
        assert len(sent) >= self.count - len(SENDERS)
        assert len({names.parse(name).id for _, name, _ in sent}) == len(sent), "an id came twice"
        lost = [(role, name) for _, name, to in sent for role in to if (role, name) not in found]
        assert lost == [], "acknowledged, and lost"
        for (role, name), record in found.items():
            text = whole(record)
            assert record.recipient == role
            assert record.id == names.parse(name).id
            if records.is_dead(record):
                assert len(record.headers[records.HISTORY].split("; ")) == ATTEMPTS, record
            else:
                assert not text.startswith(POISON)
        keys = [info.key for info in store.list("handoffs/")]
        parts = ("/new/", "/outbox/", "/failed/")
        assert [key for key in keys if any(part in key for part in parts)] == []


def whole(message: Any) -> str:
    """The text of a message, of which nothing is missing."""
    text = message.headers["message"]
    head, _, checksum = text.rpartition(" ")
    assert hashlib.sha256(head.encode()).hexdigest()[:16] == checksum, "half-read"
    assert message.body.endswith(f"\n\n{text}\n"), "half-read"
    return text
