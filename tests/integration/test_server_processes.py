"""No server outlives who started it, nor leaves anything behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tapstore.testing.servers.guard import GRACE_SECONDS
from tests.servers.process import (
    REPOSITORY,
    Process,
    ServerFailedError,
    free_ports,
    run,
    temporary_folder,
)

SLEEP = ["sleep", "600"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done"]
# Starts a server, says its pid and its folder, and waits to be killed.
STARTER = """
import sys, threading
from tests.servers.process import Process, temporary_folder
def start():
    global folder
    folder = temporary_folder("killed")
    path = folder.__enter__()
    server = Process("server", ["sh", "-c", "sleep 600 & echo $! > new; mv new child; wait"], path)
    server.wait_until((path / "child").exists, "ready")
    print(server.pid, path, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()  # the thread that forked ends here
sys.stdin.read()
"""


@pytest.fixture
def folder():
    with temporary_folder("test") as path:
        yield path


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.02)


def state(pid):
    """The letter that `ps` shows for it; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    """Whether a process runs; one that waits for its parent to notice does not."""
    return state(pid) not in ("", "Z")


@pytest.fixture
def starter():
    """A process that has started a server in a thread that has ended since."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True,
    ) as process:  # fmt: skip
        pid, path = process.stdout.readline().split()
        process.server, process.folder = int(pid), Path(path)
        yield process
        process.kill()


def test_a_server_survives_the_thread_that_started_it(starter):
    child = int((starter.folder / "child").read_text())
    assert [alive(pid) for pid in (starter.pid, starter.server, child)] == [True] * 3


def test_a_killed_test_run_takes_its_servers_and_folders_with_it(starter):
    child = int((starter.folder / "child").read_text())
    os.kill(starter.pid, signal.SIGKILL)
    until(lambda: not alive(starter.server) and not alive(child))
    until(lambda: not starter.folder.exists())


def test_a_killed_guard_takes_the_server_with_it(folder):
    server = Process("server", SLEEP, folder)
    server._guard.kill()
    until(lambda: not alive(server.pid))
    server.stop()


def test_stopping_ends_the_server_and_its_children(folder):
    server = Process(
        "server", ["sh", "-c", "sleep 600 & echo $! > new; mv new child; wait"], folder
    )
    server.wait_until((folder / "child").exists, "ready")
    child = int((folder / "child").read_text())
    server.stop()
    server.stop()
    until(lambda: not alive(child))
    assert (alive(server.pid), server.running) == (False, False)


def test_a_stopped_server_can_be_ended(folder):
    server = Process("server", SLEEP, folder)
    os.kill(server.pid, signal.SIGSTOP)
    until(lambda: state(server.pid) == "T")
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < GRACE_SECONDS
    assert not alive(server.pid)


def test_killing_waits_for_nothing(folder):
    server = Process("server", STUBBORN, folder)
    server.wait_until(lambda: "started" in server.tail(), "ready")
    server.kill()
    assert not alive(server.pid)


def test_a_server_that_ends_early_is_an_error_with_its_last_words(folder):
    server = Process("server", ["sh", "-c", "echo no disk >&2; exit 3"], folder)
    with pytest.raises(
        ServerFailedError, match=r"server ended with status 3 before up\n  \| no disk"
    ):
        server.wait_until(lambda: False, "up")


def test_a_server_that_does_not_get_ready_is_an_error(folder):
    server = Process("server", SLEEP, folder)
    with pytest.raises(ServerFailedError, match=r"not up in 0\.1 s"):
        server.wait_until(lambda: False, "up", seconds=0.1)
    server.stop()


def test_a_program_that_is_not_there_is_an_error(folder):
    with pytest.raises(ServerFailedError, match="could not be started"):
        Process("server", ["/no/such/program"], folder)


def test_a_program_that_fails_is_an_error_with_what_it_said(folder):
    with pytest.raises(ServerFailedError, match="status 2: broken"):
        run(["sh", "-c", "echo broken >&2; exit 2"], folder)


def test_a_port_that_another_was_quicker_to_take_is_not_the_servers(folder):
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        port = quicker.getsockname()[1]
        server = Process("server", SLEEP, folder)
        assert not server.listens_on(port)
        server.stop()
        assert not server.listens_on(port)
    [port] = free_ports(1)
    listen = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    server = Process("server", [sys.executable, "-c", listen + "s.accept()", str(port)], folder)
    server.wait_until(lambda: server.listens_on(port), "listening")
    server.stop()


def test_free_ports_are_all_different():
    assert len(set(free_ports(50))) == 50
