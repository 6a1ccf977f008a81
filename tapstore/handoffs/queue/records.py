"""What the queue writes into messages besides the headers of the format, and reads from them.

All of it begins with `tapstore-`, which no draft may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tapstore.abc import Store
from tapstore.clock import parse_time
from tapstore.errors import FormatError, InvalidKeyError, NotFoundError
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.message import MAX_BYTES, Message, write_time
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

_MAX_HISTORY = 20


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
        return self.message.headers.get(BATCH, "")

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
    history = [_history(attempt) for attempt in attempts][-_MAX_HISTORY:]
    headers = {
        **without_own(message.headers),
        OUTCOME: "dead",
        REASON: one_line(reason),
        ENDED: write_time(at),
    }
    if history:
        headers[HISTORY] = "; ".join(history)
        headers[ATTEMPT] = str(len(history))
    return Message(headers, message.body)


def _history(attempt: Attempt) -> str:
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
    """The file under a key, cut behind what a message may have; None if there is none."""
    try:
        return store.get(key, end=MAX_BYTES + 1)
    except NotFoundError:
        return None


def check_copy(data: bytes, *, name: str, recipient: str = "") -> Message:
    """The message in a file of that name, for that recipient (empty: not delivered yet).

    Raises `FormatError` if it is no message, or another one than its name says.
    """
    message = messages.parse(data, name=name)
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
