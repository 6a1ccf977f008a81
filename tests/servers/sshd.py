"""OpenSSH's server, from the system's packages: SFTP for one key, below one folder.

It runs as whoever runs the tests, and keeps its own files in the folder of this run.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.process import Process, find_program, free_ports, retried, run, temporary_folder

HOW = "make servers"


@dataclass(frozen=True)
class SftpServer:
    """What a client needs to know, and where the files really are."""

    port: int
    key_file: Path
    files: Path
    process: Process

    def url(self, name: str) -> str:
        """The URL of a folder of this name; a test should take one of its own."""
        return f"sftp://127.0.0.1{self.files}/{name}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "port": self.port, "username": getpass.getuser(), "key_filename": str(self.key_file),
            "look_for_keys": False, "allow_agent": False,
        }  # fmt: skip


@contextmanager
def server() -> Iterator[SftpServer]:
    """Run sshd."""
    sshd = find_program("sshd", HOW)
    with temporary_folder("sshd") as folder:
        # sshd refuses keys in a folder that others may write to.
        keys = {"host": folder / "host", "client": folder / "client"}
        keygen = find_program("ssh-keygen", HOW)
        for path in keys.values():
            run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", path], folder)
        (folder / "authorized").write_text((folder / "client.pub").read_text())
        files = folder / "files"
        files.mkdir()

        def start() -> tuple[Process, int]:
            (port,) = free_ports(1)
            (folder / "sshd_config").write_text(
                f"ListenAddress 127.0.0.1:{port}\n"
                f"HostKey {keys['host']}\n"
                f"AuthorizedKeysFile {folder / 'authorized'}\n"
                f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
                "PermitRootLogin prohibit-password\nMaxStartups 100\n"
                "Subsystem sftp internal-sftp\n"
            )
            process = Process(
                "sshd", [sshd, "-D", "-e", "-f", folder / "sshd_config"], folder
            )  # fmt: skip
            process.wait_until(lambda: process.listens_on(port), "listening")
            return process, port

        if os.geteuid() == 0:
            # Compiled in: an empty folder in which it isolates what is not logged in yet.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        process, port = retried(start)
        try:
            yield SftpServer(port, keys["client"], files, process)
        finally:
            process.stop()
