"""`LocalStore` on an NFS mount keeps the contract of stores, with each client on another host."""

import os

import pytest

from tapstore.stores.local import LocalStore
from tapstore.testing.stores import StoreTests
from tests.nfs.remote_store import NfsPlace


class TestOnNfs(StoreTests):
    capabilities = LocalStore.capabilities
    many = 300  # a first page has 4 kB, and each file takes several requests

    @pytest.fixture
    def place(self, nfs, guests):
        return NfsPlace(nfs, guests, os.urandom(8).hex())
