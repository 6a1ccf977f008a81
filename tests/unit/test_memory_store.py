"""What MemoryStore promises beyond the contract of all stores."""

import time
from functools import partial

import pytest
from store_places import MemoryPlace

from tapstore.errors import InvalidKeyError, NotFoundError
from tapstore.stores.memory import MemoryStore
from tapstore.testing.place import race
from tapstore.testing.stores import StoreTests
from tapstore.types import Capabilities


class TestMemoryStore(StoreTests):
    capabilities = Capabilities(create=True, update=True, conditional_delete=True, files=False)

    @pytest.fixture
    def place(self):
        return MemoryPlace()


def test_a_store_without_a_name_is_private():
    MemoryStore().put("a", b"mine")
    with pytest.raises(NotFoundError):
        MemoryStore().get("a")


def test_stores_of_different_names_share_nothing():
    MemoryStore("memory://one-name").put("a", b"mine")
    with pytest.raises(NotFoundError):
        MemoryStore("memory://another-name").get("a")


def test_a_folder_in_the_url_is_a_part_of_the_space():
    MemoryStore("memory://with-folders/team/alpha").put("a", b"data")
    assert MemoryStore("memory://with-folders/team").get("alpha/a").data == b"data"


@pytest.mark.parametrize("url", ["file:///tmp", "memory://name/../x", "name"])
def test_what_is_no_memory_url_is_refused(url):
    with pytest.raises(InvalidKeyError):
        MemoryStore(url)


def test_a_version_never_returns_when_a_name_is_used_again():
    store = MemoryStore()
    first = store.put("a", b"same").version
    store.delete("a")
    assert store.put("a", b"same").version != first


class SlowDict(dict):
    """Lets other threads in between looking and storing."""

    def get(self, *arguments):
        found = super().get(*arguments)
        time.sleep(0.001)
        return found


def test_looking_and_storing_are_one_step():
    store = MemoryStore()
    store._space.objects = SlowDict()
    results = race([partial(store.put, "a", b"%d" % writer) for writer in range(8)])
    assert sum(not isinstance(result, Exception) for result in results) == 1
