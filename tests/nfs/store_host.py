"""Runs in a guest: stores on its mount, for whoever connects.

    python store_host.py ADDRESS

Prints its port.  Each connection carries one call at a time; see `remote_store` for the other
end.  Streams and iterators stay here and are asked for piece by piece.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from tapstore.stores.local import LocalStore

_numbers = itertools.count()
_objects: dict[int, Any] = {}


class Source:
    """A stream that the other end reads for us."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, size: int = -1) -> bytes:
        self._connection.send(("read", size))
        kind, answer = self._connection.recv()
        if kind == "raise":
            raise answer
        return answer


def keep(found: Any) -> int:
    number = next(_numbers)
    _objects[number] = found
    return number


def write_plainly(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def call(connection: Connection, number: int, name: str, args: tuple, kwargs: dict) -> Any:
    if name == "new":
        return keep(LocalStore(*args, **kwargs))
    if name == "write":
        return write_plainly(*args)
    target = _objects[number]
    if name == "next":
        return next(target, None)
    if name == "upload":
        key, *mode = args
        return target.upload(key, Source(connection), *mode, **kwargs)
    found = getattr(target, name)(*args, **kwargs)
    if name == "open":
        return keep(found.__enter__())
    return keep(found) if name in ("list", "children") else found


def serve(connection: Connection) -> None:
    with connection:
        while True:
            try:
                request = connection.recv()
            except EOFError:
                return
            try:
                answer = ("return", call(connection, *request))
            except Exception as exc:
                answer = ("raise", exc)
            connection.send(answer)


if __name__ == "__main__":
    with socket.create_server((sys.argv[1], 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            accepted = Connection(listener.accept()[0].detach())
            threading.Thread(target=serve, args=(accepted,), daemon=True).start()
