"""The lock services of the core pass the conformance suite."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tapstore.abc import Clock, LockService, Store
from tapstore.keys import encode_name
from tapstore.locks.lease import LeaseService
from tapstore.locks.leaseobject import LeaseObjectService
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.testing.locks import LockPlace, LockServiceTests

SHM = Path("/dev/shm")


class Leases(LockPlace):
    def __init__(self, store: Store) -> None:
        self.store = store

    def open(self, clock: Clock) -> LockService:
        return LeaseService(self.store, clock=clock)

    def spoil(self, name: str) -> None:
        self.store.put(f".tap/locks/{encode_name(name)}/grant-000000000001", b"")


class LocalLeases(Leases):
    def __init__(self, root: Path) -> None:
        self.root = root
        super().__init__(LocalStore(root, durability="none"))

    def open(self, clock: Clock) -> LockService:
        return LeaseService(LocalStore(self.root, durability="none"), clock=clock)

    def let_pass(self, seconds: float) -> None:
        for path in self.root.rglob("*"):
            if path.is_file():
                before = path.stat().st_mtime - seconds
                os.utime(path, (before, before))


class LeaseObjects(LockPlace):
    def __init__(self, store: Store) -> None:
        self.store = store

    def open(self, clock: Clock) -> LockService:
        return LeaseObjectService(self.store, clock=clock)

    def spoil(self, name: str) -> None:
        self.store.put(f".tap/locks/{encode_name(name)}/lease", b"")


class TestLeasesInMemory(LockServiceTests):
    @pytest.fixture
    def place(self, clock):
        return Leases(MemoryStore(clock=clock))


class TestLeasesOnDisk(LockServiceTests):
    @pytest.fixture
    def place(self, tmp_path):
        return LocalLeases(tmp_path)


class TestLeasesOnTmpfs(LockServiceTests):
    @pytest.fixture
    def place(self):
        if not os.access(SHM, os.W_OK):
            pytest.skip("no writable tmpfs at /dev/shm")
        folder = Path(tempfile.mkdtemp(dir=SHM))
        yield LocalLeases(folder)
        shutil.rmtree(folder)


class TestLeasesInRealTime(LockServiceTests):
    """With the clocks that services have in the end."""

    manual_clock = False
    ttl = 0.3
    slack = 1.2

    @pytest.fixture
    def place(self, tmp_path):
        return LocalLeases(tmp_path)


class TestLeaseObjects(LockServiceTests):
    @pytest.fixture
    def place(self, clock):
        return LeaseObjects(MemoryStore(clock=clock))


class TestLeaseObjectsInRealTime(LockServiceTests):
    manual_clock = False
    ttl = 0.3
    slack = 1.2

    @pytest.fixture
    def place(self):
        return LeaseObjects(MemoryStore())
