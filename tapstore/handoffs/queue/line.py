"""The order in which a mailbox's messages are taken: by name, and by age where that counts.

A priority is worth some time, so that a message of priority 99 is reached in the end: the first of
another priority comes before the head of the line if it would have been due before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from tapstore.abc import Clock, Store
from tapstore.handoffs.names import is_name
from tapstore.handoffs.queue.places import Places, file_name
from tapstore.types import ObjectInfo

LOOK_SECONDS = 5.0
"""How often one process looks for messages of other priorities that have become due."""

_FOLDER = re.compile(r"([0-9]{2})_([0-9]{8}T[0-9]{2})/")


class Line:
    """What waits in one mailbox."""

    def __init__(
        self, store: Store, places: Places, *, ageing_seconds: float, clock: Clock
    ) -> None:
        self._store = store
        self._places = places
        self._ageing = ageing_seconds
        self._clock = clock
        self._look_at = 0.0

    def walk(self, is_held: Callable[[str], bool]) -> Iterator[ObjectInfo]:
        """Everything that waits, first come first; looked at as it is consumed.

        `is_held` says of a name whether somebody works on it; such do not keep others from being
        due.
        """
        early: set[str] = set()
        for info in self._overdue(is_held):
            early.add(info.key)
            yield info
        for info in self._store.list(self._places.new):
            if info.key not in early and is_name(file_name(info.key)):
                yield info

    def of_priority(self, priority: str) -> Iterator[ObjectInfo]:
        """Everything that waits with this priority (two digits), in order."""
        return (
            info
            for info in self._store.list(f"{self._places.new}{priority}_")
            if is_name(file_name(info.key))
        )

    def _overdue(self, is_held: Callable[[str], bool]) -> Iterator[ObjectInfo]:
        now = self._clock.monotonic()
        if not self._ageing or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        first: dict[int, tuple[str, float]] = {}
        for name in self._store.children(self._places.new):
            match = _FOLDER.fullmatch(name)
            hour = _time(f"{match[2]}0000") if match else None
            if match and hour is not None:
                first.setdefault(int(match[1]), (name, hour))
        if len(first) < 2:
            return
        urgent, *others = sorted(first)
        due = self._first_due(f"{urgent:02}_", is_held)
        if due is None:
            # All of them are in somebody's hands.
            due = math.inf
        found: list[tuple[float, str]] = []
        for priority in others:
            name, hour = first[priority]
            # The name of the folder tells no more than the hour.
            if hour + priority * self._ageing < due:
                at = self._first_due(name, is_held)
                if at is not None and at < due:
                    found.append((at, name))
        for _, name in sorted(found):
            for info in self._store.list(f"{self._places.new}{name}"):
                at = self._due(file_name(info.key))
                if at is None or at >= due:
                    break
                yield info

    def _first_due(self, prefix: str, is_held: Callable[[str], bool]) -> float | None:
        """When the first that nobody has is due; None if there is none."""
        for info in self._store.list(f"{self._places.new}{prefix}"):
            name = file_name(info.key)
            if not is_held(name):
                return self._due(name)
        return None

    def _due(self, name: str) -> float | None:
        """When it is due, in seconds since the epoch; None if its name has no time."""
        queued = _time(name[3:18]) if is_name(name) and name[:2].isdecimal() else None
        return None if queued is None else queued + int(name[:2]) * self._ageing


def _time(text: str) -> float | None:
    """`20260615T140531` as seconds since the epoch."""
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
