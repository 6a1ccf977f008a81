"""What counts as work, and what a handler gets and may do with it."""

import pytest

import tapstore
from tapstore.agents import (
    AgentSpec,
    CommandHandler,
    Ending,
    Need,
    Worker,
    WorkFailedError,
    WorkFilter,
    WorkReleasedError,
)
from tapstore.agents import logs as agent_logs
from tapstore.agents.command import expand
from tapstore.errors import NotAllowedError, NotFoundError
from tapstore.sessions.config import new_id
from tapstore.tasks.work import seek
from tapstore.testing.clock import ManualClock

REVIEWER = WorkFilter(role="reviewer")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def session(clock):
    url = f"memory://{new_id()}/s1"
    roles = ["coder", "reviewer"]
    with tapstore.create(url, roles=roles, phase="start", clock=clock) as session:
        yield session


def publish(session, name="x.py", *, type="code", consumers=(), role="coder"):
    claim = session.claim(role, agent=f"{role}-1")
    claim.publish(name, name.encode(), type=type, consumers=consumers)
    claim.release()


def do_nothing(_work):
    pass


def worker(session, handler, *, work=REVIEWER, **options):
    return Worker(session, AgentSpec(agent="r1", work=work, **options), handler)


# Needs


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("type=code", Need(type="code")),
        ("type=code:3", Need(type="code", count=3)),
        ("type=a:b", Need(type="a:b")),
        ("type=a:b:2", Need(type="a:b", count=2)),
    ],
)
def test_needs_are_written_so(text, need):
    assert Need.parse(text) == need


@pytest.mark.parametrize("text", ["code", "type=", "type=:2", "type=code:0", "name=x", "=x", ""])
def test_other_needs_are_refused(text):
    with pytest.raises(ValueError, match="type=NAME:COUNT"):
        Need.parse(text)


# What counts as work


def test_without_more_said_an_artifact_has_to_name_the_role_or_the_agent(session):
    assert "no artifact names 'reviewer' or 'r1'" in REVIEWER.missing(session.tapfile, agent="r1")
    publish(session, consumers=["somebody"])
    assert REVIEWER.missing(session.tapfile, agent="r1")
    publish(session, "y.py", consumers=["r1"])
    assert REVIEWER.missing(session.tapfile, agent="r1") == ""
    assert REVIEWER.missing(session.tapfile, agent="r2")


def test_a_phase_alone_is_enough(session):
    wanted = WorkFilter(role="reviewer", when_phase="start")
    assert wanted.missing(session.tapfile, agent="r1") == ""
    assert "not 'later'" in WorkFilter(role="reviewer", when_phase="later").missing(
        session.tapfile, agent="r1"
    )


def test_every_need_has_to_be_there_so_many_times(session):
    wanted = WorkFilter(role="reviewer", needs=(Need(type="code", count=2), Need(type="plan")))
    publish(session, "a.py")
    publish(session, "p.md", type="plan")
    assert wanted.missing(session.tapfile, agent="r1") == (
        "1 of 2 artifacts of type 'code' are there"
    )
    publish(session, "b.py")
    assert wanted.missing(session.tapfile, agent="r1") == ""
    inputs = wanted.inputs(session.tapfile, agent="r1")
    assert [a.name for a in inputs] == ["a.py", "p.md", "b.py"]


def test_what_the_role_made_itself_meets_no_need_of_it(session):
    publish(session, "a.py", role="reviewer")
    wanted = WorkFilter(role="reviewer", needs=(Need(type="code"),))
    assert wanted.missing(session.tapfile, agent="r1")


def test_a_role_that_nobody_has_is_an_error_at_once(session):
    with pytest.raises(NotAllowedError, match="coder, reviewer"):
        worker(session, do_nothing, work=WorkFilter(role="tester"))


