"""What a session hands out as its lock service keeps the contract of all lock services."""

from __future__ import annotations

import pytest

from tapstore.abc import Clock, LockService, Store
from tapstore.keys import encode_name
from tapstore.sessions import lockswitch
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.lockservice import SessionLocks
from tapstore.stores.memory import MemoryStore
from tapstore.testing.locks import LockPlace, LockServiceTests
from tapstore.types import Owner

CONFIG = SessionConfig(session_id="s", incarnation="i", locks="o_excl")
OPS = Owner(agent="ops", instance="o1")


class SessionPlace(LockPlace):
    """A session that has used so many other services before."""

    def __init__(self, store: Store, clock: Clock, switches: int) -> None:
        self.store = store
        locks = SessionLocks(store, CONFIG, clock=clock)
        for number in range(switches):
            lockswitch.switch(locks, ("store", "o_excl")[number % 2], owner=OPS, wait=0)
        self.folder, self.file = (
            (".tap/i/leases/000001", "lease") if switches else (".tap/locks", "grant-000000000001")
        )

    def open(self, clock: Clock) -> LockService:
        return SessionLocks(self.store, CONFIG, clock=clock)

    def spoil(self, name: str) -> None:
        self.store.put(f"{self.folder}/{encode_name(name)}/{self.file}", b"")


class TestSessionLocks(LockServiceTests):
    @pytest.fixture
    def place(self, clock):
        return SessionPlace(MemoryStore(clock=clock), clock, switches=0)


class TestSessionLocksAfterASwitch(LockServiceTests):
    @pytest.fixture
    def place(self, clock):
        return SessionPlace(MemoryStore(clock=clock), clock, switches=1)
