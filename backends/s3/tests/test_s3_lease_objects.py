"""Leases in one object of a bucket keep the contract of all lock services."""

from __future__ import annotations

from typing import ClassVar

import pytest
from s3_places import BucketPlace

from tapstore.abc import Clock, LockService, Store
from tapstore.locks.leaseobject import LeaseObjectService
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.locks import LockPlace, LockServiceTests
from tapstore.types import CREATE, GetResult, ObjectInfo, PutMode, PutResult, Update


class Era:
    """How far the clock of the server is behind the time of the test."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.written: dict[str, float] = {}
        """The offset when a version was written."""


class Shifted(WrapperStore):
    """A server whose clock moves along with those of a test; all else is the server's."""

    def __init__(self, inner: Store, era: Era) -> None:
        super().__init__(inner)
        self._era = era

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        got = self.inner.get(key, start=start, end=end)
        # A write that has not returned yet belongs to the present.
        offset = self._era.written.get(got.info.version, self._era.offset)
        info = ObjectInfo(key, got.info.size, got.info.version, got.info.modified + offset)
        return GetResult(got.data, info)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        put = self.inner.put(key, data, mode)
        self._era.written[put.version] = self._era.offset
        return PutResult(put.version, put.modified + self._era.offset)

    def now(self) -> float:
        return self.inner.now() + self._era.offset


class LeaseObjects(LockPlace):
    def __init__(self, bucket: BucketPlace) -> None:
        self._bucket = bucket
        self._era = Era()

    def open(self, clock: Clock) -> LockService:
        return LeaseObjectService(Shifted(self._bucket.open(), self._era), "locks", clock=clock)

    def spoil(self, name: str) -> None:
        Shifted(self._bucket.open(), self._era).put(f"locks/{name}/lease", b"broken")

    def let_pass(self, seconds: float) -> None:
        self._era.offset += seconds


class LeaseObjectTests(LockServiceTests):
    server: ClassVar[str]

    @pytest.fixture
    def place(self, request):
        return LeaseObjects(BucketPlace(request.getfixturevalue(self.server)))


class TestMoto(LeaseObjectTests):
    server = "moto_s3"


class TestSeaweedFS(LeaseObjectTests):
    server = "seaweedfs"


class TestRadosgw(LeaseObjectTests):
    server = "radosgw"
