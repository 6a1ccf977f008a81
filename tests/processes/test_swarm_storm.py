"""Senders, deliverers and workers of one swarm are killed all the time, and start again."""

import os
import random
import signal
import time
import traceback
from contextlib import suppress
from itertools import count

import pytest

from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.swarm import opening
from tests.unit.swarm_world import Swarm, age, note, parsed

MODES = {"coder": "task", "cleaner": "task", "batcher": "batch", "lead": "task", "helper": "batch"}
SHARED = ("lead", "helper")
RECEIVERS = ("cleaner", "batcher", "lead", "helper")
PRIORITIES = ("10", "50", "90")


class Storm:
    def __init__(self, project, chance):
        self.swarm = Swarm(project, MODES, shared=SHARED)
        self.chance = chance
        self.running = {}
        """Process ids, and what they do."""

    def start(self, action):
        seed = self.chance.random()
        pid = os.fork()
        if pid == 0:
            try:
                action(random.Random(seed))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self.running[pid] = action

    def kill(self):
        pid = self.chance.choice(list(self.running))
        action = self.end(pid)
        if action == self.send:
            for path in self.swarm.project.rglob("sequence.lock"):
                age(path, 60)  # it is alone, so nobody else has it
        self.start(action)

    def end(self, pid):
        action = self.running.pop(pid)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert status == signal.SIGKILL, "it had ended of itself"
        return action

    def send(self, chance):
        box = opening.open(self.swarm.project, role="coder")
        for number in count():
            to = ",".join(chance.sample(RECEIVERS, chance.randint(1, 4)))
            box.send(note(to, f"{os.getpid()}-{number}", chance.choice(PRIORITIES)))

    def deliver(self, _):
        box = opening.open(self.swarm.project, role="coder")
        while True:
            for _ in box.deliver():
                pass

    def work(self, role):
        def action(_):
            box = opening.open(self.swarm.project, role=role)
            while True:
                if box.next() is not None:
                    # Another process of this role may have completed it.
                    with suppress(MailboxStateError, FileNotFoundError):
                        box.done()

        return action

    def calm_down(self):
        """After a while, each role works off what is left."""
        for path in self.swarm.project.rglob("*.handoff"):
            age(path, 60)
        for path in (*self.swarm.project.rglob("*.lock"), *self.swarm.project.rglob("batch_*")):
            age(path, 60)
        for path in self.swarm.project.rglob("*.retry"):
            path.unlink()
        for role in RECEIVERS:
            box = self.swarm.box(role)
            while box.next() is not None:
                box.done()


@pytest.mark.parametrize(
    ("kills", "seed"), [(60, 1), pytest.param(3000, 2, marks=pytest.mark.soak)]
)
def test_each_message_is_completed_once_by_each_recipient(tmp_path, kills, seed):
    chance = random.Random(seed)
    storm = Storm(tmp_path / "project", chance)
    swarm = storm.swarm
    for action in (storm.send, storm.deliver, storm.deliver):
        storm.start(action)
    for role in (*RECEIVERS, "cleaner"):
        storm.start(storm.work(role))
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.01, 0.08))  # when something happens is the test
            storm.kill()
    finally:
        for pid in list(storm.running):
            storm.end(pid)
    storm.calm_down()
    assert swarm.names("coder", "outbox") == swarm.names("coder", "failed") == []
    sent = [parsed(swarm.folder("coder", "sent", name)) for name in swarm.names("coder", "sent")]
    assert len({message.id for message in sent}) == len(sent)
    assert len(sent) > kills / 4
    expected = sorted((message.id, to) for message in sent for to in message.recipients)
    completed = []
    for role in ("cleaner", "batcher", "lead"):  # whose worktree is also that of `helper`
        for name in swarm.names(role, "inbox"):
            assert name.startswith("completed/")
            message = parsed(swarm.folder(role, "inbox", name))
            assert message.state == "completed"
            completed.append((message.id, message.recipient))
    assert sorted(completed) == expected
