"""Stores in guests as stores here, so that one test can have clients on several hosts.

The place of the test is the export.  Its oracle reads the server's own files; it writes as a
plain program in the last guest, since Ganesha would not notice what appears behind its back.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from tapstore.abc import Store
from tapstore.stores.local import LocalStore
from tapstore.testing.place import Place
from tapstore.types import CREATE, GetResult, ObjectInfo, PutMode, PutResult, Update
from tests.servers.nfs import Server
from tests.servers.nfs_client import Client

HOST = Path(__file__).with_name("store_host.py")


class Guest:
    """The stores of one guest, and the connections to them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._process = client.python(HOST, client.address)
        line = self._process.stdout.readline()
        assert line, self._process.stderr
        self._port = int(line)
        self._idle: list[Connection] = []

    def call(
        self, number: int, name: str, *args: Any, source: BinaryIO | None = None, **kwargs: Any
    ) -> Any:
        connection = self._idle.pop() if self._idle else self._connect()
        connection.send((number, name, args, kwargs))
        kind, answer = connection.recv()
        while kind == "read":
            assert source is not None
            try:
                connection.send(("return", source.read(answer)))
            except Exception as exc:
                connection.send(("raise", exc))
            kind, answer = connection.recv()
        self._idle.append(connection)
        if kind == "raise":
            raise answer
        return answer

    def _connect(self) -> Connection:
        made = self._client.connect(self._port)
        made.settimeout(None)
        return Connection(made.detach())

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        with self._process:
            pass


class RemoteStore(Store):
    """A `LocalStore` at `folder` of the mount of a guest."""

    capabilities = LocalStore.capabilities

    def __init__(self, guest: Guest, mount: str, export: Path, folder: str) -> None:
        self._guest = guest
        self._number = guest.call(0, "new", f"{mount}/{folder}")
        self._seen, self._real = f"{mount}/", f"{export}/"
        self.url = f"file://{mount}/{folder}"

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._guest.call(self._number, name, *args, **kwargs)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        return self._call("get", key, start=start, end=end)

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        return self._call("get_if_changed", key, version)

    def head(self, key: str) -> ObjectInfo:
        return self._call("head", key)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        return self._call("put", key, data, mode)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self._call("delete", key, version=version)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._iterate(self._call("list", prefix, start_after=start_after))

    def children(self, prefix: str = "") -> Iterator[str]:
        return self._iterate(self._call("children", prefix))

    def _iterate(self, number: int) -> Iterator[Any]:
        while (found := self._guest.call(number, "next")) is not None:
            yield found

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        return self._call("upload", key, mode, source=source)

    @contextmanager
    def open(self, key: str, *, start: int = 0) -> Iterator[BinaryIO]:
        stream = _Stream(self._guest, self._call("open", key, start=start))
        try:
            yield stream
        finally:
            stream.close()

    def now(self) -> float:
        return self._call("now")

    def local_path(self, key: str) -> str:
        return self._call("local_path", key).replace(self._seen, self._real, 1)

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        return self._call("sweep", older_than_seconds, dry_run=dry_run)

    def close(self) -> None:
        self._call("close")


class _Stream(io.RawIOBase):
    def __init__(self, guest: Guest, number: int) -> None:
        self._guest, self._number = guest, number

    def read(self, size: int = -1) -> bytes:
        return self._guest.call(self._number, "read", size)

    def close(self) -> None:
        if not self.closed:
            self._guest.call(self._number, "close")
        super().close()


class NfsPlace(Place):
    """A folder of the export.  Clients are opened on the guests in turn."""

    def __init__(self, server: Server, guests: list[Guest], folder: str) -> None:
        self._server, self._guests, self._folder = server, guests, folder
        self._mount = server.clients[0].mount
        self._root = server.export / folder
        self._opened = 0

    def open(self) -> Store:
        guest = self._guests[self._opened % len(self._guests)]
        self._opened += 1
        return RemoteStore(guest, self._mount, self._server.export, self._folder)

    def read(self, key: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._root / key).read_bytes()
        return None

    def write(self, key: str, data: bytes) -> None:
        self._guests[-1].call(0, "write", f"{self._mount}/{self._folder}/{key}", data)

    def names(self) -> set[str]:
        found = (path for path in self._root.rglob("*") if path.is_file())
        return {str(path.relative_to(self._root)) for path in found}
