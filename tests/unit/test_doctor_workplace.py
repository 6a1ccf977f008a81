"""What an examination writes is removed: by itself, or by the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from tapstore.doctor.workplace import FOLDER, PEERS, RUN_SECONDS, Who, Workplace
from tapstore.errors import StoreError
from tapstore.locks import process
from tapstore.locks.process import Process
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.types import OVERWRITE

CRASH = """
import os, sys
from tapstore.keys import TEMP_MARK
from tapstore.doctor.workplace import Workplace
from tapstore.stores.local import LocalStore
store = LocalStore(sys.argv[1])
work = Workplace(store)
work.begin()
store.put(work.key("left"), b"?")
open(store.local_path(work.key("left"))[:-4] + TEMP_MARK + "half", "xb").close()
os.kill(os.getpid(), 9)
"""


def keys(store):
    return [info.key for info in store.list()]


def test_all_that_was_written_is_removed_and_nothing_else():
    store = MemoryStore()
    store.put("mine", b"1")
    work = Workplace(store)
    work.begin()
    store.put(work.key("a/b"), b"2")
    store.put(f"{work.prefix}not-given", b"3")
    assert work.clean() == ()
    assert keys(store) == ["mine"]


def test_what_is_written_through_a_watched_store_is_removed_where_listings_show_nothing():
    class Blind(WrapperStore):
        def list(self, *_, **__):
            return iter(())

    inner = MemoryStore()
    work = Workplace(Blind(inner))
    work.watched(inner).put(f"{work.prefix}deep/key", b"1", OVERWRITE)
    work.clean()
    assert keys(inner) == []


def test_a_folder_that_was_not_there_is_gone_again(tmp_path):
    root = tmp_path / "new" / "place"
    store = LocalStore(root)
    work = Workplace(store)
    work.begin()
    assert root.is_dir()
    work.clean()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_was_there_stays(tmp_path):
    work = Workplace(LocalStore(tmp_path))
    work.begin()
    work.clean()
    assert tmp_path.is_dir()
    assert os.listdir(tmp_path) == []


def test_keys_that_cannot_be_removed_are_named():
    class Kept(WrapperStore):
        def delete(self, *_, **__):
            raise StoreError("no")

    work = Workplace(Kept(MemoryStore()))
    work.begin()
    assert work.clean() == (work.key("who"),)


def test_what_a_crash_left_is_removed_by_the_next_run_at_once(tmp_path):
    crashed = subprocess.run([sys.executable, "-c", CRASH, tmp_path], check=False)
    assert crashed.returncode == -9
    store = LocalStore(tmp_path)
    assert len(keys(store)) == 2
    work = Workplace(store)
    assert len(work.remove_leftovers()) == 2
    work.clean()
    assert os.listdir(tmp_path) == []


def test_what_a_peer_that_crashed_left_is_removed_by_the_next_run_at_once(tmp_path):
    run = "0123456789abcdef"
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = process.myself()
    started = process._status(dead.pid)[1]
    card = Who(process=msgspec.structs.replace(here, pid=dead.pid, started=started))
    store = LocalStore(tmp_path)
    store.put(f"{FOLDER}/{PEERS}/card-{run}", msgspec.json.encode(card))
    store.put(f"{FOLDER}/{PEERS}/{run}-00", b"?")
    assert Workplace(store).remove_leftovers() == ()
    dead.communicate()
    assert len(Workplace(store).remove_leftovers()) == 2


def test_a_run_that_is_under_way_is_spared(tmp_path):
    store = LocalStore(tmp_path)
    other = Workplace(store)
    other.begin()
    assert Workplace(store).remove_leftovers() == ()
    assert keys(store) == [other.key("who")]


@pytest.mark.parametrize("run", ["0123456789abcdef", PEERS])
def test_what_is_too_old_to_be_under_way_is_removed(run):
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    elsewhere = msgspec.json.encode(Who(host="elsewhere", process=Process()))
    store.put(f"{FOLDER}/{run}/who", elsewhere)
    clock.advance(RUN_SECONDS - 1)
    work = Workplace(store)
    assert work.remove_leftovers() == ()
    clock.advance(2)
    assert work.remove_leftovers() == (f"{FOLDER}/{run}/who",)


def test_of_those_who_share_a_folder_only_the_old_are_removed():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    old, new = "0" * 16, "1" * 16
    card = msgspec.json.encode(Who(process=Process()))
    store.put(f"{FOLDER}/{PEERS}/card-{old}", card)
    store.put(f"{FOLDER}/{PEERS}/{old}-counter", b"0")
    clock.advance(RUN_SECONDS + 1)
    store.put(f"{FOLDER}/{PEERS}/card-{new}", card)
    Workplace(store).remove_leftovers()
    assert keys(store) == [f"{FOLDER}/{PEERS}/card-{new}"]