@pytest.mark.parametrize("field", ["claim_phase", "then"])
def test_a_phase_that_is_not_declared_is_an_error_at_once(clock, field):
    url = f"memory://{new_id()}/s"
    with (
        tapstore.create(url, roles=["reviewer"], phases=["a", "b"], clock=clock) as session,
        pytest.raises(NotAllowedError, match="a, b"),
    ):
        worker(session, do_nothing, **{field: "c"})


def test_a_completed_role_has_no_work_until_it_is_reopened(session):
    publish(session, consumers=["reviewer"])
    agent = worker(session, do_nothing)
    assert agent.run_once(wait=0).ending is Ending.COMPLETED
    assert agent.run_once(wait=0) is None
    session.reopen("reviewer")
    assert agent.run_once(wait=0).ending is Ending.COMPLETED


def test_a_role_assigned_to_somebody_else_is_left_to_that_one(session):
    session.edit(lambda d: d["participants"][1].update(agent_id="r9"))
    publish(session, consumers=["reviewer"])
    assert worker(session, do_nothing).run_once(wait=0) is None


def test_the_claim_is_refused_when_the_phase_moved_on_meanwhile(session, monkeypatch):
    wanted = WorkFilter(role="reviewer", when_phase="start")
    check = WorkFilter.missing

    def missing(self, tapfile, *, agent):
        found = check(self, tapfile, agent=agent)
        session.set_phase("later")
        return found

    monkeypatch.setattr(WorkFilter, "missing", missing)
    assert seek(session, wanted, agent="r1") is None
    assert session.tapfile.slots("reviewer")[0].attempt == 0


# What a callable may do


def test_a_callable_adds_results_that_are_registered_with_the_completion(session):
    publish(session, consumers=["reviewer"])
    revisions = []

    def handler(work):
        work.add("report.md", b"fine", type="report", consumers=["coder"])
        revisions.append(session.state.refresh().rev)

    outcome = worker(session, handler, then="done").run_once(wait=0)
    assert (outcome.ending, outcome.slot) == (Ending.COMPLETED, "reviewer")
    assert session.state.refresh().rev == revisions[0] + 1
    assert session.phase == "done"
    assert session.artifacts["report.md"].read_bytes() == b"fine"


def test_claiming_may_set_a_phase(session):
    publish(session, consumers=["reviewer"])
    seen = []
    worker(session, lambda _: seen.append(session.phase), claim_phase="at it").run_once(wait=0)
    assert seen == ["at it"]


def test_an_exception_fails_the_work_and_is_in_the_log(session):
    publish(session, consumers=["reviewer"])

    def handler(_work):
        raise RuntimeError("out of tokens")

    outcome = worker(session, handler).run_once(wait=0)
    assert (outcome.ending, outcome.reason) == (
        Ending.FAILED,
        "RuntimeError: out of tokens",
    )
    assert session.tapfile.slots("reviewer")[0].reason == "RuntimeError: out of tokens"
    assert b"Traceback" in b"".join(agent_logs.read(session, "r1"))


def test_work_that_is_said_to_have_failed_has_that_reason(session):
    publish(session, consumers=["reviewer"])

    def handler(_work):
        raise WorkFailedError("no such language")

    assert worker(session, handler).run_once(wait=0).reason == "no such language"
    assert session.tapfile.slots("reviewer")[0].status == "failed"


def test_work_can_be_given_back(session):
    publish(session, consumers=["reviewer"])

    def handler(_work):
        raise WorkReleasedError("no time")

    assert worker(session, handler).run_once(wait=0).ending is Ending.RELEASED
    slot = session.tapfile.slots("reviewer")[0]
    assert (slot.status, slot.attempt, slot.reason) == ("pending", 0, "no time")


def test_an_interrupt_releases_the_work_and_goes_on(session):
    publish(session, consumers=["reviewer"])

    def handler(_work):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker(session, handler).run_once(wait=0)
    assert session.tapfile.slots("reviewer")[0].status == "pending"


