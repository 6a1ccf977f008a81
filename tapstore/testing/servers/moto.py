"""moto's S3, made atomic: conditional writes of several clients exclude each other.

As it comes, moto checks and writes in two steps, and a GET that meets an overwriting PUT fails
with 500.  Here one request is handled at a time.  Conditions that moto does not know stay unknown:
CompleteMultipartUpload with If-Match, DeleteObjects with an ETag, CopyObject with If-None-Match.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.testing.servers.process import Process, announced, python_module, temporary_folder
from tapstore.testing.servers.s3 import S3Server


@contextmanager
def server() -> Iterator[S3Server]:
    """Run moto in a process of its own."""
    with temporary_folder("moto") as folder:
        port_file = folder / "port"
        program = python_module("tapstore.testing.servers.moto_app", port_file)
        process = Process("moto", program, folder)
        try:
            port = process.wait_until(lambda: announced(port_file), "listening")
            yield S3Server("moto", f"http://127.0.0.1:{port}", process.pid, stop=process.stop)
        finally:
            process.stop()
