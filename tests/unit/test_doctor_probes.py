"""Each probe finds the defect that it is for, and nothing where there is none.

The defects are put into real stores; those of S3 servers have their tests in `tests/s3`.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.doctor import (
    clocks,
    conditions,
    folder,
    leases,
    race,
    timing,
    visibility,
)
from tapstore.doctor.subject import Subject
from tapstore.doctor.workplace import Workplace
from tapstore.errors import AlreadyExistsError, ConflictError, NotFoundError
from tapstore.locks import leaseobject
from tapstore.stores import mounts
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.types import CREATE, OVERWRITE, Capabilities, Update


def subject(store, other=None):
    return Subject(store, other or store, Workplace(store), SYSTEM_CLOCK)


@pytest.fixture(params=["memory", "folder"])
def sound(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "place")


@pytest.mark.parametrize(
    "probe",
    [
        conditions.creation, conditions.conditional_put, conditions.conditional_delete,
        visibility.reads, visibility.listings, clocks.check, timing.latency,
    ],
)  # fmt: skip
def test_a_sound_place_passes(probe, sound):
    place = subject(sound)
    assert probe(place).severity == "ok"
    assert place.work.clean() == ()
    assert list(sound.list()) == []


# Conditions


class Ignoring(WrapperStore):
    """A store that kept conditions when it was tried out, and ignores some now."""

    def __init__(self, inner, *what):
        super().__init__(inner)
        self.what = what

    def put(self, key, data, mode=CREATE):
        if mode is CREATE and "create" in self.what:
            mode = OVERWRITE
        if isinstance(mode, Update) and "update" in self.what:
            mode = OVERWRITE
        if isinstance(mode, Update) and "missing" in self.what and not self.has(key):
            mode = OVERWRITE
        return super().put(key, data, mode)

    def delete(self, key, *, version=None):
        super().delete(key, version=None if "delete" in self.what else version)

    def has(self, key):
        try:
            return bool(self.head(key))
        except NotFoundError:
            return False


def test_a_second_create_that_succeeds_is_fatal():
    found = conditions.creation(subject(Ignoring(MemoryStore(), "create")))
    assert (found.severity, found.seen) == ("fatal", "a second create succeeded")


@pytest.mark.parametrize(("what", "seen"), [("update", "stale version"), ("missing", "not there")])
def test_an_update_that_should_be_refused_and_is_not_is_fatal(what, seen):
    found = conditions.conditional_put(subject(Ignoring(MemoryStore(), what)))
    assert found.severity == "fatal"
    assert seen in found.seen


def test_a_right_update_that_is_refused_is_fatal():
    class Refusing(WrapperStore):
        def put(self, key, data, mode=CREATE):
            if isinstance(mode, Update):
                raise ConflictError("no")
            return super().put(key, data, mode)

    found = conditions.conditional_put(subject(Refusing(MemoryStore())))
    assert found.severity == "fatal"
    assert "right version was refused" in found.seen


def test_a_deletion_with_a_stale_version_that_succeeds_is_fatal():
    found = conditions.conditional_delete(subject(Ignoring(MemoryStore(), "delete")))
    assert found.severity == "fatal"


# Visibility


class Cached(WrapperStore):
    """A connection that goes on showing what it has seen."""

    def __init__(self, inner):
        super().__init__(inner)
        self.seen = {}

    def get(self, key, **options):
        if key not in self.seen:
            self.seen[key] = super().get(key, **options)
        return self.seen[key]


def test_a_connection_that_shows_old_bytes_is_fatal():
    store = MemoryStore()
    found = visibility.reads(subject(store, Cached(store)))
    assert found.severity == "fatal"
    assert found.seen.endswith("deleted or overwritten")


# Races


class TwoSteps(WrapperStore):
    """Looks, and writes then, as emulators do; two that come together both see nothing."""

    def __init__(self, inner):
        super().__init__(inner)
        self.together = threading.Barrier(2)

    def put(self, key, data, mode=CREATE):
        if mode is OVERWRITE:
            return super().put(key, data, mode)
        try:
            there = self.head(key).version
        except NotFoundError:
            there = None
        if there != (mode.version if isinstance(mode, Update) else None):
            raise ConflictError("no") if isinstance(mode, Update) else AlreadyExistsError(key)
        try:
            self.together.wait(0.05)
        except threading.BrokenBarrierError:
            self.together.reset()
        return super().put(key, data, OVERWRITE)


def test_a_race_finds_a_place_that_looks_and_writes_in_two_steps():
    store = TwoSteps(MemoryStore())
    assert conditions.creation(subject(store)).severity == "ok"
    found = race.race(subject(store), store, None)
    assert found.severity == "fatal"
    assert "contenders created" in found.seen or "its creator" in found.seen


def test_a_race_finds_lost_updates_where_only_creation_is_atomic():
    class UpdatesInTwoSteps(TwoSteps):
        def put(self, key, data, mode=CREATE):
            if mode is CREATE:
                return self.inner.put(key, data, mode)
            return super().put(key, data, mode)

    store = UpdatesInTwoSteps(MemoryStore())
    found = race.race(subject(store), store, None)
    assert found.severity == "fatal"
    assert "left the counter at" in found.seen


def test_a_race_in_a_folder_is_between_processes(tmp_path):
    place = subject(LocalStore(tmp_path / "place"))
    found = race.race(place, tmp_path / "place", {"durability": "none"})
    assert (found.severity, found.values["creations"]) == ("ok", race.ROUNDS * race.KEYS)
    assert "2 processes" in found.seen
    assert place.work.clean() == ()
    assert not (tmp_path / "place").exists()


def test_a_race_in_memory_is_between_threads():
    store = MemoryStore()
    found = race.race(subject(store), store, None)
    assert found.severity == "ok"
    assert found.values["updates"] == race.PROCESSES * race.THREADS * race.ADDITIONS


def test_a_contender_that_cannot_open_the_place_is_said(tmp_path):
    place = subject(LocalStore(tmp_path))
    with pytest.raises(Exception, match="a contender ended before the race did"):
        race.race(place, "s3://x", None)


# Clocks


@pytest.mark.parametrize(
    ("seconds", "severity", "said"),
    [
        (0.2, "ok", "within a second of"),
        (-2.0, "ok", "2.0 s behind"),
        (30.0, "note", "30.0 s ahead of"),
        (-3600.0, "warning", "3,600.0 s behind"),
    ],
)
def test_an_offset_is_said_and_judged(seconds, severity, said):
    found = clocks.judge(seconds)
    assert found.severity == severity
    assert said in found.seen
    assert found.values == {"offset_seconds": seconds}


def test_the_offset_is_that_of_this_host_from_the_store():
    ahead = ManualClock()
    store = MemoryStore(clock=ahead)
    place = Subject(store, store, Workplace(store), SYSTEM_CLOCK)
    expected = SYSTEM_CLOCK.time() - ahead.time()
    assert abs(clocks.offset(place) - expected) < 5


# Latency


def test_commits_that_take_a_second_are_a_warning():
    clock = ManualClock()

    class Slow(MemoryStore):
        def put(self, key, data, mode=CREATE):
            clock.advance(1.2)
            return super().put(key, data, mode)

    store = Slow(clock=clock)
    found = timing.latency(Subject(store, store, Workplace(store), clock))
    assert found.severity == "warning"
    assert found.values["conditional_put"]["p50_seconds"] == pytest.approx(1.2)
    assert found.values["commits_per_second"]["one_agent"] == pytest.approx(0.83)


def test_a_commit_in_a_folder_is_two_writes(tmp_path):
    assert timing.latency(subject(LocalStore(tmp_path))).values["writes_per_commit"] == 2
    assert timing.latency(subject(MemoryStore())).values["writes_per_commit"] == 1


# Folders


def test_a_folder_with_links_passes(tmp_path):
    place = subject(LocalStore(tmp_path))
    place.work.begin()
    found = folder.files(place)
    assert found.severity == "ok"
    assert found.values["fsync_seconds"] > 0


@pytest.mark.parametrize(
    ("function", "step"), [("link", "link"), ("replace", "rename over another file")]
)
def test_a_file_system_that_lacks_an_operation_is_fatal(tmp_path, monkeypatch, function, step):
    place = subject(LocalStore(tmp_path))
    place.work.begin()

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, refuse)
        found = folder.files(place)
    assert found.severity == "fatal"
    assert found.values == {"failed": step}
    place.work.clean()
    assert os.listdir(tmp_path) == []


def test_a_disk_without_links_that_renames_exclusively_is_noted(tmp_path, monkeypatch):
    place = subject(LocalStore(tmp_path))
    place.work.begin()

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(
        mounts, "mount_of", lambda folder: mounts.Mount(folder, "vfat", "/dev/sdz1", {})
    )
    assert folder.files(place).severity == "note"
    assert conditions.creation(place).severity == "ok"
    assert "no-hard-links" not in str(list(folder.mount(place)))
    place.work.clean()
    assert os.listdir(tmp_path) == []


def test_a_link_that_replaces_what_is_there_is_fatal(tmp_path, monkeypatch):
    place = subject(LocalStore(tmp_path))
    place.work.begin()
    real = os.link

    def overwriting(source, target):
        if os.path.exists(target):
            os.unlink(target)
        real(source, target)

    monkeypatch.setattr(os, "link", overwriting)
    assert folder.files(place).values == {"failed": "link to a name that is taken"}


def test_the_mount_is_told(tmp_path):
    place = subject(LocalStore(tmp_path))
    place.work.begin()
    found = list(folder.mount(place))
    assert all(each.probe == "mount" for each in found)
    assert found[0].values["type"]


# Locks


def service(store, clock=SYSTEM_CLOCK):
    return leaseobject.open_service(store, "locks", url="store", scope="s", clock=clock)


def test_a_lock_service_that_does_as_it_should_passes():
    with closing(service(MemoryStore())) as locks:
        found = leases.try_out(locks, "store", SYSTEM_CLOCK)
    assert found.severity == "ok"


def test_a_lock_service_that_grants_twice_is_fatal():
    locks = [service(MemoryStore()), service(MemoryStore())]

    class Forgetful:
        """Two servers that do not know of each other behind one address."""

        def acquire(self, name, owner, **options):
            locks.reverse()
            return locks[0].acquire(name, owner, **options)

        def renew(self, lease):
            return locks[1].renew(lease)

        def release(self, lease):
            for each in locks:
                each.release(lease)

    found = leases.try_out(Forgetful(), "two", SYSTEM_CLOCK)
    assert found.severity == "fatal"
    assert "a lease that was held was granted to another one" in found.seen


@pytest.mark.parametrize(
    ("found", "asked", "suits"),
    [
        (Capabilities(True, True, True, False), None, "store"),
        (Capabilities(True, True, True, True), None, "o_excl"),
        (Capabilities(True, False, False, True), None, "o_excl"),
        (Capabilities(True, False, False, False), None, "o_excl"),
        (Capabilities(True, True, True, False), "redis://h", "redis://h"),
        (Capabilities(False, True, True, False), None, None),
    ],
)
def test_the_locks_that_suit_follow_from_what_the_place_can_do(found, asked, suits):
    assert leases.suitable(found, asked).values["suits"] == suits
