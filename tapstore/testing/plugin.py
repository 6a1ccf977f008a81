"""The fixtures of the test kit, for pytest: they are there wherever tapstore is installed.

A run that asks for none of them pays for nothing: whatever they need is imported, and each server
started, when a test first asks for it.  What is not installed skips the test and says what to
install.  Each name begins with `tapstore_`; `-p no:tapstore` leaves them all out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tapstore.testing.agents import ScriptedAgent
    from tapstore.testing.clock import ManualClock
    from tapstore.testing.servers.redis_like import RedisServer
    from tapstore.testing.servers.s3 import S3Server
    from tapstore.testing.sessions import SessionPlace

_MOTO = ("moto", "flask", "flask_cors", "tapstore_s3")


@pytest.fixture
def tapstore_memory() -> Iterator[SessionPlace]:
    """A place for sessions in the memory of this process."""
    from tapstore.testing import sessions

    with sessions.in_memory() as place:
        yield place


@pytest.fixture
def tapstore_folder(tmp_path: Path) -> Iterator[SessionPlace]:
    """A place for sessions in a folder of the test's `tmp_path`."""
    from tapstore.testing import sessions

    with sessions.in_folder(tmp_path / "sessions") as place:
        yield place


@pytest.fixture
def tapstore_tmpfs() -> Iterator[SessionPlace]:
    """A place for sessions on a tmpfs."""
    from tapstore.testing import sessions

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(sessions.tmpfs_folder())
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
        yield stack.enter_context(sessions.in_folder(folder))


@pytest.fixture(scope="session")
def tapstore_moto_server() -> Iterator[S3Server]:
    """moto's S3 in a process of its own, with conditional writes made atomic."""
    _needs(*_MOTO, extra="testing")
    from tapstore.testing.servers import moto

    yield from _running(moto.server)


@pytest.fixture
def tapstore_moto(tapstore_moto_server: S3Server) -> Iterator[SessionPlace]:
    """A place for sessions in a new bucket of moto."""
    yield from _bucket(tapstore_moto_server)


@pytest.fixture(scope="session")
def tapstore_seaweedfs_server() -> Iterator[S3Server]:
    """SeaweedFS, a real S3 server."""
    _needs("tapstore_s3", extra="testing")
    from tapstore.testing.servers import seaweedfs

    yield from _running(seaweedfs.server)


@pytest.fixture
def tapstore_seaweedfs(tapstore_seaweedfs_server: S3Server) -> Iterator[SessionPlace]:
    """A place for sessions in a new bucket of SeaweedFS."""
    yield from _bucket(tapstore_seaweedfs_server)


@pytest.fixture(params=["memory", "folder", "tmpfs", "moto", "seaweedfs"])
def tapstore_place(request: pytest.FixtureRequest) -> SessionPlace:
    """Each of the places, one after the other: the test runs once on each."""
    place: SessionPlace = request.getfixturevalue(f"tapstore_{request.param}")
    return place


@pytest.fixture(scope="session")
def tapstore_valkey_server() -> Iterator[RedisServer]:
    """Valkey, which speaks Redis's protocol."""
    _needs("tapstore_redis", "redis", extra="testing-servers")
    from tapstore.testing.servers import valkey

    yield from _running(valkey.server)


@pytest.fixture
def tapstore_redis(tapstore_valkey_server: RedisServer) -> RedisServer:
    """Valkey without any data: `locks=tapstore_redis.url`."""
    with tapstore_valkey_server.client() as client:
        client.flushall()
    return tapstore_valkey_server


@pytest.fixture
def tapstore_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from tapstore.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def tapstore_agent() -> Iterator[Callable[..., ScriptedAgent]]:
    """Makes scripted agents; those that still live at the end of the test are told to die."""
    from tapstore.testing.agents import ScriptedAgent

    made: list[ScriptedAgent] = []

    def make(*args: Any, **options: Any) -> ScriptedAgent:
        made.append(ScriptedAgent(*args, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.die()


def _bucket(server: S3Server) -> Iterator[SessionPlace]:
    from tapstore.testing import sessions

    with sessions.in_bucket(
        server.new_bucket(), server.storage_options, server.environment
    ) as place:
        yield place


def _needs(*modules: str, extra: str) -> None:
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        pytest.skip(f'{", ".join(missing)} not installed: pip install "tapstore[{extra}]"')


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it was put out of the way: sys.modules has None for it
        return False


def _running(server: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    from tapstore.testing.servers.process import ServerMissingError

    with ExitStack() as stack:
        try:
            running = stack.enter_context(server())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        yield running
