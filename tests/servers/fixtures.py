"""Fixtures for pytest: one server of each kind per worker, started when a test first asks for it.

A server whose program is not installed skips the test.  `s3_server` and `redis_like` run a test
once on each kind that keeps what tapstore needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest

from tapstore.testing.servers import moto
from tapstore.testing.servers import seaweedfs as seaweedfs_module
from tapstore.testing.servers import valkey as valkey_module
from tests.servers import juicefs, redis, smbd, sshd, stub_s3
from tests.servers import nfs as nfs_module
from tests.servers import radosgw as radosgw_module
from tests.servers.process import ServerMissingError
from tests.servers.redis_like import RedisServer
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


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    """SeaweedFS."""
    yield from _running(seaweedfs_module.server)


@pytest.fixture(scope="session")
def radosgw() -> Iterator[S3Server]:
    """Ceph's gateway."""
    yield from _running(radosgw_module.server)


@pytest.fixture(scope="session")
def juicefs_s3() -> Iterator[S3Server]:
    """The gateway of JuiceFS, which ignores conditions."""
    yield from _running(juicefs.server)


@pytest.fixture(params=["moto_s3", "seaweedfs", "radosgw"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each S3 server that keeps the conditions of PUT, one after the other."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """Valkey, open to all."""
    yield from _running(valkey_module.server)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Redis, open to all."""
    yield from _running(redis.server)


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[RedisServer]:
    """Redis that takes only TLS, and one user with a password."""
    yield from _running(lambda: redis.server(tls=True, acl=True))


@pytest.fixture(params=["valkey", "redis_server"])
def redis_like(request: pytest.FixtureRequest) -> RedisServer:
    """Each server that speaks Redis's protocol, one after the other, without any data."""
    server = request.getfixturevalue(request.param)
    with server.client() as client:
        client.flushall()
    return server


@pytest.fixture(scope="session", params=nfs_module.OPTIONS)
def nfs(request: pytest.FixtureRequest) -> Iterator[nfs_module.Server]:
    """NFS in each version, with two clients; the clock of the second is an hour ahead."""
    ahead = (0, 3600)
    yield from _running(lambda: nfs_module.server(version=request.param, clock_offsets=ahead))


@pytest.fixture(scope="session")
def sftp_server() -> Iterator[sshd.SftpServer]:
    """OpenSSH."""
    yield from _running(sshd.server)


@pytest.fixture(scope="session")
def smb_server() -> Iterator[smbd.SmbServer]:
    """Samba."""
    yield from _running(smbd.server)


def _running(server: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(server())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        yield running
