"""Servers that speak Redis's protocol: on TCP and a unix socket, with TLS and a user if asked for.

Nothing is saved unless `restart` is told to keep the data.  One process: no replica, no sentinel.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tapstore.testing.servers.process import Process, free_ports, retried, temporary_folder

if TYPE_CHECKING:
    import redis

USER = "tapstore"


class TlsFiles(Protocol):
    """Files in PEM: the server's, and the authority that its clients have to trust."""

    @property
    def authority(self) -> Path: ...

    @property
    def certificate(self) -> Path: ...

    @property
    def key(self) -> Path: ...


class RedisServer:
    """A running server.  Its addresses stay the same when it is restarted."""

    def __init__(
        self,
        name: str,
        program: Path,
        folder: Path,
        *,
        acl: bool = False,
        tls: TlsFiles | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.user = USER if acl else None
        self.password = secrets.token_hex(20) if acl else None
        self.socket = folder / "redis.sock"
        [self.port] = free_ports(1)
        self._program, self._folder = program, folder
        self._certificates = tls
        # Not in the arguments: all can see those.
        configuration = folder / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._configuration(settings or {}))
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        """With user and password, if there are any."""
        scheme = "rediss" if self._certificates else "redis"
        return f"{scheme}://{self._login}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self._login}{self.socket}?db=0"

    @property
    def ca_file(self) -> Path | None:
        """What a client has to trust, if it is TLS."""
        return self._certificates.authority if self._certificates else None

    @contextmanager
    def client(self, **options: Any) -> Iterator[redis.Redis]:
        """A client of redis-py that repeats nothing, unless `options` say otherwise."""
        import redis

        trusted = {"ssl_ca_certs": str(self.ca_file)} if self.ca_file else {}
        with redis.Redis.from_url(self.url, **{**trusted, "retry": None, **options}) as client:
            yield client

    def stop(self) -> None:
        """End the server in its own way.  What it knew is lost."""
        self._process.stop()

    def kill(self) -> None:
        """End the server as a crash would."""
        self._process.kill()

    def restart(self, *, keep_data: bool) -> None:
        """Start the server again.  If it is to keep its data it must be running."""
        if keep_data:
            with self.client() as client:
                client.shutdown(save=True)
            self._process.wait()
        else:
            self._process.kill()
            (self._folder / "dump.rdb").unlink(missing_ok=True)
        self._process = self._start()

    @property
    def _login(self) -> str:
        return f"{self.user}:{self.password}@" if self.user else ""

    def _configuration(self, settings: Mapping[str, str]) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "save": '""',
            "appendonly": "no",
            "daemonize": "no",
        }
        if files := self._certificates:
            lines |= {
                "port": "0",
                "tls-port": str(self.port),
                "tls-cert-file": str(files.certificate),
                "tls-key-file": str(files.key),
                "tls-ca-cert-file": str(files.authority),
                "tls-auth-clients": "no",
            }
        users = f"user default off\nuser {USER} on >{self.password} ~* &* +@all\n"
        return "".join(f"{name} {value}\n" for name, value in {**lines, **settings}.items()) + (
            users if self.user else ""
        )

    def _start(self) -> Process:
        process = Process(self.name, [self._program, "redis.conf"], self._folder)
        try:
            process.wait_until(lambda: process.listens_on(self.port), "listening")
            process.wait_until(self._answers, "answering")
        except BaseException:
            process.kill()
            raise
        return process

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError) as exc:
            if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
                raise  # it won't get better
            return False


@contextmanager
def server(
    name: str, program: Path, *, acl: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[RedisServer]:
    """Run `program`; `settings` are lines of its configuration file."""
    with temporary_folder(name) as folder:
        running = retried(lambda: RedisServer(name, program, folder, acl=acl, settings=settings))
        try:
            yield running
        finally:
            running.kill()
