"""Samba's server, from the system's packages: one share, one user, no other services.

It needs root: smbd changes to the user that has logged in, who has to be one of the system.  The
only one that is sure to be there is root itself, so its password here is a random one of this run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.process import (
    Process,
    ServerMissingError,
    find_program,
    free_ports,
    retried,
    run,
    temporary_folder,
)

HOW = "make servers"
SHARE = "share"


@dataclass(frozen=True)
class SmbServer:
    """What a client needs to know, and where the files really are."""

    port: int
    files: Path
    process: Process
    password: str = field(repr=False)

    def url(self, name: str) -> str:
        """The URL of a folder of this name; a test should take one of its own."""
        return f"smb://127.0.0.1/{SHARE}/{name}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"port": self.port, "username": "root", "password": self.password}


@contextmanager
def server() -> Iterator[SmbServer]:
    """Run smbd."""
    smbd = find_program("smbd", HOW)
    smbpasswd = find_program("smbpasswd", HOW)
    if os.geteuid() != 0:
        raise ServerMissingError("smbd needs root")
    with temporary_folder("smbd") as folder:
        files = folder / "files"
        files.mkdir()
        configuration = folder / "smb.conf"
        password = secrets.token_urlsafe(12)

        def start() -> tuple[Process, int]:
            (port,) = free_ports(1)
            configuration.write_text(_configuration(folder, files, port))
            given = folder / "password"
            given.write_text(f"{password}\n{password}\n")
            run(["sh", "-c", f'exec "$0" -c "$1" -s -a root < "{given}"', smbpasswd, configuration],
                folder)  # fmt: skip
            given.unlink()
            process = Process(
                "smbd",
                [smbd, "--foreground", "--no-process-group", "--debug-stdout",
                 f"--configfile={configuration}"],
                folder,
            )  # fmt: skip
            process.wait_until(lambda: process.listens_on(port), "listening")
            return process, port

        process, port = retried(start)
        try:
            yield SmbServer(port, files, process, password)
        finally:
            process.stop()


def _configuration(folder: Path, files: Path, port: int) -> str:
    state = ("private dir", "lock directory", "state directory", "cache directory", "pid directory",
             "ncalrpc dir")  # fmt: skip
    lines = [f"{name} = {folder / name.replace(' ', '-')}" for name in state]
    for name in state:
        (folder / name.replace(" ", "-")).mkdir(mode=0o755, exist_ok=True)
    lines += [
        "interfaces = lo",
        "bind interfaces only = yes",
        f"smb ports = {port}",
        "server role = standalone server",
        "disable netbios = yes",
        "disable spoolss = yes",
        "load printers = no",
        "passdb backend = tdbsam",
        "log level = 1",
    ]
    share = [f"path = {files}", "read only = no", "case sensitive = yes"]
    return "\n".join(["[global]", *lines, f"[{SHARE}]", *share, ""])
