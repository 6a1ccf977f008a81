"""Agents of commands from the shell, and what they printed."""

import json
import signal
import subprocess
import sys

import pytest

from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "-r", "reviewer", "--phase", "coding")
    return tmp_path


def agent(*options, program="", role="coder", run=call):
    inputs = ["{inputs}"] if role == "reviewer" else []
    return run("agent", "run", "--role", role, "--agent", "a1", "--once", "--idle", "0", *options,
               "--", sys.executable, "-c", program, *inputs)  # fmt: skip


@pytest.fixture
def task():
    ok("task", "send", "coder", "write it", "--output", "it.py")


@pytest.mark.usefixtures("task")
def test_a_command_that_succeeds_completes_its_task():
    called = agent("--then", "review", "--type", "code", "--consumer", "reviewer", "--json",
                   program="print('print(1)')", run=ok)  # fmt: skip
    assert called.json.items() >= {"outcome": "completed", "slot": "coder", "task_id": "s"}.items()
    assert ok("fetch", "it.py", "-o", "-").out == "print(1)\n"
    assert ok("phase").out == "review\n"


@pytest.mark.usefixtures("task")
def test_a_command_that_fails_exits_with_1_and_says_why():
    called = agent(program="raise SystemExit('no idea')")
    assert called.status == 1
    assert called.out.startswith("a1 has failed coder of session s: exit code 1: no idea")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no task is in its inbox, and no artifact names 'coder' or 'a1' as its consumer"),
        (["--when-phase", "review"], "the phase is 'coding', not 'review'"),
        (["--needs", "type=code:2"], "0 of 2 artifacts of type 'code' are there"),
    ],
)
def test_no_work_exits_with_4_and_says_what_is_missing(options, says):
    called = agent(*options)
    assert called.status == 4
    assert says in called.err


def test_a_role_that_is_done_is_not_waited_for_in_silence():
    ok("complete", "--claim", ok("claim", "coder").out.strip())
    assert "coder is completed (`tapstore reopen coder` starts" in agent("--idle", "10ms").err
    ok("claim", "reviewer", "--agent", "other")
    assert "reviewer is held by other" in agent(role="reviewer").err


def test_an_agent_that_has_to_wait_says_what_for():
    said, _ = agent("--idle", "10ms").err.splitlines()
    assert said.startswith("a1 waits for work as coder: no task is in its inbox")


@pytest.mark.usefixtures("task")
def test_work_that_was_lost_exits_with_5():
    program = (
        "from tapstore.sessions.opening import open; open('.').reset('coder');"
        "import time; time.sleep(60)"
    )
    assert agent("--ttl", "600ms", program=program).status == 5


def test_exit_codes_that_are_fine_complete_the_work():
    ok("publish", "-", "--as", "x.py", "--consumer", "reviewer", "--type", "code")
    program = "import sys; print(len(sys.argv), 'findings'); sys.exit(1)"
    agent("--ok-exit", "0,1", "--needs", "type=code", "--stdout-as", "review.txt",
          program=program, role="reviewer", run=ok)  # fmt: skip
    assert ok("fetch", "review.txt", "-o", "-").out == "2 findings\n"


def test_a_command_may_run_in_the_folder_of_its_inputs():
    ok("publish", "-", "--as", "x.py", "--consumer", "reviewer", "--type", "code")
    program = "import os; print(os.listdir())"
    agent("--chdir", "--stdout-as", "seen.txt", program=program, role="reviewer", run=ok)
    assert ok("fetch", "seen.txt", "-o", "-").out == "['x.py']\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--needs", "code"], "type=NAME:COUNT"),
        (["--ok-exit", "x"], "write 0,1"),
        (["--ok-exit", "256"], "write 0,1"),
    ],
)
def test_a_malformed_option_is_refused_with_an_example(options, says):
    called = agent(*options)
    assert called.status == 2
    assert says in called.err


def test_inputs_within_an_argument_are_refused():
    called = call("agent", "run", "--role", "coder", "--", "cat", "--file={inputs}")
    assert called.status == 2
    assert "has to be an argument of its own" in called.err


def test_a_command_that_is_not_there_is_refused_before_anything_is_claimed():
    assert call("agent", "run", "--role", "coder", "--", "./missing").status == 6
    assert ok("status", "--json").json["slots"][0]["status"] == "pending"


def test_a_role_that_is_not_there_is_refused_with_the_list():
    called = call("agent", "run", "--role", "tester", "--once", "--", "true")
    assert called.status == 3
    assert "its roles are coder, reviewer" in called.err


def test_agents_find_work_in_all_sessions_below_a_root(tmp_path):
    root = tmp_path / "root"
    for name in ("one", "two"):
        ok("init", "-w", str(root / name), "-r", "writer")
        ok("task", "send", "writer", "write", "-w", str(root / name))
    called = ok("agent", "run", "--root", str(root), "--role", "writer", "--agent", "a1",
                "--idle", "100ms", "--json", "--", sys.executable, "-c", "")  # fmt: skip
    assert {done["session_id"] for done in called.jsons} == {"one", "two"}


