"""What the queue writes into messages besides the headers of the format, and reads from them.

All of it begins with `tapstore-`, which no draft may use.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tapstore.abc import Store
from tapstore.clock import parse_time
from tapstore.errors import FormatError, InvalidKeyError, NotFoundError, TapstoreError
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.message import (
    MAX_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Message,
    write_time,
)
from tapstore.handoffs.queue.places import is_batch
from tapstore.types import GetResult

ATTEMPT = "tapstore-attempt"
AGENT = "tapstore-agent"
ACCEPT = "tapstore-accept-id"
"""Drawn for each acceptance.  The name of an attempt can return, if what is delivered late is one
that has ended; this does not."""

LEASE = "tapstore-lease-seconds"
BATCH = "tapstore-batch"
RELEASED = "tapstore-released"
"""Why who had accepted it gave it back."""

OUTCOME = "tapstore-outcome"
"""`dead`; a record without it is completed."""

REASON = "tapstore-reason"
HISTORY = "tapstore-history"
"""The attempts of a dead letter: who, when, and why it was given back if it was."""

RETRY_OF = "tapstore-retry-of"
"""The id of the dead letter that this message repeats."""

ENDED = "tapstore-ended-at"

ROOM_BYTES = 8192
"""What a message must leave of the room that the format has, for all of this."""

_ROOM_HEADERS = 20

_MAX_HISTORY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Attempt:
    """Somebody's hold on a message, or what is left of one."""

    key: str
    name: str
    number: int
    version: str
    message: Message

    @property
    def agent(self) -> str:
        return self.message.headers.get(AGENT, "")

    @property
    def accept_id(self) -> str:
        return self.message.headers.get(ACCEPT, "")

    @property
    def batch(self) -> str:
        """The id of the batch that it was accepted with; empty if it was accepted alone."""
        batch = self.message.headers.get(BATCH, "")
        return batch if is_batch(batch) else ""

    @property
    def released(self) -> str:
        return self.message.headers.get(RELEASED, "")

    @property
    def lease_seconds(self) -> float | None:
        """None if it does not say so in a way that can be read."""
        try:
            return float(self.message.headers.get(LEASE, ""))
        except ValueError:
            return None


def accepted(
    message: Message,
    *,
    at: float,
    number: int,
    agent: str,
    accept_id: str,
    lease_seconds: float,
    batch: str = "",
) -> Message:
    """The message as it lies in process."""
    headers = {
        **without_own(messages.accept(message, at=at).headers),
        ATTEMPT: str(number),
        AGENT: agent,
        ACCEPT: accept_id,
        LEASE: f"{lease_seconds:g}",
    }
    if batch:
        headers[BATCH] = batch
    return Message(headers, message.body)


def released(message: Message, reason: str) -> Message:
    """The attempt as it is given back.  It is of no batch any more, which may be completed."""
    headers = {name: value for name, value in message.headers.items() if name != BATCH}
    return Message({**headers, RELEASED: one_line(reason)}, message.body)


def completed(attempt: Attempt, *, at: float) -> Message:
    """The record of a message that this attempt completes."""
    done = messages.complete(attempt.message, at=at)
    kept = {k: v for k, v in done.headers.items() if k not in (LEASE, RELEASED)}
    return Message(kept, done.body)


def dead(message: Message, attempts: Iterable[Attempt], *, at: float, reason: str) -> Message:
    """The record of a message that is given up."""
    attempts = tuple(attempts)
    history = _history(attempts)
    headers = {
        **without_own(message.headers),
        OUTCOME: "dead",
        REASON: one_line(reason),
        ENDED: write_time(at),
    }
    if history:
        headers[HISTORY] = history
        headers[ATTEMPT] = str(attempts[-1].number)
    return Message(headers, message.body)


def _history(attempts: Sequence[Attempt]) -> str:
    """The last ones, as many as have room."""
    told: list[str] = []
    left = _MAX_HISTORY_BYTES
    for attempt in reversed(attempts):
        line = _told(attempt)
        left -= len(line.encode()) + len("; ")
        if left < 0:
            break
        told.append(line)
    return "; ".join(reversed(told))