def test_work_that_could_not_be_announced_is_given_back(session):
    publish(session, consumers=["reviewer"])

    def gone(_work):
        raise BrokenPipeError

    agent = Worker(session, AgentSpec(agent="r1", work=REVIEWER), pytest.fail, on_start=gone)
    with pytest.raises(BrokenPipeError):
        agent.run_once()
    assert session.tapfile.slots("reviewer")[0].status == "pending"


def test_a_handler_may_end_its_work_itself(session):
    publish(session, consumers=["reviewer"])
    outcome = worker(session, lambda work: work.fail("tired"), then="done").run_once(wait=0)
    assert (outcome.ending, outcome.reason) == (Ending.FAILED, "tired")
    assert session.phase == "start"


def test_work_whose_role_was_taken_back_is_lost_and_registers_nothing(session):
    publish(session, consumers=["reviewer"])

    def handler(work):
        work.add("report.md", b"late")
        session.reset("reviewer")

    outcome = worker(session, handler, then="done").run_once(wait=0)
    assert outcome.ending is Ending.LOST
    assert session.phase == "start"
    assert "report.md" not in session.artifacts


def test_results_that_are_refused_fail_the_work(session):
    publish(session, "x.py", consumers=["reviewer"])
    outcome = worker(session, lambda work: work.add("x.py", b"mine")).run_once(wait=0)
    assert outcome.ending is Ending.FAILED
    assert "registered by coder-1" in outcome.reason


def test_results_may_replace_what_others_registered_if_that_is_wanted(session):
    publish(session, "x.py", consumers=["reviewer"])
    agent = worker(session, lambda work: work.add("x.py", b"mine"), overwrite=True)
    assert agent.run_once(wait=0).ending is Ending.COMPLETED
    assert session.artifacts["x.py"].read_bytes() == b"mine"


def test_a_worker_that_was_stopped_takes_nothing(session):
    publish(session, consumers=["reviewer"])
    agent = worker(session, do_nothing)
    agent.stop()
    assert agent.run_once() is None


def test_idle_ends_the_run(session):
    publish(session, consumers=["reviewer"])
    assert worker(session, do_nothing).run(idle=5) == 1


def test_a_dead_agent_of_the_same_id_is_waited_for(session):
    publish(session, consumers=["reviewer"])
    seek(session, REVIEWER, agent="r1", ttl=30).claim.detach()
    agent = worker(session, do_nothing)
    assert agent.run_once(wait=10) is None
    assert agent.run_once(wait=60).ending is Ending.COMPLETED


# Arguments and output


def test_placeholders_become_arguments_of_their_own():
    values = {"output_dir": "/o", "output": "/o/x", "requirement": "a b"}
    argv = ["cc", "-o{output}", "{inputs}", "--", "{requirement}", "{other}", "{}"]
    assert expand(argv, inputs=["/i/-a", "/i/b c"], values=values) == [
        "cc", "-o/o/x", "/i/-a", "/i/b c", "--", "a b", "{other}", "{}",
    ]  # fmt: skip


def test_what_is_put_in_is_not_expanded_again():
    values = {"output_dir": "/o", "output": "", "requirement": "{inputs} {output_dir}"}
    assert expand(["{requirement}"], inputs=["/i"], values=values) == ["{inputs} {output_dir}"]


def test_inputs_inside_an_argument_are_refused():
    with pytest.raises(ValueError, match="an argument of its own"):
        CommandHandler(argv=("cat", "--files={inputs}"))


def test_a_program_that_is_not_there_is_told_before_anything_is_claimed(session):
    with pytest.raises(NotFoundError, match="no program 'no-such-program'"):
        worker(session, CommandHandler(argv=("no-such-program",)))


def test_the_tail_keeps_the_last_lines_and_is_printable():
    tail = agent_logs.Tail(size=100)
    for n in range(1000):
        tail.write(f"line {n}\r\n".encode())
    tail.write(b"\x1b[31m\xff\0")
    lines = tail.text(lines=3).splitlines()
    assert lines[:2] == ["line 998", "line 999"]
    assert lines[2].isprintable()
