"""A process is killed before each of its system calls while it uses hand-offs of a session.

The next command goes on without help: nothing is lost, nothing is there twice, nothing is left.
"""

import pytest

from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.queue import records
from tests.processes.queue_steps import LEASE, Steps

ONE_TRY = f"lease_seconds: {LEASE}\nmax_attempts: 1\n"


@pytest.fixture
def killed(tmpfs_path):
    return Steps(tmpfs_path).killed


def nothing(_):
    pass


def waiting_for(role):
    def prepare(world):
        for message, priority in (("a", 20), ("b", 20), ("c", 20), ("d", 30)):
            world.send(role, message, priority)

    return prepare


def accepted_by(role):
    def prepare(world):
        waiting_for(role)(world)
        world.box(role).next()

    return prepare


# Sending


@pytest.mark.parametrize("recipients", ["reviewer", "coder,reviewer,QA"])
def test_whoever_is_killed_while_sending_has_sent_once_or_not_at_all(killed, recipients):
    outcomes = set()
    for world in killed(nothing, lambda world: world.send(recipients, "first")):
        list(world.box("QA").deliver())
        world.send(recipients, "second")
        for role in recipients.split(","):
            world.work_off(role)
            texts = world.completed(role)
            assert texts in (["second"], ["first", "second"])
            outcomes.add((role, len(texts)))
        assert len({world.completed(role)[0] for role in recipients.split(",")}) == 1
    assert len(outcomes) == 2 * len(recipients.split(","))


def test_an_id_that_was_drawn_by_who_was_killed_is_not_drawn_again(killed):
    for world in killed(nothing, lambda world: world.send("reviewer,QA", "first")):
        names = {world.send("reviewer", str(number)) for number in range(3)}
        kept = {key.rpartition("/")[2][3:26] for key in world.keys(".handoff")}
        assert len({name[3:26] for name in names}) == 3
        assert len(kept) in (3, 4)
        world.work_off("reviewer")
        world.work_off("QA")


def test_a_delivery_that_was_killed_is_finished_with_one_copy_each(killed):
    for world in killed(
        lambda world: world.queue("coder,reviewer,QA", "once"),
        lambda world: list(world.box("QA").deliver()),
    ):
        list(world.box("reviewer").deliver())
        for role in ("coder", "reviewer", "QA"):
            world.work_off(role)
            assert world.completed(role) == ["once"]
        assert len(world.keys("/sent/")) == 1


def test_a_delivery_is_finished_though_a_copy_was_completed_meanwhile(killed):
    """The second of three has completed its copy when delivery resumes."""
    early = 0
    for world in killed(
        lambda world: world.queue("coder,reviewer,QA", "once"),
        lambda world: list(world.box("coder").deliver()),
    ):
        if world.keys("reviewer/inbox/new/"):
            box = world.box("reviewer")
            box._inbox.next()  # without the delivery that an idle mailbox does
            world.done(box)
            early += bool(world.keys("/outbox/"))
        completed = world.completed("reviewer")
        list(world.box("QA").deliver())
        if completed:
            assert world.keys("reviewer/inbox/new/") == [], "it came back"
        for role in ("coder", "reviewer", "QA"):
            world.work_off(role)
            assert world.completed(role) == ["once"]
    assert early > 3


def test_a_delivery_that_fails_and_was_killed_keeps_message_and_reason(killed):
    def prepare(world):
        name = world.queue("reviewer,QA", "never")
        key = f"handoffs/coder/outbox/{name}"
        data = world.store.get(key).data
        world.store.delete(key)
        world.store.put(key, data.replace(b"to: reviewer,QA", b"to: reviewer,gone"))

    for world in killed(prepare, lambda world: list(world.box("coder").deliver())):
        list(world.box("coder").deliver())
        assert world.keys("/new/") == []
        (entry,) = world.box("coder").entries()
        assert (entry.standing, "gone" in entry.reason) == ("failed", True)


# Accepting


@pytest.mark.parametrize("agent", ["a1", "other"])
def test_a_message_whose_accept_was_killed_is_done_once(killed, agent):
    for world in killed(waiting_for("reviewer"), lambda world: world.box("reviewer").next()):
        world.pass_time()
        assert world.work_off("reviewer", agent) == [["a"], ["b"], ["c"], ["d"]]
        assert world.completed("reviewer") == ["a", "b", "c", "d"]


def test_the_same_work_is_given_again_at_once_to_who_was_killed_while_accepting(killed):
    attempts = set()
    for world in killed(waiting_for("reviewer"), lambda world: world.box("reviewer").next()):
        accepted = world.box("reviewer").next()
        assert accepted.items[0].message.headers["message"] == "a"
        attempts.add((accepted.items[0].attempt, accepted.resumed))
        world.work_off("reviewer")
    assert attempts == {(1, False), (1, True)}


@pytest.mark.parametrize("agent", ["a1", "other"])
def test_a_batch_whose_accept_was_killed_is_whole_nevertheless(killed, agent):
    for world in killed(waiting_for("QA"), lambda world: world.box("QA").next()):
        world.pass_time()
        assert world.work_off("QA", agent) == [["a", "b", "c"], ["d"]]
        assert world.completed("QA") == ["a", "b", "c", "d"]


