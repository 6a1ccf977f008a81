"""Several processes take, deliver and send hand-offs of one session at the same moment."""

import json
import os
from contextlib import ExitStack, contextmanager

import pytest

import tapstore
from tapstore.errors import LeaseLostError
from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.queue import opening
from tests.processes.queue_steps import FolderWorld

ROUNDS = 60


class Racer:
    """A process that does something for each line that it gets, and answers with one."""

    def __init__(self, act):
        self._orders, orders = os.pipe()
        answers, self._answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(orders)
                with os.fdopen(self._orders) as lines, os.fdopen(self._answers, "w", 1) as out:
                    for line in lines:
                        out.write(json.dumps(act(line.strip())) + "\n")
                status = 0
            finally:
                os._exit(status)
        os.close(self._orders)
        os.close(self._answers)
        self.orders = os.fdopen(orders, "w", 1)
        self.answers = os.fdopen(answers)

    def end(self):
        self.orders.close()
        self.answers.close()
        os.waitpid(self.pid, 0)


@contextmanager
def racing(acts):
    with ExitStack() as stack:
        racers = []
        for act in acts:
            racer = Racer(act)
            stack.callback(racer.end)
            racers.append(racer)

        def ask(line):
            for racer in racers:
                racer.orders.write(f"{line}\n")
            answers = [racer.answers.readline() for racer in racers]
            assert all(answers), "one of them ended"
            return [json.loads(answer) for answer in answers]

        # The pipes of the first are open in the second, too: so they are ended in that order.
        yield ask


@pytest.fixture
def world(tmpfs_path):
    return FolderWorld(tmpfs_path / "world")


def taking(world, agent, role="reviewer"):
    """Takes as a command does: with a session and a mailbox of its own each time."""

    def act(_):
        with tapstore.open(world.url) as session:
            box = opening.open(session, role=role, agent=agent)
            try:
                accepted = box.next()
            except MailboxStateError as exc:
                return exc.keyword
        return None if accepted is None else [item.message.id for item in accepted.items]

    return act


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_of_agents_that_take_at_once_each_has_something_else(world, role):
    agents = ("a1", "a2", "a3")
    with racing([taking(world, agent, role) for agent in agents]) as ask:
        for number in range(ROUNDS):
            sent = [world.send(role, f"{number}-{each}")[3:26] for each in range(3)]
            answers = ask("next")
            taken = [identity for answer in answers if answer for identity in answer]
            assert len(set(taken)) == len(taken), answers
            assert {identity[:23] for identity in taken} == set(sent)
            for agent, answer in zip(agents, answers, strict=True):
                if answer:
                    world.done(world.box(role, agent))
    assert len(world.completed(role)) == 3 * ROUNDS
    world.check()


@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_two_that_take_at_once_under_one_id_have_the_same(world, role):
    for number in range(ROUNDS):
        world.send(role, f"{number}", number)
    with racing([taking(world, "a1", role)] * 2) as ask:
        for _ in range(ROUNDS):
            # Who is too slow for the very last message is told that nothing waits.
            (taken,) = {tuple(answer) for answer in ask("next") if answer}
            assert len(taken) == 1
            world.done(world.box(role, "a1"))
    assert len(world.completed(role)) == ROUNDS
    world.check()


def test_two_that_complete_the_same_at_once_under_one_id_complete_it_once(world):
    def act(_):
        with tapstore.open(world.url) as session:
            box = opening.open(session, role="reviewer", agent="a1")
            try:
                return [item.message.id for item in box.done().items]
            except (LeaseLostError, MailboxStateError):
                return []

    with racing([act, act]) as ask:
        for number in range(ROUNDS):
            world.send("reviewer", f"{number}")
            world.box("reviewer").next()
            answers = ask("done")
            assert len({identity for answer in answers for identity in answer}) == 1
            assert world.box("reviewer", "a2").next() is None
    assert len(world.completed("reviewer")) == ROUNDS
    world.check()


def test_of_a_late_agent_and_who_took_over_one_completes(world):
    def act(agent):
        box = None

        def step(line):
            nonlocal box
            if line != "done":
                if line == agent:
                    box = world.box("reviewer", agent)
                    box.next()
                return None
            try:
                box.done()
            except LeaseLostError:
                return "late"
            return "done"

        return step

    with racing([act("a1"), act("a2")]) as ask:
        for number in range(ROUNDS):
            world.send("reviewer", f"{number}")
            ask("a1")
            world.pass_time()
            ask("a2")
            assert sorted(ask("done")) == ["done", "late"]
    assert len(world.completed("reviewer")) == ROUNDS


def test_deliverers_at_once_deliver_one_copy_to_each(world):
    def act(_):
        with tapstore.open(world.url) as session:
            box = opening.open(session, role="coder", agent="d")
            return [role for delivery in box.deliver() for role in delivery.delivered]

    with racing([act] * 3) as ask:
        for number in range(ROUNDS):
            world.queue("coder,reviewer,QA", f"{number}")
            answers = ask("deliver")
            assert sorted(role for answer in answers for role in answer) == [
                "QA", "coder", "reviewer",
            ]  # fmt: skip
    for role in ("coder", "reviewer", "QA"):
        texts = [text for each in world.work_off(role) for text in each]
        assert sorted(texts, key=int) == [str(number) for number in range(ROUNDS)]
    world.check()


def test_two_sessions_on_one_folder_in_one_process_share_the_queue(world):
    names = [world.send("reviewer", f"{number}") for number in range(20)]
    done = []
    with tapstore.open(world.url) as one, tapstore.open(world.url) as two:
        boxes = [
            opening.open(session, role="reviewer", agent=agent)
            for session, agent in ((one, "a1"), (two, "a2"))
        ]
        while [box for box in boxes if box.next() is not None]:
            for box in boxes:
                if box._inbox.held:
                    done += [item.place.rpartition("/")[2] for item in box.done().items]
    assert sorted(done) == names
    world.check()
