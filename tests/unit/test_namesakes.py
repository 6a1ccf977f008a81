"""Hosts that share a name, as far as their processes tell."""

import os

import msgspec
import pytest

from tapstore.keys import TEMP_MARK
from tapstore.locks import namesakes, process
from tapstore.locks.namesakes import Namesake
from tapstore.locks.process import Process
from tapstore.locks.tapfile_lock import FORMAT, Record, TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

KEY = "locks/tapfile.lock"
HERE = Process(boot="boot-1", namespace="pid:[1]", pid=10, started="5")
THERE = Process(boot="boot-2", namespace="pid:[1]", pid=77, started="5")
BOOTED = 1_000_000.0


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path)


def leave(store, name, *, host="h1", process=THERE, at=BOOTED + 60):
    record = Record(
        format=FORMAT, agent="anna", instance="a1", host=host, pid=process.pid, process=process
    )
    path = f"{store.root}/locks/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(record))
    os.utime(path, (at, at))


def found(store):
    return list(namesakes.find(store, KEY, host="h1", here=HERE, booted=BOOTED))


@pytest.mark.parametrize("name", ["tapfile.lock", TEMP_MARK + "0123"])
def test_a_process_with_our_name_under_another_kernel_is_found(store, name):
    leave(store, name)
    assert found(store) == [Namesake("h1", "anna", 77, BOOTED + 60)]


@pytest.mark.parametrize(
    "difference",
    [
        {"host": "h2"},
        {"process": HERE},
        {"process": Process()},
        {"at": BOOTED - 60},
    ],
    ids=["another-name", "our-own-kernel", "no-kernel-known", "before-our-boot"],
)
def test_what_may_be_somebody_else_or_ourselves_is_not(store, difference):
    leave(store, "tapfile.lock", **difference)
    assert found(store) == []


def test_other_files_and_missing_folders_are_no_errors(store):
    assert found(store) == []
    leave(store, "other")
    with open(f"{store.root}/locks/{TEMP_MARK}1", "wb") as file:
        file.write(b"half a reco")
    assert found(store) == []


def test_a_lock_that_is_really_held_is_found_by_a_host_with_its_name(store):
    owner = Owner("bert", "b1", host="h1", pid=os.getpid())
    lock = TapfileLock(store, KEY, owner)
    assert lock.acquire(10)
    try:
        (one, *_) = found_by(store, replace_boot())
        assert (one.host, one.agent, one.pid) == ("h1", "bert", os.getpid())
        assert found_by(store, process.myself()) == []
    finally:
        lock.release()


def replace_boot():
    return msgspec.structs.replace(process.myself(), boot="another")


def found_by(store, here):
    return list(namesakes.find(store, KEY, host="h1", here=here, booted=0))
