"""Fixtures for pytest: one server of each kind per worker, started when a test first asks for it.

A server whose program is not installed skips the test.  `s3_server` and `redis_like` run a test
once on each kind that keeps what tapstore needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest

from tests.servers import moto, stub_s3
from tests.servers.process import ServerMissingError
from tests.servers.s3 import S3Server

T = TypeVar("T")


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    """moto, made atomic."""
    yield from _running(moto.server)


@pytest.fixture
def stub_s3_server() -> Iterator[stub_s3.Stub]:
    """The stub, for one test: what is set in it must not meet another."""
    with stub_s3.server() as running:
        yield running


@pytest.fixture(params=["moto_s3"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each S3 server that keeps conditions, one after the other."""
    return request.getfixturevalue(request.param)


def _running(server: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(server())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        yield running
