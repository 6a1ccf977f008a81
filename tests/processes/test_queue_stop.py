"""A process that uses hand-offs is stopped before each of its steps, and goes on after the others.

Who comes too late is told so; nothing is completed twice, lost, or brought back.
"""

import pytest

from tapstore.errors import LeaseLostError
from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.queue import records
from tapstore.stores.local import LocalStore
from tests.processes.queue_steps import Steps
from tests.processes.steps import Stopped

TOO_LATE = LeaseLostError.__name__
NOTHING = MailboxStateError.__name__


@pytest.fixture
def stopped(tmpfs_path):
    return Steps(tmpfs_path).stopped


def waiting_for(role):
    def prepare(world):
        for message in ("a", "b"):
            world.send(role, message)

    return prepare


def accepted_by(agent, role="reviewer"):
    def prepare(world):
        waiting_for(role)(world)
        world.box(role, agent).next()

    return prepare


def take_and_complete(role):
    def action(world):
        box = world.box(role, "late")
        if box.next() is not None:
            world.done(box)

    return action


def complete(role):
    return lambda world: world.done(world.box(role, "late"))


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_who_is_stopped_while_accepting_and_completing_is_overtaken_and_told(stopped, role):
    outcomes = set()
    for world, late in stopped(waiting_for(role), take_and_complete(role)):
        world.pass_time()
        world.work_off(role, "fast")
        outcomes.add(late.outcome().partition(":")[0])
        world.pass_time()
        world.work_off(role, "fast")
        assert world.completed(role) == ["a", "b"]
    assert outcomes == {"done", TOO_LATE}


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_of_a_late_one_and_who_took_over_the_first_to_complete_is_the_only_one(stopped, role):
    """The other has accepted only when the late one goes on."""
    outcomes = set()
    for world, late in stopped(accepted_by("late", role), complete(role)):
        world.pass_time()
        fast = world.box(role, "fast")
        taken = fast.next() is not None
        told = late.outcome().partition(":")[0]
        assert told in ("done", NOTHING, TOO_LATE)
        if taken:
            try:
                world.done(fast)
            except LeaseLostError:
                outcomes.add((told, TOO_LATE))
            else:
                outcomes.add((told, "done"))
        world.pass_time()
        world.work_off(role, "fast")
        assert world.completed(role) == ["a", "b"]
    assert ("done", TOO_LATE) in outcomes
    assert (TOO_LATE, "done") in outcomes
    assert (TOO_LATE, TOO_LATE) not in outcomes


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_who_is_stopped_while_giving_back_takes_nothing_from_the_next_one(stopped, role):
    def give_back(world):
        world.box(role, "late").release("tired")

    for world, late in stopped(accepted_by("late", role), give_back):
        world.pass_time()
        fast = world.box(role, "fast")
        taken = fast.next()
        assert late.outcome().partition(":")[0] in ("done", TOO_LATE)
        if taken is not None:
            world.done(fast)
        world.pass_time()
        world.work_off(role, "fast")
        assert world.completed(role) == ["a", "b"]


def test_who_is_stopped_while_renewing_does_not_get_the_work_back(stopped):
    def renew(world):
        world.box("reviewer", "late").renew()

    told = set()
    for world, late in stopped(accepted_by("late"), renew):
        world.pass_time()
        fast = world.box("reviewer", "fast")
        accepted = fast.next()
        told.add(late.outcome().partition(":")[0])
        (item,) = accepted.items
        assert (item.message.headers["message"], item.attempt) == ("a", 2)
        with pytest.raises(LeaseLostError):
            world.box("reviewer", "late").renew()
        world.done(fast)
        with pytest.raises(LeaseLostError):
            world.box("reviewer", "late").done()
        world.pass_time()
        world.work_off("reviewer", "fast")
        assert world.completed("reviewer") == ["a", "b"]
    assert told == {"done", TOO_LATE}


@pytest.mark.parametrize("recipients", ["reviewer", "coder,reviewer,QA"])
def test_who_is_stopped_while_sending_sends_once_though_others_deliver(stopped, recipients):
    roles = recipients.split(",")
    for world, late in stopped(
        lambda world: world.send(recipients, "before"), lambda world: world.send(recipients, "late")
    ):
        world.send(recipients, "meanwhile")
        list(world.box("QA").deliver())
        for role in roles:
            world.work_off(role)
        assert late.outcome() == "done"
        list(world.box("QA").deliver())
        for role in roles:
            world.work_off(role)
            assert sorted(world.completed(role)) == ["before", "late", "meanwhile"]


