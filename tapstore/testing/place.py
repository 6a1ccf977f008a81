"""What the conformance suite needs to know of a place, and how it makes callers race."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tapstore.abc import Store
from tapstore.errors import TapstoreError

T = TypeVar("T")


class Place(ABC):
    """One place that stores can be opened on, and an oracle that bypasses them."""

    @abstractmethod
    def open(self) -> Store:
        """Return a new client that shares nothing with the others but the place."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """Return what lies under the key, None if nothing does."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Put it there, whatever was there."""

    @abstractmethod
    def names(self) -> set[str]:
        """Everything that lies there, also what no listing should show."""


def race(callers: list[Callable[[], T]]) -> list[T | TapstoreError]:
    """Call all at the same moment; return what each returned or raised."""
    start = threading.Barrier(len(callers))

    def call(caller: Callable[[], T]) -> T | TapstoreError:
        start.wait()
        try:
            return caller()
        except TapstoreError as exc:
            return exc

    with ThreadPoolExecutor(len(callers)) as pool:
        return list(pool.map(call, callers))
