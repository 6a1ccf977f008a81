"""Samba as a place, through fsspec's own filesystem."""

from __future__ import annotations

import os
import signal

import pytest
import smbclient

from tapstore.errors import StoreError, UnsupportedOperationError
from tapstore.keys import TEMP_MARK
from tapstore.stores import smb
from tapstore.stores.smb import SmbFiles
from tapstore.testing.stores import StoreTests
from tapstore.types import CREATE, OVERWRITE, Capabilities
from tests.places import races
from tests.places.served import ServedPlace, descendants, stopped


@pytest.fixture
def place(smb_server):
    return ServedPlace(smb_server)


class TestSmb(StoreTests):
    capabilities = Capabilities(create=True, update=False, conditional_delete=False, files=False)
    many = 300

    @pytest.fixture
    def place(self, smb_server):
        return ServedPlace(smb_server)


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
    assert isinstance(store._fs, SmbFiles)
    return store._fs


def test_a_server_without_hard_links_is_refused_by_name(place, monkeypatch):
    def link(*_, **__):
        error = OSError("not supported")
        error.ntstatus = 0xC00000BB
        raise error

    # Samba makes a link wherever its disk does; FAT and Windows' exFAT answer like this.
    monkeypatch.setattr(smbclient, "link", link)
    with (
        place.open() as store,
        pytest.raises(UnsupportedOperationError, match=r"'create'.*no hard links"),
    ):
        store.put("a", b"x", CREATE)
    assert place.names() == set()


def test_what_somebody_reads_can_be_replaced_when_they_have_done(place):
    with place.open() as store:
        store.put("a", b"old")
        path = files_of(store)._unc(f"/share/{place.folder.name}/a")
        reading = smbclient.open_file(path, "rb", share_access="rwd", port=files_of(store)._fs.port)
        assert reading.read() == b"old"
        races.later(reading.close)
        store.put("a", b"new", OVERWRITE)
    assert place.read("a") == b"new"


def test_a_lost_connection_is_made_anew(place):
    with place.open() as store:
        store.put("a", b"1")
        for cache in files_of(store)._idle:
            for connection in cache.values():
                connection.transport.close()
        assert store.get("a").data == b"1"


def test_a_server_that_falls_silent_is_left_for_a_new_connection(place, smb_server, monkeypatch):
    monkeypatch.setattr(smb, "ANSWER_SECONDS", 1.0)
    # Some processes help with every new connection.
    helpers = set(descendants(smb_server.process.pid))
    with place.open() as store:
        store.put("a", b"1")
        with stopped(set(descendants(smb_server.process.pid)) - helpers):
            assert store.get("a").data == b"1"
            store.put("b", b"2")
        assert {info.key for info in store.list()} == {"a", "b"}


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
        assert store.sweep(-2) == (f"a/{TEMP_MARK}123",)
    assert place.names() == {"a/b"}


def test_the_url_names_the_host_and_no_user(place, smb_server):
    with place.open() as store:
        assert store.url == f"smb://127.0.0.1:{smb_server.port}/share/{place.folder.name}"


def test_a_login_that_fails_says_where_and_shows_no_password(place, smb_server):
    place.storage_options = smb_server.storage_options | {"username": "nobody-there"}
    with pytest.raises(StoreError, match=r"cannot connect to smb://127\.0\.0\.1/share") as caught:
        place.open()
    assert smb_server.password not in f"{caught.value!r} {caught.value}"
