"""The server of these tests is what its module says: real, alone, and gone at the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import nfs as nfs_module
from tests.servers.process import REPOSITORY, ServerFailedError

STARTER = """
import signal
from tests.servers import nfs
with nfs.server(clients=1) as running:
    print(running.process.pid, running.clients[0].process.pid, running.export.parent, flush=True)
    signal.pause()
"""


def ask(client, script):
    return client.check(["sh", "-c", script]).strip()


def test_what_one_client_writes_the_other_reads(nfs):
    first, second = nfs.clients
    ask(first, "echo hello >greeting")
    assert ask(second, "cat greeting") == "hello"
    assert (nfs.export / "greeting").read_text() == "hello\n"


def test_each_client_mounts_the_version_that_was_asked_for(nfs):
    for client in nfs.clients:
        assert f"vers={nfs.version}," in ask(client, "grep ' /run/nfs ' /proc/self/mountinfo")


def test_each_client_is_a_host_of_its_own(nfs):
    hosts = [ask(c, "hostname; cat /proc/sys/kernel/random/boot_id") for c in nfs.clients]
    assert len({*hosts[0].split(), *hosts[1].split()}) == 4


def test_the_clock_of_the_second_client_is_an_hour_ahead(nfs):
    first, second = (int(ask(client, "date +%s")) for client in nfs.clients)
    assert 3590 < second - first < 3660


def test_a_program_gets_input_and_gives_output_and_status(nfs):
    done = nfs.clients[0].run(["sh", "-c", "cat; echo no >&2; exit 3"], input="yes")
    assert (done.stdout, done.stderr, done.returncode) == ("yes", "no\n", 3)


def test_a_program_that_is_killed_dies_with_all_that_it_started(nfs):
    client = nfs.clients[0]
    with client.start(["sh", "-c", "sleep 600 & echo $!; wait"]) as running:
        child = running.stdout.readline().strip()
        running.kill()
        assert running.wait() == -signal.SIGKILL
    assert client.run(["grep", "State:.[^Z]", f"/proc/{child}/status"]).returncode


def test_a_program_that_takes_too_long_is_killed_and_an_error(nfs):
    with pytest.raises(subprocess.TimeoutExpired):
        nfs.clients[0].run(["sleep", "600"], timeout=0.5)


def test_a_program_that_is_not_there_is_an_error_that_names_it(nfs):
    with pytest.raises(ServerFailedError, match="no-such-program"):
        nfs.clients[0].check(["no-such-program"])


def test_no_client_can_change_the_files_of_the_host(nfs, tmp_path):
    assert "Read-only" in nfs.clients[0].run(["touch", tmp_path / "x"]).stderr
    assert not (tmp_path / "x").exists()


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("nfs", ["4.2"], indirect=True)
def test_server_and_clients_end_with_the_process_that_started_them(nfs):
    del nfs  # only to skip where it cannot run
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        serving, guest, folder = starter.stdout.readline().split()
        assert is_running(serving)
        assert is_running(guest)
        starter.kill()
    deadline = time.monotonic() + 30
    while is_running(serving) or is_running(guest) or os.path.exists(folder):
        assert time.monotonic() < deadline, "something was left"
        time.sleep(0.05)


def test_without_its_programs_the_error_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(nfs_module, "PROGRAMS", ("no-such-server",))
    root = os.geteuid() == 0
    expected = "no-such-server is not installed: make servers" if root else "need root"
    with pytest.raises(nfs_module.ServerMissingError, match=expected), nfs_module.server():
        pass
