"""A process is killed before each single call that may change something, while it sends, delivers,
accepts or completes.  The next command goes on without help: each message is completed once."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.keys import TEMP_MARK
from tapstore.testing.clock import ManualClock
from tests.plain_agents import plain_swarm
from tests.processes.steps import CHANGING, killed_before_call
from tests.unit.swarm_world import Swarm, age, note, parsed

CALLS = (*CHANGING, "rmdir")
MODES = {"coder": "task", "cleaner": "task", "QA": "batch"}


@pytest.fixture
def killed_before_each(tmp_path):
    """One swarm for each call that `action` makes, left by who was killed before it."""

    def swarms(prepare, action):
        number = 0
        killed = True
        while killed:
            number += 1
            swarm = Swarm(tmp_path / str(number), MODES)
            prepare(swarm)
            killed = killed_before_call(number, lambda swarm=swarm: action(swarm), CALLS)
            let_time_pass(swarm)
            yield swarm
        assert number > 12  # or the kills did not reach what they should

    return swarms


def let_time_pass(swarm):
    """Until nobody can still be at what was begun."""
    for path in swarm.project.rglob("*.lock"):
        age(path, 60)
    for path in swarm.project.rglob("batch_*"):
        age(path, 60)


def work_off(swarm, role):
    box = swarm.box(role)
    texts = []
    while (accepted := box.next()) is not None:
        assert all("dequeued_at" in parsed(item.place).headers for item in accepted.items)
        texts.append([item.message.headers["message"] for item in accepted.items])
        box.done()
    return texts


def completed(swarm, role):
    """What was completed, and nothing but this is in the inbox."""
    names = swarm.names(role, "inbox")
    assert all(name.startswith("completed/") for name in names)
    messages = [parsed(swarm.folder(role, "inbox", name)) for name in names]
    assert all("completed_at" in message.headers for message in messages)
    return sorted(message.headers["message"] for message in messages)


def left_behind(swarm):
    """Names that nobody needs, after all is old and was pruned."""
    for path in swarm.project.rglob("*"):
        age(path, 2 * 24 * 3600)
    for role in MODES:
        list(swarm.box(role).prune(10**9))
    marks = (TEMP_MARK, ".accept-", ".headers.")
    found = (path.name for path in swarm.project.rglob("*"))
    return [name for name in found if name.startswith(marks) or name.endswith((".retry", ".error"))]


def test_whoever_is_killed_while_sending_has_sent_once_or_not_at_all(killed_before_each):
    def send(swarm):
        swarm.box("coder").send(note("cleaner,QA", "first"))

    def nothing(_):
        pass

    outcomes = set()
    for swarm in killed_before_each(nothing, send):
        swarm.box("coder").send(note("cleaner,QA", "second"))
        texts = [text for batch in work_off(swarm, "cleaner") for text in batch]
        assert texts in (["second"], ["first", "second"])
        work_off(swarm, "QA")
        assert completed(swarm, "QA") == completed(swarm, "cleaner") == texts
        sent = [parsed(swarm.folder("coder", name)) for name in swarm.names("coder")]
        assert len({message.id for message in sent}) == len(texts)
        assert all(name.startswith("sent/") for name in swarm.names("coder"))
        assert left_behind(swarm) == []
        outcomes.add(len(texts))
    assert outcomes == {1, 2}


def test_a_delivery_that_was_killed_is_finished_with_one_copy_each(killed_before_each):
    def prepare(swarm):
        swarm.queue("coder", "cleaner,QA,coder", "once")
        for role in MODES:
            swarm.box(role)._folder.make()

    for swarm in killed_before_each(prepare, lambda swarm: list(swarm.box("QA").deliver())):
        list(swarm.box("QA").deliver())
        for role in MODES:
            work_off(swarm, role)
            assert completed(swarm, role) == ["once"]
        assert swarm.names("coder", "outbox") == []
        assert left_behind(swarm) == []


def test_a_delivery_is_finished_though_a_copy_was_completed_meanwhile(killed_before_each):
    """The second of three has completed its copy when delivery resumes."""
    for swarm in killed_before_each(
        lambda swarm: swarm.queue("coder", "coder,cleaner,QA", "once"),
        lambda swarm: list(swarm.box("coder").deliver()),
    ):
        if swarm.names("cleaner", "inbox", "new"):
            plain_swarm.ready_task(swarm.worktree("cleaner"))
            plain_swarm.done_task(swarm.worktree("cleaner"))
        for role in MODES:
            work_off(swarm, role)
            assert completed(swarm, role) == ["once"]


def test_a_failure_that_was_killed_keeps_message_and_reason(killed_before_each):
    for swarm in killed_before_each(
        lambda swarm: swarm.queue("coder", "cleaner,nobody", "never"),
        lambda swarm: list(swarm.box("coder").deliver()),
    ):
        list(swarm.box("coder").deliver())
        assert swarm.names("cleaner") == []
        (entry,) = swarm.box("coder").entries()
        assert (entry.standing, "nobody" in entry.reason) == ("failed", True)


def test_a_note_of_tries_that_was_killed_loses_no_message(killed_before_each):
    clock = ManualClock(wall=4e9)

    def prepare(swarm):
        swarm.queue("coder", "cleaner", "once")
        swarm.worktree("cleaner").rename(swarm.project / "away")

    for swarm in killed_before_each(prepare, lambda swarm: list(swarm.box("QA").deliver())):
        (swarm.project / "away").rename(swarm.worktree("cleaner"))
        list(swarm.box("QA", clock=clock).deliver())
        work_off(swarm, "cleaner")
        assert completed(swarm, "cleaner") == ["once"]
        assert left_behind(swarm) == []


def waiting_for(role):
    def prepare(swarm):
        for text, priority in (("a", "20"), ("b", "20"), ("c", "20"), ("d", "30")):
            swarm.send("coder", role, text, priority)

    return prepare


def test_an_accept_that_was_killed_gives_the_same_work(killed_before_each):
    for swarm in killed_before_each(
        waiting_for("cleaner"), lambda swarm: swarm.box("cleaner").next()
    ):
        assert work_off(swarm, "cleaner") == [["a"], ["b"], ["c"], ["d"]]
        assert completed(swarm, "cleaner") == ["a", "b", "c", "d"]
        assert left_behind(swarm) == []


def test_a_batch_whose_accept_was_killed_is_whole_nevertheless(killed_before_each):
    for swarm in killed_before_each(waiting_for("QA"), lambda swarm: swarm.box("QA").next()):
        swarm.send("coder", "QA", "late", "30")
        assert work_off(swarm, "QA") == [["a", "b", "c"], ["d", "late"]]
        assert completed(swarm, "QA") == ["a", "b", "c", "d", "late"]
        assert left_behind(swarm) == []


def test_a_batch_whose_accept_was_killed_is_one_for_the_original_scripts(killed_before_each):
    for swarm in killed_before_each(waiting_for("QA"), lambda swarm: swarm.box("QA").next()):
        tree = swarm.worktree("QA")
        try:
            plain_swarm.ready_batch(tree)
            plain_swarm.done_batch(tree)
        except plain_swarm.PlainError:
            # We died with an empty folder: they stop at it, and we do not.
            assert [path for path in tree.rglob("batch_*") if not list(path.iterdir())]
        work_off(swarm, "QA")
        assert completed(swarm, "QA") == ["a", "b", "c", "d"]


def accepted(role):
    def prepare(swarm):
        waiting_for(role)(swarm)
        swarm.box(role).next()

    return prepare


@pytest.mark.parametrize("command", ["next", "done"])
@pytest.mark.parametrize("role", ["cleaner", "QA"])
def test_a_completion_that_was_killed_is_finished_once(killed_before_each, role, command):
    for swarm in killed_before_each(accepted(role), lambda swarm: swarm.box(role).done()):
        if command == "done":
            with suppress(MailboxStateError):  # NO_CURRENT_TASK: it died just behind the last step
                swarm.box(role).done()
        work_off(swarm, role)
        assert completed(swarm, role) == ["a", "b", "c", "d"]
        for batch in Path(swarm.folder(role, "inbox", "completed")).glob("batch_*"):
            times = {parsed(path).headers["completed_at"] for path in batch.iterdir()}
            assert len(times) == 1
        assert left_behind(swarm) == []


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_a_batch_that_the_original_script_left_half_completed_is_finished(tmp_path, moved):
    swarm = Swarm(tmp_path, MODES)
    accepted("QA")(swarm)
    target = plain_swarm.done_batch(swarm.worktree("QA"), die_after=moved)
    box = swarm.box("QA")
    if moved < 3:
        assert len(box.next().items) == 3 - moved
        assert box.done().batch == str(target)
    assert [item.message.headers["message"] for item in box.next().items] == ["d"]
    assert len(os.listdir(target)) == 3
    # Or the original scripts would find two batches in process.
    assert len(list(swarm.folder("QA", "inbox", "in_process").iterdir())) == 1
    times = {parsed(path).headers["completed_at"] for path in target.iterdir()}
    assert len(times) == 1
    box.done()
    assert completed(swarm, "QA") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("role", ["cleaner", "QA"])
def test_what_an_original_script_accepted_before_it_died_gets_its_time(tmp_path, role):
    """It moves first, and writes the header afterwards."""
    swarm = Swarm(tmp_path, MODES)
    swarm.send("coder", role, "once")
    inbox = swarm.folder(role, "inbox")
    (name,) = swarm.names(role, "inbox", "new")
    where = inbox / "in_process"
    if role == "QA":
        where /= "batch_20261201T000000Z_000001"
        where.mkdir()
        (where / ".headers.1234").write_text("half a mess")
    (inbox / "new" / name).rename(where / name)
    accepted = swarm.box(role).next()
    assert accepted.resumed
    assert parsed(where / name).headers["dequeued_at"]
    swarm.box(role).done()
    assert completed(swarm, role) == ["once"]
