"""`.tap/locks/tapfile.lock`: the O_EXCL file of the original protocol."""

from __future__ import annotations

import os
import random

import msgspec

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.types import CREATE, Owner


class TapfileLock:
    def __init__(
        self,
        store: Store,
        key: str,
        owner: Owner,
        *,
        clock: Clock = SYSTEM_CLOCK,
        foreign_stale_after: float | None = None,  # noqa: ARG002
    ) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._owner = owner
        self._count = 0
        self._data = b""

    def acquire(self, wait: float) -> bool:
        deadline = self._clock.monotonic() + wait
        self._count += 1
        self._data = msgspec.json.encode(
            {"agent": self._owner.agent, "token": f"{self._owner.instance}-{self._count}",
             "host": self._owner.host, "pid": os.getpid()}
        )  # fmt: skip
        pause = 0.0005
        while True:
            try:
                self._store.put(self._key, self._data, CREATE)
                return True
            except AlreadyExistsError:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.sleep(min(left, random.uniform(0, pause)))
                pause = min(pause * 2, 0.02)

    def is_ours(self) -> bool:
        try:
            return self._store.get(self._key).data == self._data
        except NotFoundError:
            return False

    def release(self) -> None:
        if self.is_ours():
            self._store.delete(self._key)
