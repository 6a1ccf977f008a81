"""What an agent does with hand-offs, step by step, in memory and in a time that the test moves."""

import sys
import threading

import pytest
from queue_world import World, taken

from tapstore.agents import (
    CommandHandler,
    Ending,
    HandoffSpec,
    HandoffWorker,
    Work,
    WorkFailedError,
    WorkReleasedError,
    job,
    logs,
)
from tapstore.errors import NotAllowedError, SessionNotFoundError
from tapstore.handoffs import message as messages
from tapstore.handoffs.message import Message
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.opening import QueueMailbox
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.references import Reference
from tapstore.sessions.config import new_id
from tapstore.types import OVERWRITE

SETTINGS = "lease_seconds: 60\nmax_attempts: 2\n"


@pytest.fixture
def world():
    return World(settings=SETTINGS)


class Agent:
    """A worker with all that it did and said."""

    def __init__(self, world, handler=lambda _work: None, agent="a1", role="reviewer", **spec):
        self.seen = []
        self.outcomes = []
        self._handler = handler
        spec = HandoffSpec(agent=agent, role=role, **spec)
        self.worker = HandoffWorker(
            world.session, spec, self._handle, on_outcome=self.outcomes.append
        )

    def _handle(self, work):
        self.seen.append([item.message.headers["message"] for item in work.items])
        self._handler(work)

    def run(self):
        self.worker.run(idle=5)  # what was given back is taken again after a second
        return self

    @property
    def endings(self):
        return [outcome.ending for outcome in self.outcomes]


def record(world, name, role="reviewer"):
    return Endings(world.store, Places(role)).record(name)


def send_anyway(world, message, artifacts):
    """A reference that `send` would refuse, or that was right when it was sent."""
    name = world.send(message=message)
    key = Places("reviewer").waiting(name)
    sent = messages.parse(world.store.get(key).data, name=key)
    changed = Message({**sent.headers, "artifacts": artifacts}, sent.body)
    world.store.put(key, messages.render(changed), OVERWRITE)
    return name


def reference(world, name="x.py", data=b"x", *, sha256=None):
    artifact = world.session.publish(name, data, producer="c1", overwrite=True)
    return str(Reference(name, sha256 or artifact.checksum.removeprefix("sha256:"), artifact.phase))


# Done


def test_hand_offs_are_done_in_order_each_once(world):
    for message, priority in [("second", 50), ("third", 50), ("first", 10)]:
        world.send(message=message, priority=priority)
    agent = Agent(world).run()
    assert agent.seen == [["first"], ["second"], ["third"]]
    assert agent.endings == [Ending.COMPLETED] * 3
    assert world.keys("in_process") == world.keys("/new/") == []


def test_an_outcome_names_the_hand_off_and_the_attempt(world):
    name = world.send()
    outcome = Agent(world).run().outcomes[0]
    assert outcome.handoffs == (name,)
    assert (outcome.slot, outcome.agent, outcome.attempt) == ("reviewer", "a1", 1)


def test_results_are_registered_for_the_role_when_the_hand_off_is_completed(world):
    def handler(work):
        work.add("out.txt", b"fine", type="report", consumers=["QA"])
        assert world.session.tapfile.artifacts == ()

    world.send()
    Agent(world, handler).run()
    (artifact,) = world.session.tapfile.artifacts
    assert (artifact.name, artifact.producer, artifact.role) == ("out.txt", "a1", "reviewer")
    assert (artifact.type, list(artifact.consumer)) == ("report", ["QA"])
    assert all(slot.status == "pending" for slot in world.session.tapfile.participants)


def test_results_of_a_role_replace_those_of_its_earlier_hand_offs_by_whatever_agent(world):
    for number in (1, 2):
        world.send(message=str(number))
        Agent(
            world, lambda work: work.add("out", work.requirement.encode()), agent=f"a{number}"
        ).run()
    assert world.session.artifacts["out"].read_text().endswith("2")


def test_results_of_others_are_replaced_only_if_that_is_asked_for(world):
    world.session.publish("out", b"theirs", producer="c1")
    world.send()
    agent = Agent(world, lambda work: work.add("out", b"ours")).run()
    assert agent.endings == [Ending.FAILED] * 2
    assert "was registered by c1" in agent.outcomes[0].reason
    world.send()
    Agent(world, lambda work: work.add("out", b"ours"), overwrite=True).run()
    assert world.session.artifacts["out"].read_bytes() == b"ours"


def test_what_an_earlier_life_of_the_agent_had_in_process_comes_first(world):
    world.send(message="begun")
    assert taken(world.box("reviewer", "a1")) == "begun"
    world.send(message="urgent", priority=0)
    agent = Agent(world).run()
    assert agent.seen == [["begun"], ["urgent"]]
    assert agent.outcomes[0].attempt == 1


