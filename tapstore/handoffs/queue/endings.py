"""How a message ends: completed or dead, whichever name is created first, and what is removed then.

The record comes first.  Whatever a crash leaves of the states before it is passed over by everybody
who looks at the record, and removed by whoever finds it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
)
from tapstore.handoffs import message as messages
from tapstore.handoffs.message import MAX_BYTES, Message
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.records import Attempt
from tapstore.types import CREATE, OVERWRITE

_NO_FILE = (errno.EISDIR, errno.ELOOP, errno.EINVAL)
"""What is said of a folder, a link that leads to itself, and a pipe."""

_REVIVED = ".revived"
"""Ends the name of the note beside the record that says as what it was sent anew."""


class Endings:
    """The ends of the messages in one mailbox."""

    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places

    def record(self, name: str) -> Message | None:
        """How a message ended; None if it did not yet, or its record was pruned."""
        try:
            found = self._store.get(self._places.completed(name), end=MAX_BYTES + 1)
            return messages.parse(found.data, name=found.info.key)
        except NotFoundError:
            return None
        except (FormatError, InvalidKeyError):
            pass
        except StoreError as exc:
            if exc.errno not in _NO_FILE:
                raise
        # Whatever stands there keeps the message from being completed again.
        return Message({}, "")

    def complete(self, attempt: Attempt, *, at: float) -> Message:
        """Have this attempt complete its message; returns the record that stands.

        It is another's if that was faster: ask `is_of`.
        """
        record = records.completed(attempt, at=at)
        try:
            self._store.put(self._places.completed(attempt.name), messages.render(record), CREATE)
        except AlreadyExistsError:
            return self.record(attempt.name) or record
        return record

    def bury(self, name: str, message: Message, attempts: Iterable[Attempt], reason: str) -> None:
        """Give a message up, unless it has ended.

        The attempts stay: they tell who made them and comes too late what became of it.
        """
        record = records.dead(message, attempts, at=self._store.now(), reason=reason)
        try:
            self._store.put(self._places.completed(name), messages.render(record), CREATE)
        except AlreadyExistsError:
            record = self.record(name) or record
        self.clear(name, record, ())

    def clear(self, name: str, record: Message, keys: Iterable[str]) -> None:
        """Remove what is left of a message that has ended: it no longer waits, then `keys`."""
        if records.is_dead(record):
            # A list of the dead without a look at everything that was ever completed.
            reason = record.headers.get(records.REASON, "")
            self._store.put(f"{self._places.dead}{name}", f"{reason}\n".encode(), OVERWRITE)
        self.stop_waiting(name)
        for key in keys:
            self._store.delete(key)

    def revived_as(self, name: str, fresh: str) -> str:
        """The name under which a dead message is sent anew; `fresh` unless it was given one."""
        key = self._places.completed(name) + _REVIVED
        try:
            self._store.put(key, f"{fresh}\n".encode(), CREATE)
        except AlreadyExistsError:
            found = records.fetch(self._store, key)
            return found.data.decode(errors="replace").strip() if found is not None else fresh
        return fresh

    def stop_waiting(self, name: str) -> None:
        """Remove a message from those that wait."""
        self._store.delete(self._places.waiting(name))

    def has_ended(self, name: str) -> bool:
        """Whether there is a record."""
        return exists(self._store, self._places.completed(name))


def exists(store: Store, key: str) -> bool:
    """Whether there is something under a key, a folder, a pipe or any link included."""
    try:
        store.head(key)
    except NotFoundError:
        return False
    except InvalidKeyError:
        return True
    except StoreError as exc:
        if exc.errno not in _NO_FILE:
            raise
    return True


def is_of(record: Message, attempt: Attempt) -> bool:
    """Whether it was this attempt that completed it."""
    headers = record.headers
    return (
        not records.is_dead(record)
        and records.number_of(record) == attempt.number
        and headers.get(records.AGENT, "") == attempt.agent
        and headers.get(records.ACCEPT, "") == attempt.accept_id
    )
