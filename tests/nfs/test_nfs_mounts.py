"""What `mounts` and `namesakes` say of real mounts of real clients."""

import json
import os
import sys

import pytest

LOOK = """
from tapstore.stores import mounts

def look(folder):
    mount, findings = mounts.look(folder)
    return [mount.type, mount.version, mount.server, [finding.code for finding in findings]]
"""

NAMESAKES = """
import socket, time
from tapstore.locks import namesakes, process
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

def find():
    booted = store.now() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return [
        [each.host, each.agent]
        for each in namesakes.find(
            store, ".tap/locks/tapfile.lock", host=socket.gethostname(), here=process.myself(),
            booted=booted,
        )
    ]
"""


@pytest.fixture
def look(pythons):
    pythons[0].run(LOOK)
    return lambda folder: pythons[0].ask(f"look({folder!r})")


@pytest.fixture
def mounted(nfs, look):
    """Mounts the export once more, elsewhere."""
    client = nfs.clients[0]
    at = "/run/other"

    def mount(*options):
        nfs.mount(client, "nosharecache", *options, at=at)
        return look(at)

    yield mount
    client.check(["umount", at])


def test_a_mount_with_defaults_is_told_by_version_and_server(nfs, look):
    kind, version, server, codes = look(nfs.clients[0].mount)
    assert (kind, version, server) == (
        {"3": "nfs", "4.2": "nfs4"}[nfs.version], nfs.version, "192.0.2.1",
    )  # fmt: skip
    expected = {"nfs-absence-cached"}
    if nfs.version == "3":
        expected |= {"nfs-version-3", "nfs-locks-local"}  # our mounts of v3 have `nolock`
    assert set(codes) == expected


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("soft", "nfs-soft"),
        ("softerr", "nfs-soft"),
        ("nocto", "nfs-nocto"),
        ("actimeo=600", "nfs-cache-long"),
        ("acdirmax=61", "nfs-cache-long"),
        ("ro", "read-only"),
    ],
)
def test_each_dangerous_option_is_found_as_the_kernel_writes_it(mounted, option, code):
    assert code in mounted(option)[3]


@pytest.mark.parametrize("option", ["soft", "nocto"])
def test_init_refuses_what_doctor_calls_fatal(nfs, mounted, option):
    mounted(option)
    command = [sys.executable, "-m", "tapstore"]
    folder = f"/run/other/{os.urandom(8).hex()}"
    made = nfs.clients[0].run([*command, "init", "-w", folder, "--json"])
    assert made.returncode == 3, made.stderr
    assert f"mounted `{option}`" in made.stderr
    nfs.clients[0].check(["mkdir", folder])
    examined = nfs.clients[0].run([*command, "doctor", folder, "--json"])
    assert examined.returncode == 3
    assert f"mounted `{option}`" in examined.stdout
    assert nfs.clients[0].run(["ls", "-A", folder]).stdout == ""


@pytest.mark.parametrize("option", ["noac", "lookupcache=pos", "lookupcache=none"])
def test_what_asks_the_server_more_often_is_not_blamed(mounted, option):
    assert "nfs-absence-cached" not in mounted(option)[3]


def test_a_file_system_without_hard_links_is_found_by_trying(nfs, look):
    client = nfs.clients[0]
    client.check(["mkdir", "-p", "/run/linkless"])
    client.check(["mount", "-t", "mqueue", "mqueue", "/run/linkless"])
    try:
        assert look("/run/linkless")[3] == ["no-hard-links"]
    finally:
        client.check(["umount", "/run/linkless"])


def test_a_host_with_the_name_of_another_one_is_told(nfs, pythons, place):
    first, second = pythons
    for python in pythons:
        python.run(NAMESAKES)
        python.run(f"store = LocalStore({place!r})")
        python.run(
            "lock = TapfileLock(store, '.tap/locks/tapfile.lock',"
            " Owner('of ' + socket.gethostname(), 'x', host='twin'))"
        )
        python.run("socket.sethostname('twin')")
    first.run("assert lock.acquire(10)")
    try:
        assert second.ask("find()") == [["twin", "of guest1"]] * 2  # the lock and its own file
        assert first.ask("find()") == []
        examined = nfs.clients[1].run([sys.executable, "-m", "tapstore", "doctor", place, "--json"])
        told = {each["probe"]: each for each in json.loads(examined.stdout)["findings"]}
        assert told["host-name"]["severity"] == {"3": "warning", "4.2": "fatal"}[nfs.version]
        assert "of guest1" in told["host-name"]["seen"]
    finally:
        first.run("lock.release()")
        first.run("socket.sethostname('guest1')")
        second.run("socket.sethostname('guest2')")
