"""What the tests on NFS share."""

import os

import pytest

from tests.nfs.interpreter import Interpreter
from tests.nfs.remote_store import Guest


@pytest.fixture
def place(nfs):
    """A path on the mounts where nothing is yet."""
    return f"{nfs.clients[0].mount}/{os.urandom(8).hex()}"


@pytest.fixture(scope="module")
def pythons(nfs):
    """A Python on each client, for several tests; the clock of the second is an hour ahead."""
    with Interpreter(nfs.clients[0]) as first, Interpreter(nfs.clients[1]) as second:
        yield first, second


@pytest.fixture(scope="module")
def guests(nfs):
    """For stores on each client, for several tests."""
    guests = [Guest(client) for client in nfs.clients]
    yield guests
    for guest in guests:
        guest.close()


def pytest_collection_modifyitems(items):
    """One server after the other, whichever way a test asked for it: starting them takes long."""
    places = [n for n, item in enumerate(items) if "nfs" in getattr(item, "fixturenames", ())]
    ours = sorted((items[n] for n in places), key=lambda item: item.callspec.params["nfs"])
    for n, item in zip(places, ours, strict=True):
        items[n] = item
