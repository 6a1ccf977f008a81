"""The process behind `moto.server`: moto's WSGI application, one request at a time.

Writes the port that it listens on into the file that it is given.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from tapstore.testing.servers.http_server import Handler, HttpServer
from tapstore.testing.servers.process import announce


class OneAtATime:
    """A WSGI application that is entered by one request only, until its answer is complete."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._mutex = threading.Lock()

    def answer(self, environ: dict[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
        result: list[tuple[int, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            result.append((int(status.split()[0]), headers))

        with self._mutex:
            answer = self._app(environ, start_response)
            try:
                body = b"".join(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()
        return *result[-1], body


def main(port_file: Path) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    app = OneAtATime(DomainDispatcherApplication(create_backend_app))

    class MotoHandler(Handler):
        def handle_request(self) -> None:
            # Complete before the lock is taken: a slow sender must not stop the others.
            body = self.read_body()
            self.send_answer(*app.answer(environ(self, body)))

    server = HttpServer(MotoHandler)
    announce(port_file, server.port)
    server.serve_forever()


def environ(request: Handler, body: bytes) -> dict[str, Any]:
    """What WSGI (PEP 3333) passes to an application."""
    url = urlsplit(request.path)
    values = {
        "REQUEST_METHOD": request.command,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.path).decode("latin-1"),
        "QUERY_STRING": url.query,
        "REQUEST_URI": request.path,
        "RAW_URI": request.path,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": str(request.connection.getsockname()[1]),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.client_address[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        if name.lower() not in ("transfer-encoding", "content-length", "expect"):
            variable = name.upper().replace("-", "_")
            values[variable if variable == "CONTENT_TYPE" else f"HTTP_{variable}"] = value
    return {**values, "CONTENT_LENGTH": str(len(body))}


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    main(Path(sys.argv[1]))
