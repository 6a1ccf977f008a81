"""When a delivery that did not succeed is tried again: a note beside the message.

Waits double from one second to a minute.  Notes are overwritten by whoever tries; one that is lost
only has it tried earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tapstore.abc import Store
from tapstore.errors import InvalidKeyError, OutcomeUnknownError, StoreError
from tapstore.handoffs.queue import records
from tapstore.types import OVERWRITE

MAX_PAUSE_SECONDS = 60.0

LISTED_FROM = 3
"""What was tried so often in vain is worth somebody's attention."""

SUFFIX = ".retry"


@dataclass(frozen=True, slots=True)
class Note:
    """How often it was tried in vain, when it is tried again (in the store's clock), and why."""

    tries: int
    next_at: float
    reason: str


class Patience:
    """The notes beside what lies in outboxes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, key: str) -> Note | None:
        """What is noted of a message; None if nothing is that can be read."""
        try:
            found = records.fetch(self._store, key + SUFFIX)
        except StoreError as exc:
            if not records.is_its_own(exc):
                raise
            return None
        if found is None:
            return None
        try:
            return msgspec.json.decode(found.data, type=Note)
        except msgspec.DecodeError:
            return None

    def is_due(self, key: str) -> bool:
        """Whether it may be tried."""
        note = self.read(key)
        if note is None:
            return True
        now = self._store.now()
        # Also if the note comes from a clock that was ahead.
        return not now < note.next_at <= now + MAX_PAUSE_SECONDS

    def note(self, key: str, reason: str) -> int:
        """Note that it was tried in vain; returns how often by now."""
        before = self.read(key)
        tries = min(1 if before is None else before.tries + 1, 1_000_000)
        pause = min(2.0 ** min(tries - 1, 10), MAX_PAUSE_SECONDS)
        note = Note(tries, self._store.now() + pause, records.one_line(reason))
        # The place that refuses the message may refuse the note as well; and beside a name that is
        # as long as one may be there is no room for one.
        with suppress(StoreError, OutcomeUnknownError, InvalidKeyError):
            self._store.put(key + SUFFIX, msgspec.json.encode(note), OVERWRITE)
        return tries

    def forget(self, key: str) -> None:
        """Remove the note."""
        with suppress(StoreError, OutcomeUnknownError, InvalidKeyError):
            self._store.delete(key + SUFFIX)

    def tidy(self, keys: Sequence[str]) -> None:
        """Remove the notes among these that belong to none of them: a write came late."""
        messages = set(keys)
        for key in keys:
            if key.endswith(SUFFIX) and key.removesuffix(SUFFIX) not in messages:
                self._store.delete(key)