def test_what_an_earlier_life_accepted_is_lost_when_its_own_lease_has_passed(world):
    world.send()
    world.box("reviewer", "a1", lease_seconds=10).next()

    def handler(work):
        if not agent.outcomes:
            world.clock.advance(10)  # others look at the 10 s that it says, whatever we were given
            assert work.lost.is_set()

    agent = Agent(world, handler, ttl=1000)
    assert agent.run().endings == [Ending.LOST, Ending.COMPLETED]


# Not done


@pytest.mark.parametrize("error", [WorkFailedError("no idea"), ZeroDivisionError("no idea")])
def test_what_fails_is_tried_again_and_then_dead_with_its_history(world, error):
    def handler(_work):
        raise error

    name = world.send(message="bad")
    world.send(message="good")
    agent = Agent(world, lambda work: handler(work) if "bad" in work.requirement else None).run()
    assert agent.seen == [["bad"], ["good"], ["bad"]]
    assert agent.endings == [Ending.FAILED, Ending.COMPLETED, Ending.FAILED]
    assert agent.outcomes[2].attempt == 2
    found = record(world, name)
    assert records.is_dead(found)
    assert found.headers[records.HISTORY].count("no idea") == 2


def test_a_worker_that_is_told_to_stop_gives_its_work_back(world):
    def handler(work):
        agent.worker.stop()
        if work.stopping():
            raise WorkReleasedError("told to stop")

    world.send()
    agent = Agent(world, handler)
    assert agent.run().endings == [Ending.RELEASED]
    world.clock.advance(2)
    assert world.box("reviewer", "a2").next().items[0].attempt == 2


def test_an_interrupt_gives_the_work_back_and_goes_on(world):
    def handler(_work):
        raise KeyboardInterrupt

    world.send()
    with pytest.raises(KeyboardInterrupt):
        Agent(world, handler).run()
    world.clock.advance(2)
    assert world.box("reviewer", "a2").next().items[0].attempt == 2


def test_work_whose_lease_has_passed_is_lost_and_registers_nothing(world):
    def handler(work):
        world.clock.advance(61)
        world.box("reviewer", "a2").next()
        with pytest.raises(Exception, match="not renewed in time"):
            work.add("out", b"late")

    name = world.send()
    agent = Agent(world, handler).run()
    assert agent.endings == [Ending.LOST]
    assert record(world, name) is None
    assert world.session.tapfile.artifacts == ()


def test_who_completes_second_is_told_that_it_is_lost(world):
    world.send()
    slow = world.box("reviewer", "slow")
    slow.next()
    world.clock.advance(61)
    agent = Agent(world, lambda _work: slow.done()).run()
    assert agent.endings == [Ending.LOST]
    assert "completed by slow" in agent.outcomes[0].reason


def test_what_the_command_itself_completed_is_completed():
    def handler(work):
        world.box("reviewer", "a1").done()
        assert work.lost.wait(10)  # the next renewal finds it gone
        known.append(work.was_ended_by_command())
        work.check()

    known = []
    world = World(url=f"memory://{new_id()}")
    world.send()
    agent = Agent(world, handler, ttl=1)
    agent.worker.run_once()
    assert known == [True]
    assert agent.endings == [Ending.COMPLETED]


def test_a_renewal_that_hangs_keeps_nobody_from_learning_that_the_lease_is_lost(monkeypatch):
    world = World(url=f"memory://{new_id()}")
    goes_on = threading.Event()
    renewed = []
    monkeypatch.setattr(QueueMailbox, "renew", lambda _mailbox: renewed.append(goes_on.wait(20)))

    def handler(work):
        assert work.lost.wait(10)
        assert not work.was_ended_by_command()
        assert renewed == []
        agent.worker.stop()
        goes_on.set()

    world.send()
    agent = Agent(world, handler, ttl=1)
    assert agent.run().endings == [Ending.LOST]


# References


def test_artifacts_that_a_message_refers_to_are_inputs(world, tmp_path):
    found = []
    world.send(artifacts=reference(world))
    Agent(world, lambda work: found.extend(work.fetch(tmp_path))).run()
    assert [artifact.name for artifact, _ in found] == ["x.py"]
    assert (tmp_path / "files" / "x.py").read_bytes() == b"x"


def wrong_sum(world):
    return reference(world, sha256="0" * 64)


def unknown(_world):
    return f"y.py@sha256:{'0' * 64}"


def replaced(world):
    before = reference(world, data=b"before")
    reference(world, data=b"after")
    return before


def other_phase(world):
    return f"coding/{reference(world)}"


WRONG = [wrong_sum, unknown, replaced, other_phase]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_reference_is_given_back_with_the_reason_and_never_worked_on(world, wrong):
    name = send_anyway(world, "bad", wrong(world))
    world.send(message="good")
    agent = Agent(world).run()
    assert agent.seen == [["good"]]
    assert agent.endings.count(Ending.FAILED) == 2
    assert "not worked on: it refers to" in agent.outcomes[0].reason
    assert "not worked on" in record(world, name).headers[records.HISTORY]


