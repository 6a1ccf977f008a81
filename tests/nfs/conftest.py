"""What the tests on NFS share."""

import os

import pytest

from tests.nfs.interpreter import Interpreter


@pytest.fixture
def place(nfs):
    """A path on the mounts where nothing is yet."""
    return f"{nfs.clients[0].mount}/{os.urandom(8).hex()}"


@pytest.fixture(scope="module")
def pythons(nfs):
    """A Python on each client, for several tests; the clock of the second is an hour ahead."""
    with Interpreter(nfs.clients[0]) as first, Interpreter(nfs.clients[1]) as second:
        yield first, second
