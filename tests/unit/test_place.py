"""What a session relies on where it lies is tried out once, and a place that lies is refused."""

from dataclasses import replace

import pytest

import tapstore
from tapstore import registry
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    NotAllowedError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.locks.lease import LeaseService
from tapstore.locks.leaseobject import open_service
from tapstore.stores.locked import TTL_SECONDS, LockedStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.place import Place
from tapstore.testing.stores import StoreTests
from tapstore.types import CREATE, OVERWRITE, Capabilities, GetResult, Owner, Update

ME = Owner(agent="a", instance="i")


class Asked(WrapperStore):
    """Counts how often it had to be tried out what the place can do."""

    def __init__(self, inner, identity="here", **lacks):
        super().__init__(inner)
        self._identity = identity
        self._found = replace(inner.capabilities, **lacks)
        self.asked = 0

    @property
    def identity(self):
        return self._identity

    @property
    def capabilities(self):
        self.asked += 1
        return self._found


class Ignoring(WrapperStore):
    """Accepts conditions and ignores them, as some servers do."""

    capabilities = Capabilities(create=False, update=False, conditional_delete=False, files=False)

    def put(self, key, data, mode=CREATE):
        del mode
        return self.inner.put(key, data, OVERWRITE)

    def delete(self, key, *, version=None):
        del version
        self.inner.delete(key)


def test_a_place_is_tried_out_when_the_session_is_made_and_not_again():
    store = MemoryStore()
    tapstore.create(Asked(store), roles=["coder"]).close()
    again = Asked(store)
    with tapstore.open(again) as session, session.claim("coder", agent="a") as claim:
        claim.publish("x", b"1")
        claim.complete()
    assert again.asked == 0


def test_a_session_that_was_moved_is_tried_out_where_it_is_now():
    store = MemoryStore()
    tapstore.create(Asked(store), roles=["coder"]).close()
    moved = Asked(store, "elsewhere")
    tapstore.open(moved).close()
    assert moved.asked > 0


@pytest.mark.parametrize("lacks", ["create", "update"])
def test_a_session_that_was_moved_to_a_place_that_can_not_do_it_is_refused(lacks):
    store = MemoryStore()
    tapstore.create(Asked(store), roles=["coder"]).close()
    with pytest.raises(UnsupportedOperationError, match=f"{lacks}.*made \\(here\\)"):
        tapstore.open(Asked(store, "elsewhere", **{lacks: False}))


def test_a_place_that_ignores_conditions_is_refused_with_the_way_out():
    with pytest.raises(UnsupportedOperationError, match=r"(?s)ignores.*--accept lock-only.*undo"):
        tapstore.create(Ignoring(MemoryStore()), roles=["coder"])


@pytest.mark.parametrize("locks", [None, "o_excl", "store"])
def test_locks_in_a_place_that_ignores_conditions_are_no_way_out(locks):
    with pytest.raises(NotAllowedError, match="outside of the place"):
        tapstore.create(Ignoring(MemoryStore()), roles=["coder"], locks=locks, accept="lock-only")


@pytest.fixture
def outside(monkeypatch):
    """A lock service outside of the place."""
    store = MemoryStore()

    def open_locks(_url, _store, prefix, *, scope, clock):
        return open_service(store, f"{prefix}/{scope}", url="store", scope=scope, clock=clock)

    monkeypatch.setattr(registry, "open_locks", open_locks)
    return "redis://cache:6379/0"


def test_with_a_lock_service_such_a_place_can_be_used(outside):
    store = Ignoring(MemoryStore())
    with tapstore.create(store, roles=["coder"], locks=outside, accept="lock-only") as session:
        assert session.config.exclusion == "locks"
        with pytest.raises(AlreadyExistsError):
            tapstore.create(store, roles=["coder"], locks=outside, accept="lock-only")
    one, two = tapstore.open(store), tapstore.open(store)
    one.set_phase("p1")
    two.set_phase("p2")
    one.set_phase("p3")
    assert [e.phase[1] for e in two.log() if e.phase] == ["p1", "p2", "p3"]


class LockedPlace(Place):
    """A place without conditions, and a lock service beside it."""

    def __init__(self):
        self._store, self._locks = MemoryStore(), MemoryStore()

    def open(self):
        return LockedStore(Ignoring(self._store), LeaseService(self._locks), ME)

    def read(self, key):
        found = self._store._space.objects.get(key)
        return None if found is None else found.data

    def write(self, key, data):
        self._store.put(key, data, OVERWRITE)

    def names(self):
        return set(self._store._space.objects)


class TestLockedStore(StoreTests):
    capabilities = Capabilities(create=True, update=True, conditional_delete=True, files=False)

    @pytest.fixture
    def place(self):
        return LockedPlace()


def test_who_lost_too_much_of_the_lock_does_not_write():
    clock = ManualClock()
    inner, locks = MemoryStore(clock=clock), LeaseService(MemoryStore(clock=clock), clock=clock)

    class Slow(Ignoring):
        def head(self, key):
            clock.advance(TTL_SECONDS * 0.6)
            return self.inner.head(key)

    store = LockedStore(Slow(inner), locks, ME, clock=clock)
    with pytest.raises(StoreError, match="nothing was written"):
        store.put("a", b"1")
    assert list(inner.list("")) == []


def test_what_is_replaced_while_it_is_read_is_read_again():
    inner = MemoryStore()
    inner.put("a", b"old")

    class Torn(Ignoring):
        """Answers with what it knows of the old bytes, and a part of the new ones."""

        def get(self, key, *, start=0, end=None):
            old = self.inner.get(key, start=start, end=end)
            if old.data == b"old":
                self.inner.put(key, b"newer", OVERWRITE)
                return GetResult(data=b"new", info=old.info)
            return old

    store = LockedStore(Torn(inner), LeaseService(MemoryStore()), ME)
    assert store.get("a").data == b"newer"


def test_an_update_is_refused_by_what_is_there():
    inner = MemoryStore()
    store = LockedStore(Ignoring(inner), LeaseService(MemoryStore()), ME)
    version = store.put("a", b"1").version
    inner.put("a", b"2", OVERWRITE)
    with pytest.raises(ConflictError):
        store.put("a", b"3", Update(version))
    with pytest.raises(ConflictError):
        store.delete("a", version=version)
    assert inner.get("a").data == b"2"