def test_bytes_that_are_not_those_of_the_artifact_are_not_worked_on(world, tmp_path):
    world.send(artifacts=reference(world))
    key = world.session.tapfile.artifact("x.py").path
    world.store.delete(key)
    world.store.put(key, b"y")
    agent = Agent(world, lambda work: work.fetch(tmp_path)).run()
    assert "ChecksumError" in agent.outcomes[0].reason


# Batches


def test_a_batch_is_one_piece_of_work(world):
    for message, priority in [("one", 50), ("two", 50), ("other", 60)]:
        world.send(message=message, priority=priority)
    agent = Agent(world, mode="batch").run()
    assert agent.seen == [["one", "two"], ["other"]]
    assert len(agent.outcomes[0].handoffs) == 2
    assert agent.outcomes[0].batch.startswith("batch_")
    assert world.keys("in_process") == []


def test_how_a_role_receives_is_what_the_session_says_if_nothing_else_is_said():
    world = World(settings=SETTINGS + "receive: {reviewer: batch}\n")
    world.send(message="one")
    world.send(message="two")
    assert Agent(world).run().seen == [["one", "two"]]


def test_a_wrong_reference_in_a_batch_is_given_back_alone(world):
    world.send(message="one")
    bad = send_anyway(world, "bad", unknown(world))
    world.send(message="two")
    agent = Agent(world, mode="batch").run()
    assert agent.seen == [["one", "two"]]
    assert agent.endings == [Ending.FAILED, Ending.COMPLETED, Ending.FAILED]
    assert agent.outcomes[0].handoffs == (bad,)
    assert records.is_dead(record(world, bad))


def test_inputs_of_a_batch_are_those_of_the_messages_that_are_worked_on(world):
    names = []
    one, other = reference(world, "one.py"), reference(world, "other.py")
    world.send(message="one", artifacts=one)
    send_anyway(world, "bad", f"{other} {unknown(world)}")
    world.send(message="again", artifacts=one)
    Agent(world, lambda work: names.extend(a.name for a in work.inputs), mode="batch").run()
    assert names == ["one.py"]


def test_a_batch_of_nothing_but_wrong_references_is_given_back(world):
    names = [send_anyway(world, m, unknown(world)) for m in ("one", "two")]
    agent = Agent(world, mode="batch").run()
    assert agent.seen == []
    assert all(records.is_dead(record(world, name)) for name in names)
    assert world.keys("in_process/batch_") == []


def test_a_batch_that_fails_is_given_back_as_a_whole(world):
    def handler(work):
        if work.attempt == 1:
            raise WorkFailedError("not yet")

    world.send(message="one")
    world.send(message="two")
    agent = Agent(world, handler, mode="batch").run()
    assert agent.seen == [["one", "two"]] * 2
    assert agent.endings == [Ending.FAILED, Ending.COMPLETED]


def test_what_was_given_back_of_a_batch_is_not_completed_with_it(world):
    names = [world.send(message=message) for message in ("one", "two")]
    box = world.box("reviewer", "a1", mode="batch")
    first, _ = box.next().items
    box.release("not that one", only=(first.place,))
    box.done()
    assert [record(world, name) is not None for name in names] == [False, True]
    world.clock.advance(2)
    assert taken(world.box("reviewer", "a2")) == "one"


# Commands


def test_a_command_runs_where_there_are_no_files_and_its_outputs_are_logged_in_order(world):
    handler = CommandHandler(
        argv=(sys.executable, "-c", "import sys; print(sys.argv[1])", "{requirement}"),
        stdout_as="said",
    )
    for message in ("one", "two"):
        world.send(message=message)
        outcome = Agent(world, handler).run().outcomes[0]
        assert outcome.ending is Ending.COMPLETED
        world.clock.advance(1)
    assert world.session.artifacts["said"].read_text().endswith("two\n")
    log = b"".join(logs.read(world.session, "a1")).decode()
    assert log.index("\none\n") < log.index("\ntwo\n")


def test_the_log_of_a_hand_off_comes_behind_those_of_claims(world):
    claim = world.session.claim("QA", agent="a1")
    with job.of_work(Work(world.session, claim, task=None, inputs=())).log():
        pass
    claim.release()
    world.send()
    Agent(world, CommandHandler(argv=("true",))).run()
    names = [info.key.rpartition("/")[2] for info in world.store.list("logs/a1/")]
    assert claim.id in names[0]
    assert len(names) == 2


# The session


def test_a_role_that_the_session_does_not_have_is_refused(world):
    with pytest.raises(NotAllowedError, match="its roles are"):
        Agent(world, role="tester")


def test_a_worker_ends_with_its_session(world):
    agent = Agent(world)
    for info in list(world.store.list("")):
        world.store.delete(info.key)
    with pytest.raises(SessionNotFoundError):
        agent.run()
