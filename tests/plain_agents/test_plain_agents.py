"""The test subjects do what they are meant to do, among themselves, without tapstore."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.plain_agents import launch


@pytest.fixture
def session(tmp_path: Path) -> Path:
    with launch.python("init", tmp_path) as agent:
        agent.finish()
    return tmp_path


def tapfile(session: Path) -> dict:
    return yaml.safe_load((session / ".tap" / "Tapfile").read_text())


def participant(session: Path, role: str) -> dict:
    (found,) = [p for p in tapfile(session)["participants"] if p["role"] == role]
    return found


def lock_file(session: Path) -> Path:
    return session / ".tap" / "locks" / "tapfile.lock"


@contextmanager
def locked(session: Path) -> Iterator[None]:
    while True:
        try:
            lock_file(session).touch(exist_ok=False)
        except FileExistsError:
            time.sleep(0.001)
        else:
            break
    yield
    lock_file(session).unlink()


class IndentingDumper(yaml.SafeDumper):
    """Puts list items to the right of their key, as other YAML libraries do."""

    def increase_indent(self, flow=False, indentless=False):  # noqa: ARG002
        return super().increase_indent(flow, False)


def test_they_know_nothing_of_tapstore():
    for name in ("plain_agent.py", "plain_agent.sh"):
        code = re.sub(
            r'""".*?"""|^#.*?$', "", (launch.FOLDER / name).read_text(), flags=re.S | re.M
        )
        assert "tapstore" not in code


@pytest.mark.parametrize("options", [[], ["--rename"]], ids=["in place", "rename"])
def test_python_and_shell_agents_lose_nothing_among_themselves(session, options):
    with (
        launch.python("increment", session, 40, "--agent", "p", *options) as python,
        launch.python("increment", session, 40, "--agent", "q", *options) as other,
        launch.shell("increment", session, 20, "s") as shell,
    ):
        events = [*python.finish(), *other.finish(), *shell.finish()]
        acknowledged = python.attempts() + other.attempts()
    state = tapfile(session)
    assert sorted(state["attempts"]) == sorted(acknowledged)
    assert (state["counter_p"], state["counter_q"], state["counter_s"]) == (40, 40, 20)
    assert state["last_attempt_s"] == "s-000019"
    assert {event["event"] for event in events} == {"attempt", "acknowledged"}


@pytest.mark.parametrize("start", [launch.python, launch.shell])
def test_a_lost_update_is_noticed(session, start):
    before = (session / ".tap" / "Tapfile").read_text()
    with start("increment", session, 1_000_000) as agent:
        agent.wait_for("acknowledged")
        with locked(session):
            (session / ".tap" / "Tapfile").write_text(before)
        assert agent.wait_for("lost")["found"] == 0


def test_coder_and_reviewer_work_through_their_pipeline(session):
    with (
        launch.python("review", session) as reviewer,
        launch.python("code", session, "--inbox") as coder,
    ):
        coder.finish()
        reviewer.finish()
    state = tapfile(session)
    assert state["current_phase"] == "review_completed"
    assert [p["status"] for p in state["participants"]] == ["completed", "completed"]
    assert [artifact["type"] for artifact in state["artifacts"]] == ["code", "report"]
    for artifact in state["artifacts"]:
        digest = hashlib.sha256((session / artifact["path"]).read_bytes()).hexdigest()
        assert artifact["checksum"] == f"sha256:{digest}"
    assert list((session / "inbox" / "coder").iterdir()) == []


def test_the_coder_works_without_holding_the_lock(session):
    with launch.python("code", session, "--gate", "-") as coder:
        coder.wait_for("working")
        with launch.python("increment", session, 1) as other:
            other.finish()
        assert participant(session, "coder")["status"] == "working"
        coder.go_on()
        coder.finish()
    assert participant(session, "coder")["status"] == "completed"


def test_the_coder_gives_up_when_the_lock_is_taken_at_its_end(session):
    with launch.python("code", session, "--gate", "-") as coder:
        coder.wait_for("working")
        with locked(session):
            coder.go_on()
            coder.wait_for("gave up")
    assert participant(session, "coder")["status"] == "working"


def test_the_reviewer_holds_the_lock_while_it_works(session):
    with launch.python("code", session, "--work", 0) as coder:
        coder.finish()
    with launch.python("review", session, "--gate", "-") as reviewer:
        reviewer.wait_for("working")
        assert lock_file(session).exists()
        reviewer.go_on()
        reviewer.finish()
    assert not lock_file(session).exists()


def test_the_zombie_completes_a_role_that_passed_to_somebody_else(session):
    with launch.python("zombie", session, "--gate", "-") as zombie:
        zombie.wait_for("working")
        with launch.shell("status", session, "coder", "working", "somebody-else") as shell:
            shell.finish()
        zombie.go_on()
        zombie.finish()
    coder = participant(session, "coder")
    assert (coder["status"], coder["agent_id"]) == ("completed", "somebody-else")


def test_the_stale_zombie_undoes_what_happened_meanwhile(session):
    with launch.python("zombie", session, "--gate", "-", "--stale") as zombie:
        zombie.wait_for("working")
        with launch.python("increment", session, 1, "--agent", "p") as other:
            other.finish()
        assert tapfile(session)["counter_p"] == 1
        zombie.go_on()
        zombie.finish()
    assert "counter_p" not in tapfile(session)


def test_a_gate_file_ends_the_work(session, tmp_path):
    gate = tmp_path / "go on"
    with launch.python("zombie", session, "--gate", gate) as zombie:
        zombie.wait_for("working")
        gate.touch()
        zombie.finish()
    assert participant(session, "coder")["status"] == "completed"


def test_a_killed_agent_leaves_its_lock_behind(session):
    with launch.python("code", session) as coder:
        coder.finish()
    with launch.python("review", session, "--gate", "-") as reviewer:
        reviewer.wait_for("working")
    assert os.path.getsize(lock_file(session)) == 0


@pytest.mark.parametrize("dumper", [yaml.SafeDumper, IndentingDumper])
@pytest.mark.parametrize("sort_keys", [True, False])
def test_the_shell_agent_changes_one_role_and_keeps_the_rest(session, dumper, sort_keys):
    before = tapfile(session)
    before["participants"][0]["claim"] = {"role": "reviewer", "status": "x", "agent_id": "y"}
    before["artifacts"] = [{"name": "a", "role": "reviewer", "status": "kept"}]
    before["unknown"] = ["- role: reviewer", {"role": "reviewer", "status": "kept"}]
    text = yaml.dump(before, Dumper=dumper, sort_keys=sort_keys)
    (session / ".tap" / "Tapfile").write_text(text)
    with launch.shell("status", session, "reviewer", "working", "sh-1") as shell:
        shell.finish()
    after = tapfile(session)
    changed = after["participants"][1]
    assert (changed["status"], changed["agent_id"]) == ("working", "sh-1")
    assert changed["last_activity"] is not None
    after["participants"][1] = before["participants"][1]
    assert after == before


def test_the_shell_agent_refuses_json_and_leaves_no_lock(session):
    (session / ".tap" / "Tapfile").write_text(json.dumps(tapfile(session)))
    with launch.shell("increment", session, 1) as shell:
        assert shell.process.wait(timeout=60) == 2
    assert not lock_file(session).exists()
