"""Who has accepted what.  An attempt is a name that is created once: `<name>~<number>`.

The highest number of a message holds it, until its lease has passed or it gives the message back;
then the next number may be created.  That number decides nothing about how the message ends: a
worker that was slow may still be the first to complete it.

Time is that of the store: when it last saw the attempt written, and what it says now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tapstore.abc import Store
from tapstore.errors import FormatError, NotFoundError, StoreError
from tapstore.handoffs import message as messages
from tapstore.handoffs.names import is_name
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.places import BATCH_MARK, Places, file_name, split_attempt
from tapstore.handoffs.queue.records import Attempt
from tapstore.handoffs.queue.settings import MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from tapstore.types import ObjectInfo

_REMEMBERED = 2048
_REMEMBERED_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class InProcess:
    """One listing of what is in process."""

    attempts: Mapping[str, Mapping[int, ObjectInfo]]
    """By the name of the message, and by number."""

    batches: Mapping[str, ObjectInfo] = field(default_factory=dict)
    """What lies there of batches, by file name."""

    def latest(self, name: str) -> tuple[int, ObjectInfo] | None:
        """The attempt that holds a message."""
        numbers = self.attempts.get(name)
        if not numbers:
            return None
        number = max(numbers)
        return number, numbers[number]

    def each(self) -> Iterator[tuple[str, int, ObjectInfo]]:
        """Name, number and file of every attempt."""
        for name, numbers in self.attempts.items():
            for number, info in sorted(numbers.items()):
                yield name, number, info


class Attempts:
    """The attempts in one mailbox."""

    def __init__(self, store: Store, places: Places, *, lease_seconds: float) -> None:
        """`lease_seconds` is for attempts that do not say how long they last."""
        self._store = store
        self._places = places
        self._lease = lease_seconds
        self._read: dict[tuple[str, str], Attempt | None] = {}
        self._read_bytes = 0

    def look(self, name: str = "") -> InProcess:
        """What is in process now: all, or the attempts of one message."""
        attempts: dict[str, dict[int, ObjectInfo]] = {}
        batches = {}
        prefix = f"{name}~" if name else ""
        for info in self._store.list(f"{self._places.in_process}{prefix}"):
            name = file_name(info.key)
            if name.startswith(BATCH_MARK):
                batches[name] = info
                continue
            name, number = split_attempt(name)
            if number and is_name(name):
                attempts.setdefault(name, {})[number] = info
        return InProcess(attempts, batches)

    def read(self, name: str, number: int, info: ObjectInfo) -> Attempt | None:
        """An attempt that was listed; None if it is gone, can't be read, or is no message."""
        at = (info.key, info.version)
        if at not in self._read:
            try:
                found = records.fetch(self._store, info.key)
            except StoreError as exc:
                if not records.is_its_own(exc):
                    raise
                return None
            if found is None:
                return None
            self._read_bytes += len(found.data)
            if len(self._read) >= _REMEMBERED or self._read_bytes > _REMEMBERED_BYTES:
                self._read.clear()
                self._read_bytes = len(found.data)
            try:
                parsed = messages.parse(found.data, name=info.key)
            except FormatError:
                self._read[at] = None
            else:
                version = found.info.version
                attempt = Attempt(info.key, name, number, version, parsed)
                self._read[info.key, version] = attempt
                return attempt
        return self._read[at]

    def has_ended(self, name: str, number: int, info: ObjectInfo, *, now: float) -> bool:
        """Whether the message may be accepted again, as far as this attempt is concerned.

        What was written within the shortest lease has not, and is not read.  So what is given back
        is had by the next one after that time, and what nobody can do does not run through all
        its attempts at once.
        """
        if abs(now - info.modified) < MIN_LEASE_SECONDS:
            return False
        attempt = self.read(name, number, info)
        if attempt is not None and attempt.released:
            return True
        # Somebody's rubbish must not hold a message for ever.
        lease = attempt.lease_seconds if attempt is not None else None
        if lease is None or not MIN_LEASE_SECONDS <= lease <= MAX_LEASE_SECONDS:
            lease = self._lease
        if not _is_over(info, lease, now):
            return False
        try:
            # NFS remembers the times in its listings for up to a minute, and a listing of many
            # pages is as old as its first one: it may have been renewed since.
            return _is_over(self._store.head(info.key), lease, now)
        except NotFoundError:
            return False  # it ended since


def _is_over(info: ObjectInfo, lease: float, now: float) -> bool:
    # A time that is ahead by more than a lease is of a clock that has been set back since: it
    # would hold the message until that time comes again.
    return not -lease <= now - info.modified <= lease
