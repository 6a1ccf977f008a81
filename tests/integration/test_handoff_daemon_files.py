"""How daemons of a swarm are found and stopped, beside processes that are none."""

import os
import subprocess
import sys

import pytest

from tapstore.errors import WaitTimeoutError
from tapstore.handoffs.wakeups.daemon import DaemonFiles


@pytest.fixture
def files(tmp_path):
    return DaemonFiles(tmp_path)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / ".swarmforge" / "daemon"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def other():
    """A process that has nothing to do with it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def gone():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_does_not_end_is_named_and_not_killed(files, folder, other):
    (folder / "handoffd.pid").write_text(f"{other.pid}\n")
    with pytest.raises(WaitTimeoutError, match=f"kill {other.pid}"):
        files.stop(timeout_seconds=0.2)
    assert other.poll() is None
    assert sorted(os.listdir(folder)) == ["handoffd.pid"]


def test_a_pid_file_that_a_crash_left_is_removed(files, folder):
    (folder / "handoffd.pid").write_text(f"{gone()}\n")
    assert files.stop() is False
    assert os.listdir(folder) == []


@pytest.mark.parametrize("text", [None, "", "0\n", "-1\n", "x\n", "9" * 30, "\udcff"])
def test_a_new_daemon_takes_the_place_of_one_that_is_gone(files, folder, text):
    content = f"{gone()}\n" if text is None else text
    (folder / "handoffd.pid").write_bytes(content.encode("utf-8", "surrogateescape"))
    with files.running():
        assert (folder / "handoffd.pid").read_text() == f"{os.getpid()}\n"
    assert not (folder / "handoffd.pid").exists()


def test_a_daemon_that_runs_keeps_its_place(files, folder, other):
    (folder / "handoffd.pid").write_text(f"{other.pid}\n")
    with files.running():
        pass
    assert (folder / "handoffd.pid").read_text() == f"{other.pid}\n"


def test_an_old_request_to_stop_does_not_stop_a_new_daemon(files, folder):
    (folder / "stop").touch()
    with files.running():
        assert not files.is_asked_to_stop


def test_a_request_to_stop_that_is_being_made_is_left_to_who_makes_it(files, folder, other):
    (folder / "handoffd.pid").write_text(f"{other.pid}\n")
    (folder / "stop").touch()
    with files.running():
        assert files.is_asked_to_stop


def test_somebody_watches_while_a_daemon_runs(files, folder):
    assert not files.is_watched()
    with files.running():
        assert files.is_watched()
        assert DaemonFiles(folder.parents[1]).is_watched()
    assert not files.is_watched()


def test_two_who_look_at_once_do_not_take_each_other_for_a_daemon(files, folder):
    import fcntl

    with files.running():
        pass
    with (folder / "tapstore.lock").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        assert not files.is_watched()
