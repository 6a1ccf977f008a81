"""Azurite, the emulator of Azure's blob storage, where `AZURITE` names the folder npm put it in.

It is large, so no installation of this project brings it: `npm install --prefix DIR azurite`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.process import (
    Process,
    ServerMissingError,
    find_program,
    free_ports,
    retried,
    temporary_folder,
)

# Known to everybody, and to every copy of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class AzureServer:
    """What a client needs to know."""

    port: int
    process: Process

    @property
    def storage_options(self) -> dict[str, Any]:
        endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        return {
            "account_name": ACCOUNT,
            "account_key": KEY,
            "connection_string": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};"
            f"AccountKey={KEY};BlobEndpoint={endpoint};",
        }


@contextmanager
def server() -> Iterator[AzureServer]:
    """Run Azurite's blob service, in memory."""
    folder = os.environ.get("AZURITE")
    if not folder:
        raise ServerMissingError("set AZURITE to the folder of `npm install --prefix … azurite`")
    program = Path(folder) / "node_modules/azurite/dist/src/blob/main.js"
    node = find_program("node", "install Node.js")
    with temporary_folder("azurite") as work:

        def start() -> AzureServer:
            (port,) = free_ports(1)
            process = Process(
                "azurite",
                [node, program, "--blobHost", "127.0.0.1", "--blobPort", str(port),
                 "--inMemoryPersistence", "--silent", "--skipApiVersionCheck",
                 "--disableTelemetry"],
                work,
            )  # fmt: skip
            process.wait_until(lambda: process.listens_on(port), "listening")
            return AzureServer(port, process)

        running = retried(start)
        try:
            yield running
        finally:
            running.process.stop()
