"""S3Store keeps the contract of all stores."""

from __future__ import annotations

from typing import ClassVar

import pytest
from s3_places import BucketPlace

from tapstore.abc import Store
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore
from tapstore.testing.stores import StoreTests, overrides_contract
from tapstore.types import OVERWRITE, Capabilities

ALL = Capabilities(create=True, update=True, conditional_delete=True, files=False)
WITHOUT_DELETE = Capabilities(create=True, update=True, conditional_delete=False, files=False)


class S3StoreTests(StoreTests):
    clock_resolution_seconds = 1.0
    times_agree_within_seconds = 1.0
    server: ClassVar[str]
    prefix = "team/alpha"

    @pytest.fixture
    def place(self, request):
        return BucketPlace(request.getfixturevalue(self.server), prefix=self.prefix, wrap=self.wrap)

    @staticmethod
    def wrap(store: Store) -> Store:
        return store

    @overrides_contract(reason="an ETag is a sum of the bytes: who updates writes an id into them")
    def test_the_version_changes_with_each_write(self, store: Store) -> None:
        first = store.put("a", b"one").version
        assert store.put("a", b"two", OVERWRITE).version != first


class TestMoto(S3StoreTests):
    capabilities = ALL
    server = "moto_s3"


class TestMotoAtTheTop(S3StoreTests):
    capabilities = ALL
    server = "moto_s3"
    prefix = ""
    many = 50


class TestStub(S3StoreTests):
    capabilities = ALL
    server = "stub_s3_server"


class TestSeaweedFS(S3StoreTests):
    capabilities = ALL
    server = "seaweedfs"


class TestRadosgw(S3StoreTests):
    capabilities = WITHOUT_DELETE
    server = "radosgw"


class Opened:
    """The store as `registry.open_store` gives it."""

    many = 50

    @staticmethod
    def wrap(store: Store) -> Store:
        return RetryStore(ReadBackStore(store))


class TestOpenedOnMoto(Opened, TestMoto):
    pass


@pytest.mark.soak  # the wrappers do the same on each
class TestOpenedOnStub(Opened, TestStub):
    pass


@pytest.mark.soak  # the wrappers do the same on each
class TestOpenedOnSeaweedFS(Opened, TestSeaweedFS):
    pass


@pytest.mark.soak  # the wrappers do the same on each
class TestOpenedOnRadosgw(Opened, TestRadosgw):
    pass
