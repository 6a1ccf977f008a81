"""Leases on an NFS mount keep the contract of lock services, with each client on another host."""

import os

import pytest

from tapstore.keys import encode_name
from tapstore.locks.lease import LeaseService
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.locks import LockPlace, LockServiceTests
from tapstore.types import CREATE, GetResult, ObjectInfo, PutResult
from tests.nfs.remote_store import NfsPlace


class Moved(WrapperStore):
    """A server whose clock moves along with those of a test; all else is the server's."""

    def __init__(self, inner, era):
        super().__init__(inner)
        self._era = era

    def get(self, key, *, start=0, end=None):
        got = self.inner.get(key, start=start, end=end)
        info = got.info
        # A write that has not returned yet belongs to the present.
        moved = info.modified + self._era.written.get(info.version, self._era.offset)
        return GetResult(got.data, ObjectInfo(key, info.size, info.version, moved))

    def put(self, key, data, mode=CREATE):
        put = self.inner.put(key, data, mode)
        self._era.written[put.version] = self._era.offset
        return PutResult(put.version, put.modified + self._era.offset)

    def now(self):
        return self.inner.now() + self._era.offset


class NfsLeases(LockPlace):
    """`offset`: how far the clock of the server is behind the time of the test."""

    def __init__(self, place):
        self._place = place
        self.offset = 0.0
        self.written = {}

    def open(self, clock):
        return LeaseService(Moved(self._place.open(), self), clock=clock)

    def spoil(self, name):
        self._place.write(f".tap/locks/{encode_name(name)}/grant-000000000001", b"broken")

    def let_pass(self, seconds):
        self.offset += seconds


class TestOnNfs(LockServiceTests):
    @pytest.fixture
    def place(self, nfs, guests):
        return NfsLeases(NfsPlace(nfs, guests, os.urandom(8).hex()))
