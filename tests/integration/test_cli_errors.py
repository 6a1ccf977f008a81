"""What is said, and exited with, when something is wrong; and that nothing hostile is obeyed."""

import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest

import tapstore
from tapstore.cli import app
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    """A session in the present folder."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "-r", "reviewer", "--phase", "a", "--phase", "b")
    return tmp_path


# What goes wrong, and what is said


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["status", "--nope"], 2, "No such option"),
        (["clame", "coder"], 2, "there is no command 'clame'; did you mean claim"),
        (["xyzzy"], 2, "see `tapstore --help`"),
        (["task"], 2, "`tapstore task --help` explains"),
        (["complete"], 2, "set TAPSTORE_CLAIM, or --claim, to the id that `tapstore claim ROLE`"),
        (["wait"], 2, "name what to wait for: --phase"),
        (["publish"], 2, "a FILE, - for standard input, or --uri URI"),
        (["publish", "-"], 2, "--as NAME"),
        (["task", "send", "coder", "x", "--root", "."], 2, "has to name its session: --id ID"),
        (["publish", "--uri", "x.py", "--as", "x"], 2, "a file is named without --uri"),
        (["task", "send", "coder", "x", "-w", ".", "--root", "."], 2, "give one of the two"),
        (["agent", "run", "--role", "coder", "-w", ".", "--root", ".", "true"], 2, "one of the"),
        (["phase", "--expected", "a"], 2, "goes with the NAME of the phase"),
        (["init", "-r", "coder:0"], 2, "1 to 1000 are possible"),
        (["watch", "--webhook", "ftp://host"], 2, "no URL of the form https://host/path"),
        (["edit", "--set", "a..b=1"], 2, "is no path of a field: write a.b.c"),
        (["task", "send", "coder"], 2, "what is to be done?"),
        (["claim", "tester"], 3, "its roles are coder, reviewer"),
        (["phase", "c"], 3, "its phases are, in order: a, b"),
        (["phase", "b", "--expected", "b"], 3, "is in phase 'a', not 'b'"),
        (["reopen", "coder"], 3, "is pending; only a completed or failed one can be reopened"),
        (["reset", "coder"], 3, "is pending, not working"),
        (["task", "send", "tester", "x"], 3, "its roles are coder, reviewer"),
        (["gc", "--older-than", "1m"], 3, "is too short"),
        (["init"], 4, "there is a session at"),
        (["wait", "--phase", "b", "--timeout", "0"], 4, "the phase is 'a', not 'b'"),
        (["wait", "--completed", "coder", "--timeout", "0"], 4, "coder is pending"),
        (["complete", "--claim", "0000"], 5, "claim 0000 in session s has ended"),
        (["fetch", "x.py"], 6, "session s has no artifact 'x.py'; it has (none)"),
        (["edit", "--unset", "nothing"], 6, "there are version, session_id, participants"),
        (["edit", "--set", "participants.x.agent_id=1"], 6, "has no 'x'; it has coder"),
        (["gc", "--parked", "nothing"], 6, "nothing"),
        (["edit", "--set", "participants.coder.status=busy"], 7, "must be one of 'pending'"),
        (["edit", "--set", "participants.coder.heartbeat=never"], 7, "2024-04-15T10:30:00Z"),
        (["publish", "--uri", "weird://x/y", "--as", "x", "--checksum", "md5:1"], 7, "sha256:"),
    ],
)  # fmt: skip
def test_an_error_says_what_would_have_been_valid(arguments, status, says):
    called = call(*arguments)
    assert (called.status, called.out) == (status, "")
    assert called.err.startswith("error: ")
    assert says in " ".join(called.err.split())


def test_of_many_artifacts_an_error_names_those_that_could_be_meant():
    for number in range(11):
        ok("publish", "-", "--as", f"report-{number}.md")
    ok("publish", "-", "--as", "square.py")
    said = call("fetch", "sqare.py").err
    assert "it has 12, such as a/square.py; `tapstore artifacts` lists them" in said


def test_an_error_is_an_object_with_json():
    called = call("claim", "tester", "--json")
    assert called.out == ""
    assert called.error.keys() == {"type", "message", "exit_code"}
    assert (called.error["type"], called.error["exit_code"]) == ("NotAllowedError", 3)


def test_a_wrong_option_is_an_object_with_json():
    assert call("status", "--nope", "--json").error["type"] == "UsageError"


def test_json_of_a_command_that_is_run_is_not_ours():
    called = call("lock", "x", "--nope", "--", "echo", "--json")
    assert called.err.startswith("error: ")


def test_interrupting_exits_as_a_shell_would_say(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    called = call("watchdog")
    assert (called.status, called.err) == (130, "")


def test_without_a_command_the_help_is_shown():
    called = call()
    assert called.status == 2
    assert "tapstore demo" in called.err


def test_each_command_is_listed_on_one_line():
    called = ok("--help")
    for section in app.COMMANDS.values():
        for name in section:
            (line,) = re.findall(rf"^  {name} {{2,}}(\S.*)$", called.out, re.MULTILINE)
            assert not line.endswith("...")


def test_init_does_not_look_upwards_and_does_not_say_so():
    assert "else this folder]" in " ".join(ok("init", "--help").out.split())


def test_the_version_is_that_of_the_package():
    assert ok("--version").out == f"tapstore {tapstore.__version__}\n"


# What is copied from a message does what it says

ROLE = "$(touch owned); x # y"


def named(text: str) -> list[list[str]]:
    """The commands that a message names, as a shell would split them."""
    joined = re.sub(r"\n  ", "\n", text)
    return [shlex.split(command) for command in re.findall("`(tapstore [^`]*)`", joined)]


def test_a_command_that_a_message_names_means_the_role_whatever_it_is_called(tmp_path):
    place = ("-w", str(tmp_path / "other"))
    ok("init", "-r", ROLE, *place)
    ok("edit", "--set", f"participants.{ROLE}.agent_id=c1", *place)
    messages = [call("claim", ROLE, "--agent", "c2", *place).err]
    ok("claim", ROLE, "--agent", "c1", *place)
    messages += [call("claim", ROLE, *place).err, call("reopen", ROLE, *place).err]
    ok("reset", ROLE, *place)
    ok("claim", ROLE, "--agent", "c1", "--ttl", "1ms", *place)
    deadline = time.monotonic() + 20
    while "stale" not in (shown := ok("status", *place).out):
        assert time.monotonic() < deadline
    messages += [shown]
    ok("reset", ROLE, *place)
    ok("fail", "no", "--claim", ok("claim", ROLE, "--agent", "c1", *place).out.strip(), *place)
    messages += [call("claim", ROLE, *place).err, ok("status", *place).out]
    assert [named(message) for message in messages] == [
        [["tapstore", "edit", "--set", f"participants.{ROLE}.agent_id="]],
        [["tapstore", "reset", ROLE]],
        [["tapstore", "reset", ROLE]],
        [["tapstore", "reset", ROLE]],
        [["tapstore", "reopen", ROLE]],
        [["tapstore", "reopen", ROLE]],
    ]


def test_a_place_that_a_message_names_is_the_place_whatever_it_is_called(tmp_path):
    url = f"file://{tmp_path}/a b'$(touch owned)"
    assert named(call("status", "-w", url).err)[0][:4] == ["tapstore", "init", "-w", url]
    _, _, shown = ok("init", "-r", "coder", "-w", url).err.partition("next: ")
    assert shlex.split(shown) == ["export", f"TAPSTORE_URL={url}"]


# Where nothing can be printed


def in_shell(redirected: str, *arguments: str) -> int:
    script = f'exec "$@" {redirected}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tapstore", *arguments]
    return subprocess.run(command, check=False).returncode


def test_closed_streams_change_no_result():
    assert in_shell(">&- 2>&-", "status") == 0


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_an_error_that_nobody_can_read_keeps_its_exit_code(redirected):
    assert in_shell(redirected, "claim", "tester") == 3


def test_a_result_that_nobody_can_read_is_an_error():
    assert in_shell(">/dev/full 2>/dev/null", "status") == 9


# What is read from files is not obeyed


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r"


def test_hostile_names_and_reasons_reach_no_terminal(session):
    claim = ok("claim", "coder", "--agent", "c1", "--reason", HOSTILE, "--json").json["claim"]
    ok("edit", "--set", f"note={HOSTILE}")
    ok("fail", f"because{HOSTILE}", "--claim", claim)
    tapfile = session / ".tap" / "Tapfile"
    assert "\x1b" not in tapfile.read_text()
    for arguments in (
        ["status"],
        ["log"],
        ["validate"],
        ["watch", "--after", "0", "--timeout", "0"],
    ):
        called = call(*arguments)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", called.out + called.err)
    assert r"because\x1b]0;owned\x07" in ok("log").out


def test_a_line_break_in_a_reason_makes_no_line_of_its_own():
    claim = ok("claim", "coder", "--json").json["claim"]
    ok("fail", "first\nerror: forged", "--claim", claim)
    assert not re.search("^error: forged", ok("log").out + ok("status").out, re.MULTILINE)


def test_json_gives_a_hostile_reason_as_it_is():
    claim = ok("claim", "coder", "--json").json["claim"]
    ok("fail", HOSTILE, "--claim", claim)
    slot = ok("status", "--json").json["slots"][0]
    assert slot["reason"] == HOSTILE


# A warning is no error


@pytest.mark.filterwarnings("default::tapstore.sessions.view.ViewWarning")
def test_a_commit_that_could_not_be_shown_is_a_warning(session):
    os.remove(session / ".tap" / "Tapfile")
    (session / ".tap" / "Tapfile").mkdir()
    called = call("phase", "b", "--json")
    assert called.status == 0
    shown = [json.loads(line) for line in called.err.splitlines()]
    assert shown[0]["warning"]["type"] == "ViewWarning"
    assert "can neither be read nor published" in shown[0]["warning"]["message"]
