"""Folders on mounts without hard links.

One is real: exFAT through FUSE, which is refused.  The file systems of which it is said that the
kernel's own exclusive rename is used (FAT in the kernel) are not in every kernel: there `os.link`
is made to fail and the mount to say that it is FAT, on a tmpfs, whose rename is the kernel's too.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

import tapstore
from tapstore.errors import AlreadyExistsError, UnsupportedOperationError
from tapstore.locks import ownfile
from tapstore.locks.ownfile import OwnFile
from tapstore.stores import linkless, mounts
from tapstore.stores.local import LocalStore
from tapstore.stores.mounts import Mount
from tapstore.types import CREATE, OVERWRITE
from tests.places import exfat
from tests.servers.process import ServerMissingError

spawn = multiprocessing.get_context("spawn")
PROCESSES = 4
ROUNDS = 200
COMMITS = 10


@pytest.fixture(scope="module")
def exfat_folder():
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(exfat.mounted())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        yield folder


def fails(*_, **__):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def be_fat(patch):
    patch(os, "link", fails)
    patch(mounts, "mount_of", lambda folder: Mount(folder, "vfat", "/dev/sdz1", {}))


@pytest.fixture
def fat(tmpfs_path, monkeypatch):
    be_fat(monkeypatch.setattr)
    return tmpfs_path / "store"


# For real


def test_exfat_by_fuse_is_refused_by_name(exfat_folder):
    store = LocalStore(exfat_folder / "refused")
    with pytest.raises(UnsupportedOperationError, match=r"'create'.*fuseblk.*no hard links"):
        store.put("a", b"x", CREATE)
    assert os.listdir(exfat_folder / "refused") == []


def test_exfat_by_fuse_can_still_be_read_and_overwritten(exfat_folder):
    store = LocalStore(exfat_folder / "read")
    store.put("a", b"x", OVERWRITE)
    store.put("a", b"y", OVERWRITE)
    assert store.get("a").data == b"y"


# The kernel's exclusive rename


def test_an_exclusive_rename_moves_to_a_free_name_only(tmpfs_path):
    first, second, name = (tmpfs_path / each for each in ("first", "second", "name"))
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    linkless.rename(str(first), str(name))
    with pytest.raises(FileExistsError):
        linkless.rename(str(second), str(name))
    assert (name.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_on_fat_a_second_create_loses_and_leaves_nothing(fat):
    store = LocalStore(fat)
    store.put("a/b", b"first")
    with pytest.raises(AlreadyExistsError):
        store.put("a/b", b"second")
    assert store.get("a/b").data == b"first"
    assert os.listdir(fat / "a") == ["b"]


def test_on_fat_what_a_create_returns_is_what_head_says(fat):
    store = LocalStore(fat)
    assert store.put("a", b"x").version == store.head("a").version


def contend(root, number, start, results):
    be_fat(setattr)
    store = LocalStore(root, durability="none")
    mine = bytes([65 + number]) * 100_000
    won, seen = [], []
    for key in range(ROUNDS):
        start.wait(60)
        try:
            store.put(str(key), mine)
            won.append(key)
        except AlreadyExistsError:
            pass
        found = store.get(str(key)).data
        seen.append(found[:1].decode() if found == found[:1] * 100_000 else "torn")
    results.put((number, won, seen))


def test_on_fat_one_of_four_processes_creates_each_file_and_all_see_it_whole(fat):
    start, results = spawn.Barrier(PROCESSES), spawn.Queue()
    children = [
        spawn.Process(target=contend, args=(str(fat), number, start, results))
        for number in range(PROCESSES)
    ]
    for child in children:
        child.start()
    answers = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
    winner = {key: "ABCD"[number] for number, won, _ in answers for key in won}
    assert sum(len(won) for _, won, _ in answers) == len(winner) == ROUNDS
    for _, _, seen in answers:
        assert seen == [winner[key] for key in range(ROUNDS)]


@pytest.mark.parametrize("foreign", [False, True])
def test_a_session_on_fat_is_like_any_other(fat, foreign):
    with tapstore.create(str(fat), roles=["coder"], foreign=foreign) as session:
        with session.claim("coder", agent="one", ttl=600) as claim:
            claim.publish("x.py", b"1")
            claim.complete(phase="review")
        assert (session.phase, session.artifacts["x.py"].read_bytes()) == ("review", b"1")


def commit(root, number, start, results):
    be_fat(setattr)

    def add(document):
        document["count"] += 1

    with tapstore.open(root) as session:
        start.wait(60)
        for each in range(COMMITS):
            session.edit(add, by=f"p{number}", reason=f"p{number}-{each}", timeout=120)
    results.put(number)


@pytest.mark.parametrize("foreign", [False, True])
def test_on_fat_four_processes_that_commit_lose_nothing(fat, foreign):
    options = {"roles": ["r"], "fields": {"count": 0}, "foreign": foreign}
    tapstore.create(str(fat), **options).close()
    start, results = spawn.Barrier(PROCESSES), spawn.Queue()
    children = [
        spawn.Process(target=commit, args=(str(fat), number, start, results))
        for number in range(PROCESSES)
    ]
    for child in children:
        child.start()
    assert {results.get(timeout=150) for _ in children} == set(range(PROCESSES))
    for child in children:
        child.join(60)
    with tapstore.open(str(fat)) as session:
        assert session.tapfile.extra["count"] == PROCESSES * COMMITS
        landed = Counter(entry.reason for entry in session.log(after=1))
    expected = {f"p{number}-{each}": 1 for number in range(PROCESSES) for each in range(COMMITS)}
    assert landed == expected


def test_on_fat_the_lock_of_somebody_dead_is_removed_for_another_one(fat):
    fat.mkdir()
    first, second, path = OwnFile(str(fat), b"1"), OwnFile(str(fat), b"2"), str(fat / "lock")
    assert first.link(path)
    assert not second.link(path)
    assert ownfile.remove(path, ownfile.identity_at(path))
    assert second.link(path)
    assert not ownfile.remove(path, "seen long ago")
    first.close()
    second.close()
    assert os.listdir(fat) == ["lock"]


def test_a_mount_that_others_share_refuses_a_lock_with_what_to_take_instead(fat, monkeypatch):
    monkeypatch.setattr(mounts, "mount_of", lambda folder: Mount(folder, "cifs", "//nas/team", {}))
    fat.mkdir()
    with pytest.raises(OSError, match="smb://nas/team"):
        OwnFile(str(fat), b"1").link(str(fat / "lock"))


# What is not trusted


def test_a_rename_that_looks_and_writes_in_two_steps_is_refused(fat, monkeypatch):
    together = threading.Barrier(4)

    def rename(temp, path):
        taken = os.path.lexists(path)
        together.wait(10)
        if taken:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        os.replace(temp, path)

    monkeypatch.setattr(linkless, "rename", rename)
    with pytest.raises(UnsupportedOperationError, match="exclusive rename is not exclusive"):
        LocalStore(fat).put("a", b"x")
    assert os.listdir(fat) == []


def test_a_disk_that_is_full_in_the_middle_of_the_race_is_an_error_and_no_hang(fat, monkeypatch):
    def fill_up(path, mode):
        if path.endswith("-2"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return open(path, mode)

    monkeypatch.setattr(linkless, "open", fill_up, raising=False)
    monkeypatch.setattr(linkless, "_START_SECONDS", None)
    with pytest.raises(UnsupportedOperationError, match="No space left"):
        LocalStore(fat).put("a", b"x")
    assert os.listdir(fat) == []


def test_a_kernel_without_exclusive_rename_is_refused(fat, monkeypatch):
    def rename(_, path):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    monkeypatch.setattr(linkless, "rename", rename)
    with pytest.raises(UnsupportedOperationError, match=r"no exclusive rename \(Invalid argument"):
        LocalStore(fat).put("a", b"x")
    assert os.listdir(fat) == []


@pytest.mark.parametrize(
    ("kind", "source", "advice"),
    [("cifs", "//nas/team", "smb://nas/team/"),
     ("fuse.sshfs", "me@host:/srv/team", "sftp://host/srv/team/"),
     ("fuse.s3fs", "bucket", "s3://"), ("fuse.mountpoint-s3", "mountpoint-s3", "s3://"),
     ("fuse.gcsfuse", "bucket", "gs://"), ("fuse.blobfuse2", "blobfuse2", "az://"),
     ("fuseblk", "/dev/sdz1", "another folder")],
)  # fmt: skip
def test_what_others_share_is_refused_with_what_to_take_instead(
    tmpfs_path, monkeypatch, kind, source, advice
):
    monkeypatch.setattr(os, "link", fails)
    monkeypatch.setattr(mounts, "mount_of", lambda folder: Mount(folder, kind, source, {}))
    with pytest.raises(UnsupportedOperationError, match=rf"'create'.*{kind}.*{advice}"):
        LocalStore(tmpfs_path / "s").put("a", b"x")
    assert os.listdir(tmpfs_path / "s") == []
