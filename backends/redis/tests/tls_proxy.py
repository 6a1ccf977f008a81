"""TLS in front of any server: the wheels of Valkey are built without it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.servers.certificates import Certificates


@contextmanager
def tls_proxy(target: int, files: Certificates, *, host: str = "127.0.0.1") -> Iterator[int]:
    """Its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    listener = socket.create_server((host, 0))
    ends: list[socket.socket] = []

    def serve(plain: socket.socket) -> None:
        with suppress(OSError):  # a client that trusts nobody goes away
            client = context.wrap_socket(plain, server_side=True)
            server = socket.create_connection(("127.0.0.1", target))
            ends.extend((client, server))
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            _copy(client, server)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
