"""moto's S3, made atomic: conditional writes of several clients exclude each other.

As it comes, moto checks and writes in two steps, and a GET that meets an overwriting PUT fails
with 500.  Here one request is handled at a time.  Conditions that moto does not know stay unknown:
CompleteMultipartUpload with If-Match, DeleteObjects with an ETag, CopyObject with If-None-Match.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import REPOSITORY, Process, temporary_folder
from tests.servers.s3 import S3Server


@contextmanager
def server() -> Iterator[S3Server]:
    """Run moto in a process of its own."""
    with temporary_folder("moto") as folder:
        port_file = folder / "port"
        process = Process(
            "moto",
            [sys.executable, "-m", "tests.servers.moto_app", port_file],
            folder,
            env={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            port = process.wait_until(lambda: _read(port_file), "listening")
            yield S3Server("moto", f"http://127.0.0.1:{port}", process.pid, stop=process.stop)
        finally:
            process.stop()


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
