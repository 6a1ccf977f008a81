"""What people see at a glance."""

import json
import re
import shlex
import subprocess
import sys
import time

import pytest

from tapstore import registry
from tapstore.cli import lockfile
from tapstore.tasks.inbox import Inbox
from tapstore.testing.faults import Fault, FaultyStore, refuse
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "-r", "reviewer", "--phase", "coding", "--phase", "done")
    return tmp_path


def row(slot: str) -> str:
    (line,) = [line for line in ok("status").out.splitlines() if line.split()[:1] == [slot]]
    return " ".join(line.split())


def test_the_session_its_phase_and_its_last_change_come_first():
    first, second, *_ = ok("status").out.splitlines()
    assert first.startswith("session s at file://")
    assert second.startswith("phase coding (1 of 2: coding, done), revision 1, ")


def test_columns_stand_in_line():
    lines = ok("status").out.splitlines()
    header = next(line for line in lines if line.startswith("role"))
    for name in ("coder", "reviewer"):
        line = next(line for line in lines if line.startswith(name))
        assert line.index("pending") == header.index("status")


def test_a_working_slot_shows_who_since_when_and_its_heartbeat():
    ok("claim", "coder", "--agent", "c1")
    assert row("coder").startswith("coder working c1 ")
    assert row("coder").endswith("s ago 2 1 of 3")


def test_a_pending_slot_says_that_nothing_is_there_and_who_is_at_work():
    ok("claim", "coder", "--agent", "c1")
    assert row("reviewer").endswith("no task or artifact for it yet; at work: coder")


def test_a_pending_slot_with_inputs_waits_for_an_agent():
    ok("publish", "-", "--as", "x.py", "--consumer", "reviewer")
    assert row("reviewer").endswith("waits for an agent; for it: x.py")


def test_a_pending_slot_with_a_task_waits_for_an_agent():
    ok("task", "send", "reviewer", "look")
    assert row("reviewer").endswith("waits for an agent; 1 task in its inbox")


def test_a_failed_slot_says_why_and_what_helps():
    claim = ok("claim", "coder").out.strip()
    ok("fail", "no idea", "--claim", claim)
    assert row("coder").endswith("`tapstore reopen coder` starts another round: no idea")


def test_a_claim_that_was_taken_back_says_why():
    ok("claim", "coder")
    ok("reset", "coder", "--reason", "stuck")
    assert row("coder").endswith("stuck")


def test_a_stale_claim_is_marked_with_what_helps():
    ok("claim", "coder", "--ttl", "10ms")
    deadline = time.monotonic() + 20
    while "stale: whoever looks for work takes it back, or `tapstore reset coder`" not in row(
        "coder"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_completed_slot_with_a_task_says_what_it_takes():
    ok("complete", "--claim", ok("claim", "coder").out.strip())
    ok("task", "send", "coder", "more")
    says = "1 task in its inbox; `tapstore reopen coder` starts another round"
    assert row("coder").endswith(says)


def test_an_agent_that_edits_the_tapfile_is_marked_as_never_judged(session):
    tapfile = session / ".tap" / "Tapfile"
    tapfile.write_text(tapfile.read_text().replace("status: pending", "status: working", 1)
                       .replace("agent_id: ''", "agent_id: plain", 1))  # fmt: skip
    assert row("coder").endswith("no heartbeats: never taken back by itself")


def test_the_inbox_of_a_role_is_read_once_whatever_the_number_of_its_slots(tmp_path, monkeypatch):
    ok("init", "-w", str(tmp_path / "many"), "-r", "coder:50", "-r", "reviewer")
    read, look = [], Inbox.look
    monkeypatch.setattr(Inbox, "look", lambda self: read.append(self.role) or look(self))
    ok("status", "-w", str(tmp_path / "many"))
    assert read == ["coder", "reviewer"]


def test_an_edit_that_was_set_aside_is_listed(session):
    tapfile = session / ".tap" / "Tapfile"
    tapfile.write_text(tapfile.read_text().replace("session_id: s", "session_id: other"))
    parked = ok("status", "--json").json["parked"]
    assert [key.rpartition("/")[0] for key in parked] == [".tap/conflicts"]
    assert f"an edit of the Tapfile was refused and set aside: {parked[0]}" in ok("status").out


def test_an_edit_that_was_set_aside_goes_by_the_command_that_is_named(session):
    tapfile = session / ".tap" / "Tapfile"
    tapfile.write_text(tapfile.read_text().replace("session_id: s", "session_id: other"))
    (command,) = re.findall("`tapstore (gc .*)`", ok("status").out)
    without = [word for word in shlex.split(command) if word != "--yes"]
    assert "the same with --yes removes it" in ok(*without).err
    ok(*shlex.split(command))
    assert ok("status", "--json").json["parked"] == []


def test_a_task_for_a_role_that_is_not_there_is_shown(session):
    (session / "inbox" / "codr").mkdir()
    (session / "inbox" / "codr" / "job.json").write_text("{}")
    says = "there is no role 'codr'; the roles are coder, reviewer"
    assert f"nobody reads inbox/codr/job.json: {says}" in ok("status").out
    (task,) = ok("task", "list", "--json").json["tasks"]
    assert (task["role"], task["standing"], task["reason"]) == ("codr", "unreadable", says)


def test_signals_are_listed():
    ok("signal", "go ahead")
    assert "signals given: go ahead" in ok("status").out


@pytest.fixture
def left_behind(session, monkeypatch):
    """A lock file of a plain program that died; the times of files can't be set back."""
    monkeypatch.setattr(lockfile, "_BRIEF_SECONDS", 0)
    path = session / ".tap" / "locks" / "tapfile.lock"
    path.touch()
    return path


@pytest.mark.usefixtures("left_behind")
def test_a_lock_file_left_behind_is_shown_with_the_command_that_helps():
    shown = ok("status").out
    assert "tapfile.lock is held by a program that left no name (the file is empty), for" in shown
    assert "`tapstore locks remove-tapfile-lock " in shown


def test_a_person_removes_the_lock_file_that_they_saw(left_behind):
    identity = ok("locks", "--json").json["tapfile_lock"]["identity"]
    ok("locks", "remove-tapfile-lock", identity)
    assert not left_behind.exists()


def test_another_lock_file_than_the_one_that_was_seen_stays(left_behind):
    identity = ok("locks", "--json").json["tapfile_lock"]["identity"]
    left_behind.unlink()
    left_behind.touch()
    assert call("locks", "remove-tapfile-lock", identity).status == 4
    assert left_behind.exists()


def test_who_may_not_write_sees_the_state_without_a_judgement(session, monkeypatch):
    ok("claim", "coder", "--agent", "c1")
    open_store = registry.open_store

    def read_only(*arguments, **options):
        store = open_store(*arguments, **options)
        fault = refuse(30)  # EROFS
        return FaultyStore(store, *(Fault(verb, times=10**6, before=fault)
                                    for verb in ("put", "delete", "now")))  # fmt: skip

    monkeypatch.setattr(registry, "open_store", read_only)
    (coder, _) = ok("status", "-w", str(session), "--json").json["slots"]
    assert (coder["agent"], coder["health"]) == ("c1", None)
    assert "c1" in ok("status").out


STARTED = """
import json, sys
from tapstore.cli.app import run
status = run(["status"])
heavy = "asyncio fsspec http jsonschema_rs ssl urllib.request watchfiles yaml".split()
print(json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


def test_status_loads_nothing_heavy():
    result = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout.splitlines()[-1]) == [0, []]
