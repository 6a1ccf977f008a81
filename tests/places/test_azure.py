"""Azure's blob storage, as its emulator has it, through adlfs: `AZURITE=… pytest` runs this."""

from __future__ import annotations

import os
import secrets

import fsspec
import pytest

from tapstore.registry import open_store
from tapstore.testing.place import Place
from tapstore.testing.stores import StoreTests
from tapstore.types import Capabilities
from tests.places import races
from tests.servers import azure

# aiohttp's advice to the library that uses it.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly")


@pytest.fixture(scope="module")
def server():
    with azure.server() as running:
        yield running


class AzurePlace(Place):
    def __init__(self, server):
        self.storage_options = server.storage_options
        self.fs = fsspec.filesystem(
            "az", skip_instance_cache=True, use_listings_cache=False, **self.storage_options
        )
        self.container = f"c{secrets.token_hex(8)}"
        self.fs.mkdir(self.container)
        self.url = f"az://{self.container}/place"

    def open(self):
        return open_store(self.url, storage_options=self.storage_options)

    def read(self, key):
        try:
            return self.fs.cat_file(f"{self.container}/place/{key}")
        except FileNotFoundError:
            return None

    def write(self, key, data):
        self.fs.pipe_file(f"{self.container}/place/{key}", data)

    def names(self):
        below = f"{self.container}/place"
        self.fs.invalidate_cache()
        try:
            return {os.path.relpath(name, below) for name in self.fs.find(below)}
        except FileNotFoundError:
            return set()


@pytest.fixture
def place(server):
    return AzurePlace(server)


class TestAzure(StoreTests):
    capabilities = Capabilities(create=True, update=False, conditional_delete=False, files=False)
    clock_resolution_seconds = 1.0
    many = 100

    @pytest.fixture
    def place(self, server):
        return AzurePlace(server)


def test_two_accounts_with_containers_of_one_name_are_two_places(place):
    with place.open() as store:
        assert store.identity == f"{store.url} of {azure.ACCOUNT}"


@pytest.mark.timeout(600)
def test_of_four_processes_one_creates_each_object_and_all_see_it_whole(place):
    races.one_creates_and_all_see_it_whole(place, 20)


@pytest.mark.timeout(600)
def test_of_four_processes_one_claims_the_role_each_time(place):
    races.one_claims(place, 8)


@pytest.mark.timeout(600)
def test_four_processes_that_commit_lose_nothing(place):
    races.no_commit_is_lost(place, 8)
