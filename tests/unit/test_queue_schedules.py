"""Hand-offs between agents in every order, on a place that loses and delays requests.

Whatever happens: what was acknowledged as sent ends once for each recipient, and of all who say
that they completed it one is told yes.
"""

import random
from collections import Counter

import pytest
from schedules import Place, Schedule, land, run_all, run_seeds

from tapstore.errors import (
    AlreadyExistsError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.handoffs import draft
from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.inbox import Inbox
from tapstore.handoffs.queue.outbox import HandoffWarning, Outbox
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.handoffs.queue.settings import Settings
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock

ROLES = ("coder", "reviewer", "QA")
LEASE = 10.0
TROUBLE = (StoreError, OutcomeUnknownError, NotFoundError)


class World:
    """One place, and what everybody was told."""

    def __init__(self, seed, mode):
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.mode = mode
        self.late = []
        self.trouble = self.rng.choice([0, 0.05, 0.15])
        self.sent = {}
        self.completed = Counter()
        self.by = {}
        self.settings = Settings(lease_seconds=LEASE, max_attempts=1000, ageing_seconds=0)

    def inbox(self, store, role, agent):
        return Inbox(
            store, Places(role), self.settings,
            agent=agent, mode=self.mode, lease_seconds=LEASE, clock=self.clock,
        )  # fmt: skip

    def outbox(self, store):
        return Outbox(store, roles=lambda: ROLES)


def send(world, store, name):
    rng = random.Random(f"{name}{world.rng.random()}")
    sequence = Sequence(store, Places("coder"), world.clock)
    outbox = world.outbox(store)
    for _ in range(4):
        to = rng.choice(["reviewer", "QA", "reviewer,QA", "reviewer,QA,coder"])
        text = f"type: note\nto: {to}\npriority: {rng.choice(['10', '50'])}\nmessage: m\n"
        checked = draft.check(text.encode(), sender="coder", roles=ROLES, resolve=str)
        try:
            queued = outbox.send(checked, sequence)
        except (*TROUBLE, AlreadyExistsError):
            continue  # may be there or not; what is there is looked at all the same
        world.sent[str(queued.name)] = to.split(",")


def work(world, store, name, role):
    rng = random.Random(f"{name}{world.rng.random()}")
    inbox = world.inbox(store, role, name)
    for _ in range(8):
        try:
            accepted = inbox.next()
            if accepted is None:
                if rng.random() < 0.5:
                    list(world.outbox(store).deliver())
                continue
            fate = rng.random()
            if fate < 0.15:
                inbox = world.inbox(store, role, name)  # it died, and begins again
                continue
            if fate < 0.25:
                inbox.release("try another")
                continue
            if fate < 0.5:
                inbox.renew()
            note(world, role, name, inbox.done())
        except LeaseLostError:
            continue
        except (*TROUBLE, AlreadyExistsError, MailboxStateError):
            inbox = world.inbox(store, role, name)
            try:
                note(world, role, name, inbox.done())
            except (*TROUBLE, LeaseLostError, MailboxStateError, AlreadyExistsError):
                inbox = world.inbox(store, role, name)


def note(world, role, agent, completed):
    for item in completed.items:
        copy = (role, item.place.rpartition("/")[2])
        world.completed[copy] += 1
        world.by[copy] = (agent, item.attempt)


def run(seed, mode="task"):
    world = World(seed, mode)
    names = ["s1", "s2", "w1", "w2", "w3", "q1", "time"]
    schedule = Schedule(world.rng, names)

    def act(name):
        store = Place(world.store, name, schedule, world.rng, world.late, world.trouble)
        if name == "time":
            for _ in range(25):
                schedule.wait_for_turn(name)
                world.clock.advance(world.rng.choice([0.1, 1.0, LEASE * 0.6]))
        elif name.startswith("s"):
            send(world, store, name)
        else:
            work(world, store, name, "reviewer" if name.startswith("w") else "QA")

    errors = run_all(schedule, act, names)
    assert errors == []
    while world.late:
        land(world.store, world.late.pop())
    drain(world)
    judge(world)


def drain(world):
    """Agents that nothing happens to do what is left."""
    for _ in range(3):
        world.clock.advance(200)
        list(world.outbox(world.store).deliver())
        for role in ROLES:
            inbox = world.inbox(world.store, role, f"last-{role}")
            while inbox.next() is not None:
                note(world, role, f"last-{role}", inbox.done())


def judge(world):
    assert [copy for copy, count in world.completed.items() if count > 1] == [], "told yes twice"
    keys = [info.key for info in world.store.list("handoffs/")]
    assert [key for key in keys if "/outbox/" in key or "/new/" in key or "/failed/" in key] == []
    for name, recipients in world.sent.items():
        for role in recipients:
            record = Endings(world.store, Places(role)).record(name)
            assert record is not None, f"{name} is lost for {role}"
    for (role, name), (agent, attempt) in world.by.items():
        record = Endings(world.store, Places(role)).record(name)
        assert record.headers[records.AGENT] == agent
        assert records.number_of(record) == attempt


@pytest.mark.filterwarnings(f"ignore::{HandoffWarning.__module__}.HandoffWarning")
@pytest.mark.parametrize("mode", ["task", "batch"])
@pytest.mark.parametrize(
    "seeds", [pytest.param(range(60)), pytest.param(range(60, 10_000), marks=pytest.mark.soak)]
)
def test_what_was_sent_ends_once_for_each_recipient_whatever_happens(seeds, mode):
    run_seeds(lambda seed: run(seed, mode), seeds)
