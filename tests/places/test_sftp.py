"""OpenSSH's SFTP as a place, through fsspec's own filesystem."""

from __future__ import annotations

import os
import signal

import paramiko
import pytest

from tapstore.errors import StoreError, UnsupportedOperationError
from tapstore.keys import TEMP_MARK
from tapstore.stores import sftp
from tapstore.stores.fileservers import adapt
from tapstore.stores.sftp import SftpFiles
from tapstore.testing.stores import StoreTests
from tapstore.types import OVERWRITE, Capabilities
from tests.places import races
from tests.places.served import ServedPlace, descendants, stopped
from tests.servers.process import free_ports


@pytest.fixture
def place(sftp_server):
    return ServedPlace(sftp_server)


class TestSftp(StoreTests):
    capabilities = Capabilities(create=True, update=False, conditional_delete=False, files=False)
    clock_resolution_seconds = 1.0

    @pytest.fixture
    def place(self, sftp_server):
        return ServedPlace(sftp_server)


def test_of_four_processes_one_creates_each_file_and_all_see_it_whole(place):
    races.one_creates_and_all_see_it_whole(place, 30)


def test_of_four_processes_one_claims_the_role_each_time(place):
    races.one_claims(place, 10)


def test_four_processes_that_commit_lose_nothing(place):
    races.no_commit_is_lost(place, 10)


def test_folders_that_hold_nothing_are_removed_from_the_server(place):
    with place.open() as store:
        for key in ("new/a/b/1", "new/a/c/2"):
            store.put(key, b"x")
        store.delete("new/a/b/1")
        store.drop_empty_folders("new/a/b/1", below="new/")
        assert [path.name for path in (place.folder / "new/a").iterdir()] == ["c"]
        store.delete("new/a/c/2")
        store.drop_empty_folders("new/a/c/2", below="new/")
        assert list((place.folder / "new").iterdir()) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_same_a_thousand_times(place):
    races.one_creates_and_all_see_it_whole(place, 1000)


def files_of(store):
    while not hasattr(store, "_fs"):
        store = store.inner
    return store._fs


def test_the_filesystem_of_fsspec_is_made_a_better_one(place):
    with place.open() as store:
        files = files_of(store)
        assert isinstance(files, SftpFiles)
        assert isinstance(adapt(files._fs), SftpFiles)


def test_a_server_without_hard_links_is_refused_by_name(place, monkeypatch):
    send = paramiko.SFTPClient._request

    def without(self, kind, *arguments):
        # sshd always has them: it is asked for something that it has not.
        if arguments[0] == "hardlink@openssh.com":
            arguments = ("nolink@example.org", *arguments[1:])
        return send(self, kind, *arguments)

    monkeypatch.setattr(paramiko.SFTPClient, "_request", without)
    with (
        place.open() as store,
        pytest.raises(UnsupportedOperationError, match=r"'create'.*hardlink@openssh\.com"),
    ):
        store.put("a", b"x")
    assert place.names() == set()


def test_two_overwrites_of_one_second_and_size_have_two_versions(place):
    with place.open() as store:
        versions = {store.put("a", bytes([n]), OVERWRITE).version for n in range(8)}
    assert len(versions) == 8


def test_reading_does_not_change_a_version(place):
    with place.open() as store:
        version = store.put("a", b"x").version
        for _ in range(3):
            assert store.get("a").info.version == version


def test_a_lost_connection_is_made_anew(place):
    with place.open() as store:
        store.put("a", b"1")
        files_of(store)._fs.client.close()
        assert store.get("a").data == b"1"


@pytest.mark.parametrize("idle", [True, False], ids=["channel", "connection"])
def test_a_server_that_falls_silent_is_left_for_a_new_connection(
    place, sftp_server, monkeypatch, idle
):
    monkeypatch.setattr(sftp, "ANSWER_SECONDS", 1.0)
    with place.open() as store:
        store.put("a", b"1")
        if not idle:
            files_of(store).close()
        with stopped(descendants(sftp_server.process.pid)):
            assert store.get("a").data == b"1"


def test_a_channel_that_broke_is_not_used_again(place):
    with place.open() as store:
        store.put("a", b"1")
        for channel in files_of(store)._idle:
            channel.sock.close()
        assert store.get("a").data == b"1"


def test_a_forked_child_has_a_connection_of_its_own(place):
    with place.open() as store:
        store.put("a", b"1")
        child = os.fork()
        if child == 0:
            status = 1
            signal.alarm(60)
            try:
                store.put("b", store.get("a").data + b"2")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (store.get("b").data, store.get("a").data) == (b"12", b"1")


def test_a_sweep_removes_what_a_killed_writer_left(place):
    with place.open() as store:
        store.put("a/b", b"1")
        place.write(f"a/{TEMP_MARK}123", b"half")
        assert store.sweep(3600) == ()
        assert store.sweep(-2, dry_run=True) == (f"a/{TEMP_MARK}123",)
        assert store.sweep(-2) == (f"a/{TEMP_MARK}123",)
    assert place.names() == {"a/b"}


def test_a_link_out_of_the_folder_is_not_listed_as_a_folder(place, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    with place.open() as store:
        store.put("a", b"1")
        (place.folder / "out").symlink_to(tmp_path)
        (place.folder / "nowhere").symlink_to("gone")
        assert [info.key for info in store.list()] == ["a"]


def test_the_url_names_the_host_and_no_user(place, sftp_server):
    with place.open() as store:
        assert store.url.startswith(f"sftp://127.0.0.1:{sftp_server.port}/")


def test_a_server_that_is_not_there_is_an_error_that_says_where(place):
    (port,) = free_ports(1)
    place.storage_options = place.storage_options | {"port": port}
    with pytest.raises(StoreError, match=r"cannot connect to sftp://127\.0\.0\.1/"):
        place.open()
