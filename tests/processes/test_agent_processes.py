"""Agents that are killed, stopped and raced, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import tapstore
from tapstore.agents.workspace import workspace

WORKER = Path(__file__).with_name("agent_worker.py")
TTL = 1.0


@pytest.fixture
def session(tmp_path):
    roles = ["coder", "reviewer"]
    with tapstore.create(
        str(tmp_path / "s"), roles=roles, phase="p", claim_ttl=TTL, max_attempts=0
    ) as session:
        yield session


def drop(session, **fields):
    task = {"task_id": session.id, **fields}
    Path(session.store.local_path("inbox/coder/task.json")).write_text(json.dumps(task))


class Agent:
    def __init__(self, url, agent, *argv, role="coder"):
        command = [sys.executable, str(WORKER), url, role, agent, str(TTL), *map(str, argv)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert json.loads(self.process.stdout.readline()) == {"ready": agent}

    def result(self):
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return json.loads(output)


@contextmanager
def agents(*started):
    try:
        yield started
    finally:
        for agent in started:
            agent.process.kill()
            agent.process.wait()
            agent.process.stdout.close()


def wait_until(condition, *, within=30):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_folder_of_a_killed_agent_goes_with_the_next_piece_of_work(
    session, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    drop(session)
    with agents(Agent(session.url, "a1", "sleep", "60")) as (first,):
        wait_until(lambda: any(tmp_path.glob("tapstore-work-*/output")))
        first.process.kill()
        first.process.wait()
    assert any(tmp_path.glob("tapstore-work-*/output"))
    with agents(Agent(session.url, "a2", "true")) as (second,):
        assert second.result()["ending"] == "completed"
    assert not any(tmp_path.glob("tapstore-work-*"))


def test_the_folder_of_a_live_agent_stays():
    with workspace() as first, workspace():
        assert first.is_dir()


def test_what_only_looks_like_the_folder_of_a_dead_agent_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".lock").touch()
    (tmp_path / "tapstore-work-link").symlink_to("mine")
    (tmp_path / "tapstore-work-file").touch()
    (tmp_path / "tapstore-work-young").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with workspace():
        pass
    assert sorted(tmp_path.rglob("*")) == before


def operations(session, name):
    return [entry for entry in session.log() if name in entry.operations]


def test_work_of_a_killed_agent_is_taken_over_and_ends_right(session, tmp_path):
    drop(session)
    script = f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 60"
    with agents(Agent(session.url, "a1", "sh", "-c", script)) as (first,):
        wait_until((tmp_path / "pid").exists)
        with agents(Agent(session.url, "a2", "echo", "done")) as (second,):
            os.kill(first.process.pid, signal.SIGKILL)
            killed = time.monotonic()
            assert second.result()["ending"] == "completed"
            assert time.monotonic() - killed < 10 * TTL
    assert session.artifacts["out"].read_text() == "done\n"
    assert len(operations(session, "complete")) == 1
    assert len(operations(session, "reset")) == 1
    assert session.tapfile.slots("coder")[0].attempt == 2
    # Its command died with it.
    wait_until(lambda: not is_running(int((tmp_path / "pid").read_text())))


def test_an_agent_started_again_under_its_id_goes_on(session, tmp_path):
    drop(session)
    script = f"touch {tmp_path}/on; exec sleep 60"
    with agents(Agent(session.url, "a1", "sh", "-c", script)) as (first,):
        wait_until((tmp_path / "on").exists)
        os.kill(first.process.pid, signal.SIGKILL)
    with agents(Agent(session.url, "a1", "echo", "done")) as (again,):
        assert again.result()["ending"] == "completed"


def test_a_stopped_agent_that_wakes_up_too_late_changes_nothing(session, tmp_path):
    drop(session)
    script = f"touch {tmp_path}/on; while ! test -e {tmp_path}/go; do sleep 0.02; done; echo late"
    with agents(Agent(session.url, "a1", "sh", "-c", script)) as (zombie,):
        wait_until((tmp_path / "on").exists)
        os.kill(zombie.process.pid, signal.SIGSTOP)
        with agents(Agent(session.url, "a2", "echo", "done")) as (second,):
            assert second.result()["ending"] == "completed"
        (tmp_path / "go").touch()
        os.kill(zombie.process.pid, signal.SIGCONT)
        assert zombie.result()["ending"] == "lost"
    assert session.artifacts["out"].read_text() == "done\n"
    assert len(operations(session, "complete")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_releases_the_work(session, tmp_path, number):
    drop(session)
    script = f"trap 'touch {tmp_path}/asked; exit 0' TERM; touch {tmp_path}/on; sleep 60 & wait"
    with agents(Agent(session.url, "a1", "sh", "-c", script)) as (agent,):
        wait_until((tmp_path / "on").exists)
        agent.process.send_signal(number)
        result = agent.result()
    assert (result["ending"], result["signals"]) == ("released", [number.name])
    assert (tmp_path / "asked").exists()
    slot = session.tapfile.slots("coder")[0]
    assert (slot.status, slot.attempt) == ("pending", 0)


def test_a_signal_ends_an_agent_that_waits(session):
    with agents(Agent(session.url, "a1", "true")) as (agent,):
        agent.process.send_signal(signal.SIGTERM)
        assert agent.result()["ending"] is None


def test_two_agents_that_wait_for_one_task_run_it_once(session, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    script = f"mktemp {runs}/XXXXXX; sleep 0.1"
    for round_number in (1, 2):
        with agents(*(Agent(session.url, f"a{n}", "sh", "-c", script) for n in range(3))) as three:
            drop(session, round=round_number)
            # Only who waits is asked to stop: one that just ends would die of it.
            wait_until(lambda: any(agent.process.poll() is not None for agent in three))
            for agent in three:
                if agent.process.poll() is None:
                    agent.process.send_signal(signal.SIGTERM)
            results = [agent.result() for agent in three]
        endings = sorted(str(result["ending"]) for result in results)
        assert endings == ["None", "None", "completed"], results
        assert len(list(runs.iterdir())) == round_number
        session.reopen("coder")


def test_a_task_file_that_is_written_slowly_is_read_when_it_is_whole(session):
    path = Path(session.store.local_path("inbox/coder/task.json"))
    text = json.dumps({"task_id": "s", "requirement": "x" * 50}, indent=1)
    with agents(Agent(session.url, "a1", "printf", "%s", "{requirement}")) as (agent,):
        with path.open("w") as file:
            for character in text:
                file.write(character)
                file.flush()
                time.sleep(0.005)
        assert agent.result()["ending"] == "completed"
    assert session.artifacts["out"].read_text() == "x" * 50


def test_output_of_100_megabytes_does_not_fill_the_memory(session):
    drop(session)
    script = "head -c 100000000 /dev/zero"
    with agents(Agent(session.url, "a1", "sh", "-c", script)) as (agent,):
        result = agent.result()
    assert result["ending"] == "completed"
    assert session.tapfile.artifact("out").size == 100_000_000
    assert result["max_rss_kb"] < 120_000


def test_an_agent_at_a_root_serves_sessions_made_later(tmp_path):
    with agents(Agent(str(tmp_path), "a1", "echo", "done")) as (agent,):
        url = str(tmp_path / "team" / "later")
        with tapstore.create(url, roles=["coder"], phase="p") as session:
            drop(session)
            assert agent.result()["session"] == "later"
            assert session.phase == "done"