@pytest.fixture
def damaged(tmp_path):
    """A root with a session that can't be opened, whose name would move the cursor."""
    session = tmp_path / "root" / "\u202eone" / ".tap" / "session"
    session.parent.mkdir(parents=True)
    session.write_text("garbage")
    return ("agent", "run", "--root", str(tmp_path / "root"), "--role", "writer", "--idle", "0")


def test_a_session_that_fails_is_warned_of_and_what_it_is_called_is_not_obeyed(damaged):
    called = ok(*damaged, "--", "true")
    assert called.err.startswith("warning: file://")
    assert r"\u202eone: " in called.err


def test_a_session_that_fails_is_warned_of_in_json(damaged):
    assert json.loads(ok(*damaged, "--json", "--", "true").err)["warning"].keys() == {
        "type", "message",
    }  # fmt: skip


def test_a_task_dropped_at_a_root_goes_to_the_session_it_names(tmp_path):
    root = tmp_path / "root"
    ok("init", "-w", str(root / "one"), "-r", "writer")
    ok("task", "send", "writer", "write", "--root", str(root), "--id", "one")
    called = ok("agent", "run", "--root", str(root), "--role", "writer", "--agent", "a1",
                "--once", "--idle", "20s", "--json", "--", sys.executable, "-c", "")  # fmt: skip
    assert called.json["session_id"] == "one"


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_the_work_back(number):
    program = "print('begun', flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-m", "tapstore", "agent", "run", "--role", "coder", "--agent", "a1",
         "--", sys.executable, "-c", program],
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert b"has claimed coder" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert ok("status", "--json").json["slots"][0]["status"] == "pending"


# What they printed


@pytest.fixture
def printed(task):  # noqa: ARG001
    agent(
        program="import sys; sys.stdout.buffer.write(b'\\x1b[31mred\\tx\\r\\n\\xff last')", run=ok
    )


@pytest.mark.usefixtures("printed")
def test_what_was_printed_is_shown_and_not_obeyed():
    lines = ok("logs", "a1").out.splitlines()
    assert [line for line in lines if line.startswith(r"\x1b[31mred ")]
    assert lines[-1].startswith("\N{REPLACEMENT CHARACTER} last")


@pytest.mark.usefixtures("printed")
def test_what_was_printed_can_be_had_as_it_is():
    assert b"\x1b[31mred\tx\r\n\xff last" in ok("logs", "a1", "--raw").data


@pytest.mark.usefixtures("printed")
def test_what_was_printed_can_be_had_line_by_line():
    lines = [entry["line"] for entry in ok("logs", "a1", "--json").jsons]
    assert "\x1b[31mred\tx" in lines


@pytest.mark.usefixtures("printed")
def test_following_an_agent_that_has_no_log_yet_says_so_and_shows_what_it_prints_later(session):
    with subprocess.Popen(
        [sys.executable, "-m", "tapstore", "logs", "a2", "-f"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert "no log of a2 yet, only of a1" in process.stderr.readline()
        (session / "logs" / "a2.log").write_text("hello\n")
        assert process.stdout.readline() == "hello\n"
        process.kill()


@pytest.mark.usefixtures("printed")
def test_who_has_a_log_is_listed():
    assert ok("logs").out == "a1\n"


def test_an_agent_without_a_log_is_not_found():
    called = call("logs", "nobody")
    assert called.status == 6
    assert "it has logs of (nobody)" in called.err


# Hand-offs


def hand_off(*options):
    return ok("handoff", "send", "--role", "reviewer", "--to", "coder", "--message", "m", *options)


def test_a_hand_off_that_is_done_exits_with_0_and_one_that_failed_with_1():
    hand_off()
    assert agent("--handoffs", program="raise SystemExit('no idea')").status == 1
    called = agent("--handoffs", "--idle", "5s", program="print('fine')", run=ok)
    assert "attempt 2" in called.err
    assert called.out.startswith("a1 has completed 50_")


def test_no_hand_off_exits_with_4():
    called = agent("--handoffs")
    assert called.status == 4
    assert "no hand-off waits for 'coder'" in called.err


def test_a_hand_off_that_the_command_completed_and_left_is_completed():
    hand_off()
    program = (
        "import subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'tapstore', 'handoff', 'done'], check=True)"
    )
    assert agent("--handoffs", program=program).status == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--root", "."],
        ["--when-phase", "coding"],
        ["--needs", "type=code"],
        ["--claim-phase", "coding"],
        ["--then", "review"],
    ],
)
def test_what_is_for_claims_is_refused_with_hand_offs(options):
    if options[0] == "--root":
        called = call("agent", "run", "--role", "coder", "--handoffs", *options, "--", "true")
    else:
        called = agent("--handoffs", *options)
    assert called.status == 2
    assert f"{options[0]} does not go with --handoffs" in called.err


def test_a_batch_of_anything_but_hand_offs_is_refused():
    called = agent("--batch")
    assert called.status == 2
    assert "add --handoffs" in called.err


def test_a_lease_that_is_out_of_bounds_is_refused():
    called = agent("--handoffs", "--ttl", "10ms")
    assert called.status == 3
    assert "a lease lasts 1 s to" in called.err
