"""A network of its own for a server and its guests: no other process is on it.

It is that of a thread, and ends with what lives in it.  Sockets that were made there can be used
from everywhere.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from tests.servers.process import ServerFailedError, ServerMissingError

T = TypeVar("T")

# For documentation: it is nobody's.
SERVER = "192.0.2.1"
CONNECT_SECONDS = 30.0

_CLONE_NEWNET = 0x40000000


class Network:
    """What runs `inside` runs in a thread that is on this network, as do its children."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self.inside(_enter)
        self._ip("link", "set", "lo", "up")

    def inside(self, action: Callable[[], T]) -> T:
        return self._thread.submit(action).result()

    def add_guest(self, device: str, address: str) -> None:
        """Make the end of a cable whose other end is in a guest."""
        self._ip("tuntap", "add", "dev", device, "mode", "tap")
        self._ip("address", "add", SERVER, "peer", address, "dev", device)
        self._ip("link", "set", device, "up")

    def connect(self, address: str, port: int, timeout: float = CONNECT_SECONDS) -> socket.socket:
        return self.inside(lambda: socket.create_connection((address, port), timeout=timeout))

    def _ip(self, *arguments: str) -> None:
        done = self.inside(
            lambda: subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        )
        if done.returncode:
            raise ServerFailedError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def network() -> Iterator[Network]:
    """`ServerMissingError` if this process may not have one."""
    with ThreadPoolExecutor(1) as thread:
        yield Network(thread)


def _enter() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        reason = os.strerror(ctypes.get_errno())
        raise ServerMissingError(f"a network of its own was refused ({reason}): run it as root")
