"""A folder on a file server as a place, with an oracle that looks at the server's own disk."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tapstore.abc import Store
from tapstore.registry import open_store
from tapstore.testing.place import Place


class ServedPlace(Place):
    """Below a new name of the server's folder."""

    def __init__(self, server) -> None:
        name = secrets.token_hex(8)
        self.url = server.url(name)
        self.storage_options = server.storage_options
        self.folder: Path = server.files / name

    def open(self) -> Store:
        return open_store(self.url, storage_options=self.storage_options)

    def read(self, key: str) -> bytes | None:
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def names(self) -> set[str]:
        return {
            os.path.relpath(os.path.join(folder, name), self.folder)
            for folder, _, files in os.walk(self.folder)
            for name in files
        }


def descendants(pid: int) -> Iterator[int]:
    """The processes that serve the connections of a server."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return  # it has just ended, as that of a connection does which was closed
    for child in children:
        yield int(child)
        yield from descendants(int(child))


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Keep these processes from answering during the block."""
    silent = list(pids)
    for pid in silent:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in silent:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
