"""Agents at work on hand-offs, as processes that are killed, stopped and asked to end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import tapstore
from tapstore.handoffs.queue import opening, records
from tapstore.handoffs.queue import settings as settings_file
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.references import Reference

TAPSTORE = (sys.executable, "-m", "tapstore")


@pytest.fixture
def session(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder", "reviewer"]) as session:
        settings_file.save(session.store, b"max_attempts: 3\n")
        yield session


@pytest.fixture
def ran(tmp_path):
    """A file with a line for each run of a command."""
    path = tmp_path / "ran"
    path.touch()
    return path


def send(session, message="m", priority=50, to="coder", **more):
    lines = {"type": "note", "to": to, "priority": f"{priority:02}", "message": message, **more}
    draft = "".join(f"{name}: {value}\n" for name, value in lines.items())
    return str(opening.open(session, role="reviewer", agent="r1").send(draft.encode()).name)


def record(session, name, role="coder"):
    return Endings(session.store, Places(role)).record(name)


def sh(script, *arguments):
    return ("sh", "-c", script, "sh", *map(str, arguments))


class Agent:
    def __init__(self, session, agent, *argv, options=(), ttl="1s"):
        command = [*TAPSTORE, "agent", "run", "-w", session.url, "--role", "coder", "--handoffs"]
        command += ["--agent", agent, "--ttl", ttl, "--json", *options, "--", *argv]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def signal(self, number):
        os.kill(self.process.pid, number)

    def result(self):
        """Its outcomes, and the exit code."""
        out, err = self.process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return [json.loads(line) for line in out.splitlines()], self.process.returncode


@contextmanager
def ended(started):
    try:
        yield started
    finally:
        for agent in started:
            agent.process.kill()
            agent.process.wait()
            agent.process.stdout.close()
            agent.process.stderr.close()


def agents(*started):
    return ended(started)


def wait_until(condition, *, within=30):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def lines(path):
    return path.read_text().splitlines()


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


NOTE = 'echo "$TAPSTORE_HANDOFF" >> "$1"'


def test_twenty_hand_offs_are_worked_off_in_order(session, ran):
    names = [send(session, priority=priority) for _ in range(5) for priority in (50, 10, 99, 10)]
    with agents(Agent(session, "a1", *sh(NOTE, ran), options=["--idle", "0"])) as (agent,):
        outcomes, code = agent.result()
    assert code == 0
    assert lines(ran) == sorted(names)
    assert {outcome["outcome"] for outcome in outcomes} == {"completed"}
    assert all(record(session, name) is not None for name in names)


def test_an_agent_that_waits_does_what_is_sent_later(session, ran):
    with agents(Agent(session, "a1", *sh(NOTE, ran))) as (agent,):
        for count in (1, 2, 3):
            send(session)
            wait_until(lambda count=count: len(lines(ran)) == count)
        agent.signal(signal.SIGTERM)
        assert len(agent.result()[0]) == 3


def test_two_agents_of_one_role_do_each_hand_off_once(session, ran):
    names = [send(session) for _ in range(12)]
    script = f"{NOTE}; sleep 0.05"
    options = ["--idle", "300ms"]
    two = [Agent(session, agent, *sh(script, ran), options=options, ttl="20s") for agent in "ab"]
    with agents(*two):
        done = [outcome for agent in two for outcome in agent.result()[0]]
    assert sorted(lines(ran)) == names
    assert sorted(outcome["handoffs"][0] for outcome in done) == names


def test_what_a_killed_agent_held_is_taken_over_and_completed_once(session, ran):
    name = send(session)
    script = f'{NOTE}; test "$TAPSTORE_ATTEMPT" = 2 || exec sleep 60'
    with agents(Agent(session, "a1", *sh(script, ran))) as (first,):
        wait_until(lambda: lines(ran))
        first.signal(signal.SIGKILL)
        with agents(Agent(session, "a2", *sh(script, ran), options=["--once"])) as (second,):
            outcomes, code = second.result()
    assert code == 0
    assert (outcomes[0]["attempt"], outcomes[0]["outcome"]) == (2, "completed")
    assert lines(ran) == [name, name]
    headers = record(session, name).headers
    assert (headers[records.AGENT], headers[records.ATTEMPT]) == ("a2", "2")


def test_an_agent_started_again_under_its_id_goes_on_at_once(session, ran):
    send(session)
    script = f'{NOTE}; test $(wc -l < "$1") = 2 || exec sleep 60'
    with agents(Agent(session, "a1", *sh(script, ran), ttl="1h")) as (first,):
        wait_until(lambda: lines(ran))
        first.signal(signal.SIGKILL)
    options = ["--once", "--idle", "0"]
    with agents(Agent(session, "a1", *sh(script, ran), options=options, ttl="1h")) as (again,):
        outcomes, _ = again.result()
    assert (outcomes[0]["attempt"], outcomes[0]["outcome"]) == (1, "completed")


def test_a_second_agent_of_the_same_id_on_one_host_is_refused_and_one_of_another_is_not(
    session, ran
):
    send(session)
    with agents(Agent(session, "a1", *sh(f"{NOTE}; exec sleep 60", ran), ttl="1h")) as (first,):
        wait_until(lambda: lines(ran))
        options = ["--idle", "0"]
        with agents(*(Agent(session, a, "true", options=options) for a in ("a1", "a2"))) as two:
            (none, refused), (nothing, fine) = (agent.result() for agent in two)
        assert (none, refused) == ([], 3)
        assert (nothing, fine) == ([], 0)
        assert first.process.poll() is None
    assert len(lines(ran)) == 1


def test_a_lease_is_renewed_as_long_as_the_command_runs(session, ran):
    send(session)
    slow = Agent(session, "a1", *sh(f"{NOTE}; sleep 3", ran), options=["--once"])
    with agents(slow):
        wait_until(lambda: lines(ran))
        options = ["--idle", "2500ms"]
        with agents(Agent(session, "a2", *sh(NOTE, ran), options=options)) as (other,):
            assert other.result()[0] == []
        assert slow.result()[0][0]["outcome"] == "completed"
    assert len(lines(ran)) == 1


def test_a_lost_lease_ends_the_command_and_publishes_nothing(session, ran):
    name = send(session)
    script = 'echo $$ >> "$1"; echo late > "$TAPSTORE_OUTPUT_DIR/out"; exec sleep 60'
    with agents(Agent(session, "a1", *sh(script, ran), options=["--once"])) as (zombie,):
        wait_until(lambda: lines(ran))
        zombie.signal(signal.SIGSTOP)
        options = ["--once", "--stdout-as", "out"]
        with agents(Agent(session, "a2", "echo", "done", options=options)) as (second,):
            assert second.result()[1] == 0
        assert not has_ended(lines(ran)[0])
        zombie.signal(signal.SIGCONT)
        outcomes, code = zombie.result()
    assert (outcomes[0]["outcome"], code) == ("lost", 5)
    wait_until(lambda: has_ended(lines(ran)[0]))
    assert session.artifacts["out"].read_text() == "done\n"
    assert record(session, name).headers[records.AGENT] == "a2"


def test_a_command_that_fails_leaves_a_dead_letter_with_its_history(session, ran):
    bad, good = send(session, "bad"), send(session, "good")
    script = f'{NOTE}; case "$2" in *bad*) echo "no idea" >&2; exit 3;; esac'
    options = ["--idle", "3s"]
    argv = sh(script, ran, "{requirement}")
    with agents(Agent(session, "a1", *argv, options=options)) as (agent,):
        outcomes, code = agent.result()
    assert code == 0
    assert [outcome["outcome"] for outcome in outcomes].count("failed") == 3
    assert outcomes[0]["reason"] == "exit code 3: no idea"
    assert sorted(lines(ran)) == [bad, bad, bad, good]
    dead = record(session, bad)
    assert records.is_dead(dead)
    assert dead.headers[records.HISTORY].count("a1") == 3
    assert dead.headers[records.HISTORY].count("exit code 3: no idea") == 3
    assert not records.is_dead(record(session, good))


def test_a_command_that_takes_too_long_is_ended_and_its_hand_off_given_back(session, ran):
    send(session)
    options = ["--once", "--timeout", "300ms"]
    with agents(Agent(session, "a1", *sh('echo $$ >> "$1"; exec sleep 60', ran), options=options,
                      ttl="1h")) as (agent,):  # fmt: skip
        outcomes, code = agent.result()
    assert (outcomes[0]["outcome"], code) == ("failed", 1)
    assert outcomes[0]["reason"].startswith("timed out after 0.3 s")
    assert has_ended(lines(ran)[0])
    with agents(Agent(session, "a2", "true", options=["--once"], ttl="1h")) as (second,):
        assert second.result()[0][0]["attempt"] == 2


def test_a_wrong_checksum_is_refused_with_the_reason_and_the_queue_goes_on(session, ran):
    before = session.publish("x.py", b"before", producer="r1")
    wrong = send(session, artifacts=str(Reference("x.py", before.checksum[7:])))
    after = session.publish("x.py", b"after", producer="r2", overwrite=True)
    right = send(session, artifacts=str(Reference("x.py", after.checksum[7:])))
    options = ["--idle", "3s"]
    argv = sh(f'{NOTE}; cat "$2" >> "$1"; echo >> "$1"', ran, "{inputs}")
    with agents(Agent(session, "a1", *argv[:-1], "{inputs}", options=options)) as (agent,):
        outcomes, _ = agent.result()
    assert lines(ran) == [right, "after"]
    (reason,) = {o["reason"] for o in outcomes if o["handoffs"] == [wrong]}
    assert f"with {before.checksum}, but r2 has registered it with {after.checksum}" in reason
    assert records.is_dead(record(session, wrong))
    assert not records.is_dead(record(session, right))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_gives_the_hand_off_back(session, ran, number):
    name = send(session)
    script = 'trap "echo asked >> $1; exit 0" TERM; echo on >> "$1"; sleep 60 & wait'
    with agents(Agent(session, "a1", *sh(script, ran), ttl="1h")) as (agent,):
        wait_until(lambda: lines(ran))
        agent.signal(number)
        outcomes, code = agent.result()
    assert (outcomes[0]["outcome"], code) == ("released", 128 + number)
    assert lines(ran) == ["on", "asked"]
    assert record(session, name) is None
    with agents(Agent(session, "a2", "true", options=["--once"], ttl="1h")) as (second,):
        assert second.result()[0][0].items() >= {"outcome": "completed", "attempt": 2}.items()


def test_a_batch_is_one_run(session, ran):
    names = [send(session, str(number)) for number in range(3)]
    script = 'echo "$TAPSTORE_HANDOFF" >> "$1"; cat > "$TAPSTORE_OUTPUT_DIR/told.json"'
    options = ["--batch", "--idle", "0"]
    with agents(Agent(session, "a1", *sh(script, ran), options=options)) as (agent,):
        outcomes, _ = agent.result()
    assert lines(ran) == [" ".join(names)]
    assert outcomes[0]["handoffs"] == names
    told = json.loads(session.artifacts["told.json"].read_bytes())
    assert [handoff["name"] for handoff in told["handoffs"]] == names
    assert (told["handoff"], told["batch"]) == (None, outcomes[0]["batch"])
    assert all(record(session, name) is not None for name in names)


def test_a_command_hands_on_under_the_role_of_its_agent(session):
    first = send(session, "sum.py")
    message = "handed on"
    argv = [*TAPSTORE, "handoff", "send", "--to", "reviewer", "--message", message,
            "--reply-to", "current"]  # fmt: skip
    with agents(Agent(session, "a1", *argv, options=["--once"], ttl="1h")) as (agent,):
        assert agent.result()[1] == 0
    (item,) = opening.open(session, role="reviewer", agent="r1").next().items
    headers = item.message.headers
    assert (headers["from"], headers["message"]) == ("coder", message)
    assert headers["reply_to"] == record(session, first).id


def test_the_environment_says_what_it_is_about_and_no_claim(session, monkeypatch):
    name = send(session)
    monkeypatch.setenv("TAPSTORE_CLAIM", "that-of-another-agent")
    script = 'env | grep ^TAPSTORE_ | sort > "$TAPSTORE_OUTPUT_DIR/env"'
    with agents(Agent(session, "a1", *sh(script), options=["--once"])) as (agent,):
        agent.result()
    told = dict(line.split("=", 1) for line in session.artifacts["env"].read_text().splitlines())
    assert (
        told.items()
        >= {
            "TAPSTORE_ROLE": "coder",
            "TAPSTORE_AGENT": "a1",
            "TAPSTORE_URL": session.url,
            "TAPSTORE_HANDOFF": name,
            "TAPSTORE_ATTEMPT": "1",
        }.items()
    )
    assert "TAPSTORE_CLAIM" not in told


def test_what_a_command_prints_is_in_the_log_of_its_agent(session):
    name = send(session)
    with agents(Agent(session, "a1", "echo", "fine", options=["--once"])) as (agent,):
        agent.result()
    log = Path(session.store.local_path("logs/a1.log")).read_text()
    assert f"{name} in s, attempt 1 for coder" in log
    assert "\nfine\n" in log


def test_whatever_agents_are_killed_each_hand_off_is_completed_with_its_result(session):
    settings_file.save(session.store, b"max_attempts: 1000\n")
    names = [send(session, str(number)) for number in range(40)]
    script = 'sleep 0.2; echo "$TAPSTORE_ATTEMPT" > "$TAPSTORE_OUTPUT_DIR/$TAPSTORE_HANDOFF.txt"'
    choose = random.Random(20261201)
    started = []

    def start(agent):
        started.append(Agent(session, agent, *sh(script)))
        return started[-1]

    def left():
        return [name for name in names if record(session, name) is None]

    with ended(started):
        at_work = {agent: start(agent) for agent in ("a", "b", "c")}
        end = time.monotonic() + 120
        kills = 0
        while left():
            assert time.monotonic() < end, f"{len(left())} are left"
            time.sleep(choose.uniform(0.5, 1.5))
            victim = choose.choice(list(at_work))
            at_work.pop(victim).signal(signal.SIGKILL)
            kills += 1
            # Half of them come back under their names and go on, the others are replaced.
            successor = victim if choose.random() < 0.5 else f"{victim}{kills}"
            at_work[successor] = start(successor)
    assert kills >= 3
    done = [record(session, name) for name in names]
    assert not any(map(records.is_dead, done))
    registered = {a.name: a for a in session.tapfile.artifacts}
    for name in names:
        assert int(session.artifacts.of(registered[f"{name}.txt"]).read_text()) >= 1
