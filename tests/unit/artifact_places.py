"""Stores to test artifacts on, with a hand on their clocks."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from pathlib import Path

from tapstore.abc import Clock, Store
from tapstore.artifacts.model import Artifact
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Place(ABC):
    store: Store

    @abstractmethod
    def grow_old(self, seconds: float) -> None:
        """Make all that is there older, in the store's clock."""

    def everything(self) -> list[str]:
        return [info.key for info in self.store.list()]

    def get(self, artifact: Artifact) -> bytes:
        return self.store.get(artifact.path).data


class _MovedClock(Clock):
    moved = 0.0

    def time(self) -> float:
        return 1_000_000 + self.moved

    def monotonic(self) -> float:
        return self.moved

    def sleep(self, seconds: float) -> None:
        self.moved += seconds


class InMemory(Place):
    def __init__(self) -> None:
        self._clock = _MovedClock()
        self.store = MemoryStore(clock=self._clock)

    def grow_old(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class OnDisk(Place):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = LocalStore(root, durability="none")

    def grow_old(self, seconds: float) -> None:
        for file in self.root.rglob("*"):
            if file.is_file():
                status = file.stat()
                os.utime(file, (status.st_atime - seconds, status.st_mtime - seconds))


def make_place(kind: str, tmp_path: Path) -> Place:
    return InMemory() if kind == "memory" else OnDisk(tmp_path / "session")