def test_a_burial_that_was_killed_leaves_one_dead_letter_with_its_history(killed):
    def prepare(world):
        waiting_for("reviewer")(world)
        world.box("reviewer", "dead").next()
        world.pass_time()

    for world in killed(prepare, lambda world: world.box("reviewer").next(), ONE_TRY):
        world.pass_time()
        world.work_off("reviewer", "other")
        found = [world.record("reviewer", key.rpartition("/")[2]) for key in world.keys("/dead/")]
        (record,) = (record for record in found if record.headers["message"] == "a")
        assert records.is_dead(record)
        assert record.headers[records.HISTORY].startswith("1: dead at ")


# Completing


@pytest.mark.parametrize("agent", ["a1", "other"])
@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_what_was_being_completed_is_completed_once(killed, role, agent):
    for world in killed(accepted_by(role), lambda world: world.box(role).done()):
        world.pass_time()
        world.work_off(role, agent)
        assert world.completed(role) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_done_is_repeated_after_a_kill_and_says_what_was_done(killed, role):
    count = 3 if role == "QA" else 1
    forgotten = 0
    for world in killed(accepted_by(role), lambda world: world.box(role).done()):
        if world.keys(".handoff~"):
            completed = world.done(world.box(role))
            # Those that were ended and cleared away are not said again.
            assert 1 <= len(completed.items) <= count
        else:
            with pytest.raises(MailboxStateError, match="NO_CURRENT"):
                world.box(role).done()
            forgotten += 1
        assert world.completed(role) == ["a", "b", "c"][:count]
        world.work_off(role)
        assert world.completed(role) == ["a", "b", "c", "d"]
    assert forgotten <= 3


def test_a_batch_that_was_closed_before_a_kill_has_one_time_of_completion(killed):
    for world in killed(accepted_by("QA"), lambda world: world.box("QA").done()):
        closed = any(key.endswith(".done") for key in world.keys("in_process"))
        world.pass_time()
        world.work_off("QA", "other")
        names = world._names("QA")
        times = {world.record("QA", name).headers["completed_at"] for name in names[:3]}
        assert len(times) == 1
        if closed:
            agents = {world.record("QA", name).headers[records.AGENT] for name in names[:3]}
            assert agents == {"a1"}


# Giving back, keeping, and bringing back


@pytest.mark.parametrize("role", ["reviewer", "QA"])
@pytest.mark.parametrize("agent", ["a1", "other"])
def test_what_was_being_given_back_is_done_once(killed, role, agent):
    for world in killed(accepted_by(role), lambda world: world.box(role).release("tired")):
        world.pass_time()
        world.work_off(role, agent)
        assert world.completed(role) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_a_renewal_that_was_killed_leaves_the_work_with_its_agent(killed, role):
    for world in killed(accepted_by(role), lambda world: world.box(role).next()):
        accepted = world.box(role).next()
        assert {item.attempt for item in accepted.items} == {1}
        world.work_off(role)
        assert world.completed(role) == ["a", "b", "c", "d"]


def test_a_dead_letter_whose_retry_was_killed_comes_back_once(killed):
    def prepare(world):
        world.send("reviewer", "again")
        world.box("reviewer", "dead").next()
        world.pass_time()
        assert world.box("reviewer").next() is None

    def retry(world):
        (key,) = world.keys("/dead/")
        world.box("reviewer").retry(key.rpartition("/")[2])

    for world in killed(prepare, retry, ONE_TRY):
        if world.keys("/dead/"):
            retry(world)
        assert world.keys("/dead/") == []
        assert world.work_off("reviewer") == [["again"]]


def test_a_failed_message_whose_retry_was_killed_is_delivered_once(killed):
    def prepare(world):
        name = world.queue("reviewer,QA", "once")
        data = world.store.get(f"handoffs/coder/outbox/{name}").data
        world.store.delete(f"handoffs/coder/outbox/{name}")
        world.store.put(f"handoffs/coder/failed/{name}", data)
        world.store.put(f"handoffs/coder/failed/{name}.error", b"it was\n")

    def retry(world):
        (name,) = {
            key.rpartition("/")[2].removesuffix(".error")
            for key in world.keys("coder/failed/")
            if key.endswith(".handoff")
        }
        world.box("coder").retry(name)

    for world in killed(prepare, retry):
        if any(key.endswith(".handoff") for key in world.keys("coder/failed/")):
            retry(world)
        for role in ("reviewer", "QA"):
            world.work_off(role)
            assert world.completed(role) == ["once"]
        assert list(world.box("coder").entries()) == []
        assert world.keys("/failed/") == []


def test_pruning_that_was_killed_goes_on(killed):
    def prepare(world):
        world.send("reviewer,QA", "old")
        for role in ("reviewer", "QA"):
            world.work_off(role)
        world.acknowledged.write_text("")
        world.pass_time(7200, "")

    def prune(world):
        for role in ("coder", "reviewer", "QA"):
            list(world.box(role).prune(3600))

    for world in killed(prepare, prune):
        prune(world)
        assert [key for key in world.keys("handoffs") if "/sequence/" not in key] == []
        assert world.work_off("reviewer") == []
