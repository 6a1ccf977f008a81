"""Several processes work on the folders of one swarm at once, original ones among them."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tapstore.handoffs import names
from tapstore.handoffs.swarm import copies, files
from tapstore.testing.clock import ManualClock
from tests.plain_agents import plain_swarm
from tests.processes.steps import Stopped
from tests.unit.swarm_world import Swarm, parsed

TOP = Path(__file__).parents[2]
MODES = {"coder": "task", "cleaner": "task", "QA": "task", "batcher": "batch"}
SECONDS = 90


@pytest.fixture
def swarm(tmp_path):
    return Swarm(tmp_path / "project", MODES)


def start(kind, what, swarm, role, *more):
    command = [sys.executable, "-m", "tests.processes.swarm_worker", kind, what]
    return subprocess.Popen(
        [*command, str(swarm.project), role, *map(str, more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TOP,
    )


@contextmanager
def running(*arguments):
    with start(*arguments) as process:
        try:
            yield process
        finally:
            process.stdin.close()
            if process.poll() is None and arguments[1] != "deliver":
                process.kill()
            process.wait(SECONDS)


def said(process):
    out = process.stdout.read()
    assert process.wait(SECONDS) == 0
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("role", ["cleaner", "batcher"])
def test_of_two_next_at_once_one_accepts_and_the_other_gets_the_same(swarm, role):
    for number in range(8):
        swarm.send("coder", role, f"m{number}", f"{number:02}")
    for _ in range(4):
        with ExitStack() as stack:
            both = [stack.enter_context(running("ours", "next", swarm, role)) for _ in range(2)]
            for process in both:
                assert json.loads(process.stdout.readline()) == {"ready": True}
            for process in both:
                process.stdin.write("now\n")
                process.stdin.flush()
            first, second = (said(process) for process in both)
        assert first == second
        assert len(first[0]["places"]) == 1
        swarm.box(role).done()


def test_one_stopped_anywhere_while_it_accepts_keeps_others_from_taking_more(swarm):
    """It holds the lock of the inbox: who comes next waits for it, and gets what it took."""
    box = swarm.box("cleaner")
    for number in range(3):
        swarm.send("coder", "cleaner", f"m{number}", f"{number:02}")
    box._folder.make()
    step = 0
    while True:
        step += 1
        stopped = Stopped(step, lambda: swarm.box("cleaner").next())
        if not stopped.stopped:
            assert stopped.outcome() == "done"
            break
        got = []
        other = threading.Thread(target=lambda got=got: got.append(swarm.box("cleaner").next()))
        other.start()
        other.join(0.02)
        assert stopped.outcome() == "done"
        other.join(SECONDS)
        in_process = swarm.names("cleaner", "inbox", "in_process")
        assert [os.path.basename(item.place) for item in got[0].items] == in_process
        # Back again, as it was.
        (name,) = in_process
        files.move(
            str(swarm.folder("cleaner", "inbox", "in_process", name)),
            str(swarm.new("cleaner") / name),
        )
    assert step > 12  # or it was not stopped where it should be


def test_one_stopped_anywhere_while_it_delivers_gives_an_original_agent_no_second_copy(
    tmp_path, monkeypatch
):
    """Others deliver meanwhile, or leave it to it; the agent completes what it gets at once."""
    monkeypatch.setattr(copies, "WAIT_SECONDS", 0.05)
    later = ManualClock(wall=4e9)
    was_stopped, step = True, 0
    while was_stopped:
        step += 1
        swarm = Swarm(tmp_path / str(step), MODES)
        swarm.queue("coder", "cleaner")
        agent = swarm.worktree("cleaner")
        stopped = Stopped(step, lambda swarm=swarm: list(swarm.box("coder").deliver()))
        was_stopped = stopped.stopped
        list(swarm.box("coder").deliver())
        if plain_swarm.ready_task(agent):
            plain_swarm.done_task(agent)
        assert stopped.outcome() == "done"
        list(swarm.box("coder", clock=later).deliver())
        if plain_swarm.ready_task(agent):
            plain_swarm.done_task(agent)  # raises if it was completed before
        (name,) = swarm.names("cleaner")
        assert name.startswith("inbox/completed/")
    assert step > 12


def test_two_that_accept_where_nothing_can_be_locked_take_different_messages(swarm, monkeypatch):
    """A mount without flock: the rename decides."""
    fcntl = pytest.importorskip("fcntl")

    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    for number in range(2):
        swarm.send("coder", "cleaner", f"m{number}")
    move = files.move

    def late(source, target):
        monkeypatch.setattr(files, "move", move)
        taken.append(swarm.box("cleaner").next())
        move(source, target)

    taken = []
    monkeypatch.setattr(files, "move", late)
    taken.append(swarm.box("cleaner").next())
    assert len({accepted.items[0].message.id for accepted in taken}) == 2


def test_four_senders_of_one_role_draw_no_number_twice(swarm):
    kinds = ("ours", "plain", "ours", "plain")
    with ExitStack() as stack:
        senders = [
            stack.enter_context(running(kind, "send", swarm, "coder", 15, "QA")) for kind in kinds
        ]
        sent = [event["name"] for sender in senders for event in said(sender)]
    assert len(sent) == 60
    assert len({names.parse(name).id for name in sent}) == 60
    assert {names.parse(name).stamp.sequence for name in sent} == set(range(1, 61))


def test_each_message_is_completed_once_whoever_sends_and_delivers(swarm):
    count = 20
    kinds = ("ours", "plain")
    with ExitStack() as stack:
        workers = {
            role: stack.enter_context(running("ours", "work", swarm, role, 4 * count))
            for role in ("cleaner", "QA", "batcher")
        }
        for kind in ("ours", "ours", "plain"):
            stack.enter_context(running(kind, "deliver", swarm, "coder"))
        senders = [
            stack.enter_context(running(kind, "send", swarm, role, count, "cleaner,QA,batcher"))
            for kind in kinds
            for role in ("coder", "QA")
        ]
        sent = sorted(event["sent"] for sender in senders for event in said(sender))
        completed = {
            role: Counter(text for event in said(worker) for text in event["completed"])
            for role, worker in workers.items()
        }
    assert len(sent) == 4 * count
    for role, texts in completed.items():
        assert texts == Counter(sent)
        assert swarm.box(role).next() is None
        kept = swarm.names(role, "inbox")
        assert all(name.startswith("completed/") for name in kept)
        assert len(kept) == len(sent)
    assert swarm.names("coder", "outbox") == swarm.names("coder", "failed") == []


def test_original_agents_complete_what_we_send_and_deliver(swarm):
    count = 20
    with ExitStack() as stack:
        worker = stack.enter_context(running("plain", "work", swarm, "cleaner", count))
        for _ in range(2):
            stack.enter_context(running("ours", "deliver", swarm, "coder"))
        sender = stack.enter_context(running("ours", "send", swarm, "coder", count, "cleaner"))
        sent = {event["sent"] for event in said(sender)}
        completed = {text for event in said(worker) for text in event["completed"]}
    assert completed == sent
    for name in swarm.names("cleaner", "inbox", "completed"):
        message = parsed(swarm.folder("cleaner", "inbox", "completed", name))
        assert message.state == "completed"
        assert message.body.endswith(f"\n\n{message.headers['message']}\n")