def _told(attempt: Attempt) -> str:
    at = attempt.message.headers.get("dequeued_at", "?")
    why = f" ({attempt.released})" if attempt.released else ""
    return one_line(f"{attempt.number}: {attempt.agent or '?'} at {at}{why}")


def without_own(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that belong to a message, without what the queue noted of its way."""
    return {k: v for k, v in headers.items() if not k.startswith("tapstore") or k == RETRY_OF}


def one_line(text: str) -> str:
    """Text as the value of a header: one printable line of at most 300 characters."""
    line = "".join(c if c.isprintable() else " " for c in text).strip()
    return line[:300] or "?"


def is_dead(record: Message) -> bool:
    return record.headers.get(OUTCOME) == "dead"


def ended_at(record: Message) -> float | None:
    """When it was completed or given up, in seconds since the epoch."""
    value = record.headers.get("completed_at") or record.headers.get(ENDED)
    try:
        return None if value is None else parse_time(value)
    except ValueError:
        return None


def number_of(record: Message) -> int:
    """The attempt that it is of; 0 if it does not say."""
    value = record.headers.get(ATTEMPT, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 7 else 0


def fetch(store: Store, key: str) -> GetResult | None:
    """The file under a key, cut behind what a message may have.

    None if there is none, or none that is a part of this session (a link leads out of it).
    """
    try:
        return store.get(key, end=MAX_BYTES + 1)
    except (NotFoundError, InvalidKeyError):
        return None


_ITS_OWN = frozenset(
    (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EACCES, errno.EPERM)
)


def is_its_own(error: TapstoreError) -> bool:
    """Whether this is the matter of what lies there, and other keys may do.

    Somebody made a folder in its place, or forbade others to read it.
    """
    return getattr(error, "errno", None) in _ITS_OWN


def check_room(message: Message, *, name: str, size: int) -> None:
    """Raise `FormatError` if there is no room for what is noted of the message on its way.

    `size`: that of its file, in bytes.
    """
    headers = message.headers
    header_bytes = sum(len(key) + len(value.encode()) + 3 for key, value in headers.items())
    if (
        header_bytes > MAX_HEADER_BYTES - ROOM_BYTES
        or size > MAX_BYTES - ROOM_BYTES
        or len(headers) > MAX_HEADERS - _ROOM_HEADERS
    ):
        raise FormatError(
            f"{name}: it leaves no room for what is noted of its way: at most "
            f"{MAX_HEADER_BYTES - ROOM_BYTES:,} bytes and {MAX_HEADERS - _ROOM_HEADERS} lines of "
            f"headers, {MAX_BYTES - ROOM_BYTES:,} bytes in all; put what is large into an artifact"
        )


def check_copy(data: bytes, *, name: str, recipient: str = "") -> Message:
    """The message in a file of that name, for that recipient (empty: not delivered yet).

    Raises `FormatError` if it is no message, or another one than its name says.
    """
    message = messages.parse(data, name=name)
    check_room(message, name=name, size=len(data))
    try:
        parsed = names.parse(name)
    except InvalidKeyError as exc:
        raise FormatError(str(exc)) from exc
    if message.id != parsed.id:
        raise FormatError(
            f"{name}: its header 'id' is {message.id!r}, which is not that of its name"
        )
    if message.priority != parsed.priority:
        raise FormatError(
            f"{name}: its header 'priority' is {message.headers['priority']}, "
            f"not {parsed.priority:02} as in its name"
        )
    if message.sender != parsed.sender:
        raise FormatError(f"{name}: its header 'from' is {message.sender!r}, not {parsed.sender!r}")
    if message.recipient != recipient:
        raise FormatError(
            f"{name}: it is a copy for {message.recipient or 'nobody yet'!r}, "
            f"not for {recipient or 'nobody yet'!r}"
        )
    return message
