"""How programs that serve are run: as in the test kit, and from modules of this repository."""

from __future__ import annotations

import sys
from pathlib import Path

from tapstore.testing.servers.process import (
    Process,
    ServerFailedError,
    ServerMissingError,
    announce,
    announced,
    find_program,
    free_ports,
    retried,
    run,
    temporary_folder,
)

REPOSITORY = Path(__file__).resolve().parents[2]

__all__ = [
    "REPOSITORY",
    "Process",
    "ServerFailedError",
    "ServerMissingError",
    "announce",
    "announced",
    "find_program",
    "free_ports",
    "python_module",
    "retried",
    "run",
    "temporary_folder",
]


def python_module(name: str, *arguments: object) -> list[str]:
    """The command that runs a module of this repository."""
    # Not `-m`: it would look for the module in the working directory, a server's folder.
    run = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    run += "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
    return [sys.executable, "-Bc", run, str(REPOSITORY), name, *map(str, arguments)]
