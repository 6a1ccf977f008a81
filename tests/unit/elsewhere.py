"""A lock service outside of the session, `elsewhere://name`: leases in a memory of its own.

It stands for a server: it can be away, and knows whose URL it was opened with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.keys import without_password
from tapstore.locks.leaseobject import LeaseObjectService
from tapstore.stores.memory import MemoryStore
from tapstore.testing.faults import Fault, FaultyStore, refuse

ECONNREFUSED = 111


class Elsewhere:
    """The servers of one test."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.urls: list[str] = []
        """With which it was opened."""
        self._memories: dict[str, Store] = {}

    def open_service(
        self, store: Store, prefix: str, *, url: str, scope: str, clock: Clock
    ) -> LeaseObjectService:
        del store, prefix
        self.urls.append(url)
        server = without_password(url).rpartition("@")[2].removeprefix("elsewhere://")
        memory = self._memories.setdefault(server, MemoryStore(clock=clock))

        def answer(key: str) -> None:
            if server in self.away:
                refuse(ECONNREFUSED)(key)

        return LeaseObjectService(
            FaultyStore(memory, Fault("*", times=10**9, before=answer)), scope, clock=clock
        )


_present: list[Elsewhere] = []


def open_service(
    store: Store, prefix: str, *, url: str, scope: str, clock: Clock
) -> LeaseObjectService:
    return _present[-1].open_service(store, prefix, url=url, scope=scope, clock=clock)


@contextmanager
def installed() -> Iterator[Elsewhere]:
    """As if a package with this service were installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BUILT_IN_LOCKS, "elsewhere", f"{__name__}:open_service")
        _present.append(Elsewhere())
        yield _present[-1]
        _present.pop()
