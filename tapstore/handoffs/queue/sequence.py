"""Draws the ids of a role's messages; none is ever drawn twice, whoever sends for the role.

Numbers are reserved in blocks: a block is a file that is created exclusively under its first
number, as many bytes longer than a random id as it has numbers.  Who reserves the next one, of
whatever size, needs the name behind its end, which is the same for all.  Old files are removed, and
whoever was stopped for long in the middle of a reservation might create one of those again; so a
reservation that took long is thrown away.
"""

from __future__ import annotations

from tapstore.abc import Clock, Store
from tapstore.errors import AlreadyExistsError, NotFoundError, StoreError
from tapstore.handoffs.names import MAX_SEQUENCE, Stamp
from tapstore.handoffs.queue.places import Places, file_name
from tapstore.sessions.config import new_id
from tapstore.types import CREATE, ObjectInfo

MAX_BLOCK = 1024
"""One process reserves 1, 2, 4, … numbers at a time, up to this."""

MAX_RESERVATION_SECONDS = 60.0
KEEP_SECONDS = 600.0
"""How long a name is kept.  Far above the time that a reservation may take."""

_KEEP = 64

_ID_BYTES = 16
"""Room for the id in a block."""


class Sequence:
    """For one process, which sends for one role."""

    def __init__(self, store: Store, places: Places, clock: Clock) -> None:
        self._store = store
        self._places = places
        self._clock = clock
        self._next = self._end = 0
        self._block = 1
        self._last: Stamp | None = None

    def draw(self) -> Stamp:
        """The next stamp, at the store's time, above all that this object drew before."""
        if self._next >= self._end:
            self._next, self._end = self._reserve(self._block)
            self._block = min(2 * self._block, MAX_BLOCK)
        number = self._next % MAX_SEQUENCE + 1
        self._next += 1
        at = int(self._store.now())
        if self._last is not None:
            # Behind 999999 comes 000001: it has to be in a later second to be in order.
            at = max(at, self._last.at + (number <= self._last.sequence))
        self._last = Stamp(at, number)
        return self._last

    def _reserve(self, size: int) -> tuple[int, int]:
        taken = 0
        while True:
            started = self._clock.monotonic()
            known = self._known()
            begin = max([taken, *(first + _numbers(info) for first, info in known[-1:])])
            key = f"{self._places.sequence}{begin:012}"
            # No two are equal: bytes that are there and equal ours would be taken for ours.
            block = new_id().encode().ljust(_ID_BYTES + size, b".")
            try:
                put = self._store.put(key, block, CREATE)
            except AlreadyExistsError:
                # A listing may be older than what lies there, or not show it at all.
                taken = begin + self._numbers_at(key)
                continue
            if self._clock.monotonic() - started <= MAX_RESERVATION_SECONDS:
                self._tidy(known, now=put.modified)
                return begin, begin + size

    def _numbers_at(self, key: str) -> int:
        try:
            return _numbers(self._store.head(key))
        except NotFoundError:
            return 1

    def _known(self) -> list[tuple[int, ObjectInfo]]:
        """All reservations that are left, by their first numbers."""
        found = []
        for info in self._store.list(self._places.sequence):
            name = file_name(info.key)
            if len(name) == 12 and name.isascii() and name.isdecimal():
                found.append((int(name), info))
        return found

    def _tidy(self, known: list[tuple[int, ObjectInfo]], *, now: float) -> None:
        # The highest of these stays in any case: numbers only go up from it.
        if len(known) <= _KEEP:
            return
        for _, info in known[:-1]:
            if info.modified < now - KEEP_SECONDS:
                try:
                    self._store.delete(info.key)
                except StoreError:
                    return


def _numbers(info: ObjectInfo) -> int:
    """How many a block has; never none, whatever somebody put there."""
    return min(max(info.size - _ID_BYTES, 1), MAX_BLOCK)
