"""Servers that speak Redis's protocol: those of the test kit, with TLS if asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tapstore.testing.servers import redis_like
from tests.servers import certificates
from tests.servers.process import retried, temporary_folder


class RedisServer(redis_like.RedisServer):
    """A running server.  Its addresses stay the same when it is restarted."""

    def __init__(
        self,
        name: str,
        program: Path,
        folder: Path,
        *,
        tls: bool,
        acl: bool,
        settings: Mapping[str, str],
    ) -> None:
        files = certificates.make(folder) if tls else None
        super().__init__(name, program, folder, acl=acl, tls=files, settings=settings)


@contextmanager
def server(
    name: str,
    program: Path,
    *,
    tls: bool = False,
    acl: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[RedisServer]:
    """Run `program`; `settings` are lines of its configuration file."""
    with temporary_folder(name) as folder:
        running = retried(
            lambda: RedisServer(name, program, folder, tls=tls, acl=acl, settings=settings or {})
        )
        try:
            yield running
        finally:
            running.kill()
