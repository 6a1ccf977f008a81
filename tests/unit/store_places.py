"""The places that the conformance suite runs on here, each with an oracle that bypasses stores."""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Callable
from pathlib import Path

from tapstore.abc import Store
from tapstore.stores import memory
from tapstore.stores.local import Durability, LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.testing.place import Place


class MemoryPlace(Place):
    def __init__(self) -> None:
        self.url = f"memory://{os.urandom(8).hex()}"

    def open(self) -> Store:
        return MemoryStore(self.url)

    @property
    def _space(self) -> memory._Space:
        return memory._spaces.setdefault(self.url.removeprefix("memory://"), memory._Space())

    def read(self, key: str) -> bytes | None:
        found = self._space.objects.get(key)
        return None if found is None else found.data

    def write(self, key: str, data: bytes) -> None:
        if key not in self._space.objects:
            insort(self._space.keys, key)
        self._space.objects[key] = memory._Object(data, "raw", 0.0)

    def names(self) -> set[str]:
        return set(self._space.objects)


class LocalPlace(Place):
    def __init__(self, root: Path, durability: Durability = "full") -> None:
        self.root = root
        self.durability = durability

    def open(self) -> Store:
        return LocalStore(self.root, durability=self.durability)

    def read(self, key: str) -> bytes | None:
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def names(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


class WrappedPlace(Place):
    """`inner`, with a wrapper around each store; its keys lie below `below`."""

    def __init__(self, inner: Place, wrap: Callable[[Store], Store], below: str = "") -> None:
        self._inner = inner
        self._wrap = wrap
        self._below = below

    def open(self) -> Store:
        return self._wrap(self._inner.open())

    def read(self, key: str) -> bytes | None:
        return self._inner.read(self._below + key)

    def write(self, key: str, data: bytes) -> None:
        self._inner.write(self._below + key, data)

    def names(self) -> set[str]:
        return {name.removeprefix(self._below) for name in self._inner.names()}