def test_a_delivery_that_sleeps_while_all_is_done_brings_nothing_back(stopped):
    resurrected = 0
    for world, late in stopped(
        lambda world: world.queue("coder,reviewer,QA", "once"),
        lambda world: list(world.box("coder").deliver()),
    ):
        list(world.box("QA").deliver())
        for role in ("coder", "reviewer", "QA"):
            world.work_off(role)
        assert late.outcome() == "done"
        resurrected += len(world.keys("/new/"))
        assert world.keys("/outbox/") == []
        for role in ("coder", "reviewer", "QA"):
            assert world.work_off(role) == []
            assert world.completed(role) == ["once"]
    assert resurrected > 0  # or nobody was stopped where it matters


def test_a_refusal_that_sleeps_while_another_refuses_leaves_one_with_its_reason(stopped):
    def prepare(world):
        name = world.queue("reviewer,QA", "never")
        key = f"handoffs/coder/outbox/{name}"
        data = world.store.get(key).data
        world.store.delete(key)
        world.store.put(key, data.replace(b"to: reviewer,QA", b"to: reviewer,gone"))

    for world, late in stopped(prepare, lambda world: list(world.box("coder").deliver())):
        list(world.box("QA").deliver())
        assert late.outcome() == "done"
        (entry,) = world.box("coder").entries()
        assert (entry.standing, "gone" in entry.reason) == ("failed", True)
        assert world.keys("/new/") == []


def test_a_burial_that_sleeps_does_not_bury_what_was_completed_meanwhile(stopped):
    def prepare(world):
        world.send("reviewer", "a")
        for number in range(3):
            world.slow = world.box("reviewer", f"slow{number}")
            world.slow.next()
            world.pass_time()

    ends = set()
    for world, late in stopped(prepare, lambda world: world.box("reviewer", "late").next()):
        try:
            world.done(world.slow)
        except LeaseLostError as exc:
            told = str(exc)
        else:
            told = "done"
        assert late.outcome() == "done"
        (name,) = world._names("reviewer")
        dead = records.is_dead(world.record("reviewer", name))
        assert dead == ("is dead" in told)
        assert bool(world.keys("/dead/")) == dead
        if dead:
            history = world.record("reviewer", name).headers[records.HISTORY]
            assert [each.split(" at ")[0] for each in history.split("; ")] == [
                "1: slow0", "2: slow1", "3: slow2",
            ]  # fmt: skip
        ends.add(dead)
    assert ends == {True, False}


def test_a_retry_that_sleeps_while_another_retries_sends_the_dead_letter_once(stopped):
    def prepare(world):
        world.send("reviewer", "again")
        for number in range(3):
            world.box("reviewer", f"dead{number}").next()
            world.pass_time()
        assert world.box("reviewer", "a1").next() is None

    def retry(world):
        name = world._names("reviewer")[0]
        world.box("reviewer").retry(name)

    for world, late in stopped(prepare, retry):
        retry(world)
        assert world.work_off("reviewer") == [["again"]]
        assert late.outcome() == "done"
        assert world.work_off("reviewer") == []
        assert world.completed("reviewer") == ["again"]
        retry(world)
        assert world.work_off("reviewer") == []


def test_a_folder_that_is_removed_as_empty_keeps_nobody_from_writing_into_it(tmpfs_path):
    """At whatever step: what was written may have been taken out of it already."""
    key = "new/50/04/51/29/m"
    step, was_stopped, taken = 0, True, 0
    while was_stopped:
        step += 1
        store = LocalStore(tmpfs_path / str(step))
        store.put("new/50/04/50/m", b"earlier")
        late = Stopped(step, lambda store=store: store.put(key, b"m"))
        was_stopped = late.stopped
        if [info.key for info in store.list("new/50/04/51/")] == [key]:
            store.delete(key)
            taken += 1
        for path in (tmpfs_path / str(step)).rglob(".tapstore-tmp-*"):
            if path.stat().st_nlink > 1:
                path.unlink()
        store.drop_empty_folders(key, below="new/")
        assert late.outcome() == "done"
    assert taken > 3
