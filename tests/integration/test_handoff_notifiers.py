"""Roles are woken by real commands, and by a real tmux."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from tapstore.handoffs.swarm import roles
from tapstore.handoffs.wakeups import notifiers
from tapstore.handoffs.wakeups.notifiers import SENTENCE, WakeUpError

RECORD = """
import json, os, sys
with open(sys.argv[1], "a") as stream:
    stream.write(json.dumps([sys.argv[2:], os.environ["TAPSTORE_ROLE"]]) + "\\n")
"""


def command(*argv, timeout=20.0):
    return notifiers.command(
        argv, place="/the/place", session=lambda role: f"swarm-{role}", timeout_seconds=timeout
    )


def python(text, *arguments, timeout=20.0):
    return command(sys.executable, "-c", text, *arguments, timeout=timeout)


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_gets_role_session_and_place_as_text_within_its_arguments(tmp_path):
    record = tmp_path / "record"
    notify = python(
        RECORD, str(record), "{role}", "to={session}:0", "{place}", "{rol} {{x}}", "#{y}"
    )
    notify("coder")
    assert record.read_text() == (
        '[["coder", "to=swarm-coder:0", "/the/place", "{rol} {{x}}", "#{y}"], "coder"]\n'
    )


@pytest.mark.parametrize(
    ("session", "says"),
    [
        (lambda _: roles.read("/nowhere")["coder"].session, "roles.tsv"),
        (lambda _: "", "coder has no session"),
    ],
    ids=["roles that can't be read", "no session"],
)
def test_a_session_that_can_not_be_looked_up_is_a_failed_wake_up(tmp_path, session, says):
    marker = tmp_path / "marker"
    notify = notifiers.command(["touch", str(marker), "{session}"], place="", session=session)
    with pytest.raises(WakeUpError, match=says):
        notify("coder")
    assert not marker.exists()


def test_no_shell_sees_what_is_put_in(tmp_path):
    marker = tmp_path / "marker"
    notify = notifiers.command(
        [sys.executable, "-c", RECORD, str(tmp_path / "record"), "{session}"],
        place="",
        session=lambda _: f"$(touch {marker}); touch {marker}",
    )
    notify("coder")
    assert not marker.exists()
    assert "$(touch" in (tmp_path / "record").read_text()


def test_a_command_that_fails_says_what_it_said():
    with pytest.raises(WakeUpError, match="exited with 3: no such pane"):
        python("import sys; print('no such\\npane', file=sys.stderr); sys.exit(3)")("coder")


def test_a_command_that_is_not_there_is_a_failed_wake_up():
    with pytest.raises(WakeUpError, match="cannot run"):
        command("/nowhere/at/all")("coder")


def test_without_room_for_what_a_command_says_the_wake_up_has_failed(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "away"))
    with pytest.raises(WakeUpError, match="no room"):
        command("true")("coder")


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path):
    pids = tmp_path / "pids"
    child = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open({str(pids)!r} + "~", "w") as stream:
    stream.write(f"{{os.getpid()}} {{child.pid}}")
os.rename({str(pids)!r} + "~", {str(pids)!r})
time.sleep(600)
"""
    with pytest.raises(WakeUpError, match="had not ended after 2 s"):
        python(child, timeout=2.0)("coder")
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not is_running(pid))


def test_what_a_command_leaves_in_the_background_is_not_waited_for():
    text = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)'])"
    )
    started = time.monotonic()
    python(text, timeout=60.0)("coder")
    assert time.monotonic() - started < 4


def is_running(pid):
    """Whether the process is there, and no zombie that its parent has not waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# tmux


@pytest.fixture
def project(tmp_path):
    """A swarm whose coder is a program in tmux that keeps what is typed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    socket = tmp_path / "s"
    typed = tmp_path / "typed"
    tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
    reader = f"cat > {typed}"
    subprocess.run([*tmux, "new-session", "-d", "-s", "swarm-coder", reader], check=True)
    (tmp_path / ".swarmforge").mkdir()
    (tmp_path / ".swarmforge" / "tmux-socket").write_text(f"{socket}\n")
    (tmp_path / ".swarmforge" / "roles.tsv").write_text(
        f"coder\tcoder\t{tmp_path}\tswarm-coder\tCoder\tclaude\ttask\n"
        f"cleaner\tcleaner\t{tmp_path}\tswarm-cleaner\tCleaner\tclaude\ttask\n"
    )
    until(typed.exists)
    yield tmp_path
    subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


def test_tmux_types_one_sentence_and_ends_the_line(project):
    notifiers.tmux(project)("coder")
    # A terminal makes a line feed of the carriage return; the line feed is another one.
    until(lambda: (project / "typed").read_text() == f"{SENTENCE}\n\n")


def test_a_role_without_a_session_in_tmux_is_a_failed_wake_up(project):
    with pytest.raises(WakeUpError, match="tmux exited with 1"):
        notifiers.tmux(project)("cleaner")


def test_a_role_that_is_not_in_the_swarm_is_a_failed_wake_up(project):
    with pytest.raises(WakeUpError, match="stranger"):
        notifiers.tmux(project)("stranger")


def test_sessions_are_looked_up_each_time(project):
    notify = notifiers.tmux(project)
    roles = project / ".swarmforge" / "roles.tsv"
    roles.write_text(roles.read_text().replace("swarm-cleaner", "swarm-coder"))
    notify("cleaner")
    until(lambda: SENTENCE in (project / "typed").read_text())


def test_a_swarm_without_a_socket_has_nobody_to_wake(project):
    (project / ".swarmforge" / "tmux-socket").unlink()
    with pytest.raises(WakeUpError, match="no tmux session"):
        notifiers.tmux(project)("coder")
