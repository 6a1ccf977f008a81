"""File names of hand-offs, which sort into the order of the queue, and the ids in them.  Pure.

`<PP>_<YYYYMMDDTHHMMSSZ>_<SSSSSS>_from_<sender>_to_<r1>[_<r2>…].handoff`: the lexical order of such
names is the order of priority, time and sequence.

A name serves order and audit only; who gets a message, and how urgent it is, its headers say.  A
sequence number orders what one sender sent within one second, and nothing across senders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from tapstore.errors import InvalidKeyError
from tapstore.keys import check_key, check_name

SUFFIX = ".handoff"

MAX_SEQUENCE = 999_999

MAX_ROLE_BYTES = 60

MAX_NAME_BYTES = 180
"""A key segment may have 200; the rest is left for what queues append (`~<attempt>`, `.error`)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_LATEST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _SECOND
_EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND

_STAMP = r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z_([0-9]{6})"
_NAME = re.compile(rf"([0-9]{{2}})_{_STAMP}_from_([^_]+)_to_([^_]+(?:_[^_]+)*)\.handoff")
_ID = re.compile(rf"{_STAMP}_from_([^_]+)")
_MORE = re.compile(r"\+([1-9][0-9]{0,3})")

_GRAMMAR = "<PP>_<YYYYMMDDTHHMMSSZ>_<SSSSSS>_from_<sender>_to_<r1>[_<r2>…].handoff"


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """When a message was made: seconds since the epoch, and a number within its sender."""

    at: int
    sequence: int

    def __post_init__(self) -> None:
        if not _EARLIEST <= self.at <= _LATEST:
            raise InvalidKeyError(f"{self.at} is no time from year 1 to 9999")
        if not 0 <= self.sequence <= MAX_SEQUENCE:
            raise InvalidKeyError(
                f"the sequence number {self.sequence} has no six digits: with more of them names "
                "would no longer sort; take the next stamp from next_stamp()"
            )

    def __str__(self) -> str:
        at = _EPOCH + timedelta(seconds=self.at)
        return (
            f"{at.year:04}{at.month:02}{at.day:02}T{at.hour:02}{at.minute:02}{at.second:02}Z_"
            f"{self.sequence:06}"
        )


def next_stamp(last: Stamp | None, now: float) -> Stamp:
    """The stamp that follows `last`, at `now` (seconds since the epoch) or later.

    Stamps of one sender rise strictly, whatever the clock does.  After 999999 the numbers begin
    again at 000001, in a later second than that of `last`: names stay in order, and no id returns.
    """
    at = math.floor(now)
    if last is None:
        return Stamp(at, 1)
    if last.sequence < MAX_SEQUENCE:
        return Stamp(max(at, last.at), last.sequence + 1)
    return Stamp(max(at, last.at + 1), 1)


@dataclass(frozen=True, slots=True)
class HandoffName:
    """The parts of a file name.  Each can be rendered: what cannot raises `InvalidKeyError`."""

    priority: int
    """0 to 99, lower first."""

    stamp: Stamp
    sender: str
    recipients: tuple[str, ...]
    more: int = 0
    """How many recipients are not in the name, because they had no room."""

    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= 99:
            raise InvalidKeyError(f"the priority {self.priority} is not from 0 to 99")
        if not self.recipients:
            raise InvalidKeyError("a hand-off has at least one recipient")
        if len(set(self.recipients)) < len(self.recipients):
            raise InvalidKeyError(f"a recipient is there twice: {', '.join(self.recipients)}")
        if not 0 <= self.more <= 9999:
            raise InvalidKeyError(f"{self.more} is no number of further recipients")
        for role in (self.sender, *self.recipients):
            check_role(role)
        more = f"_+{self.more}" if self.more else ""
        text = (
            f"{self.priority:02}_{self.stamp}_from_{self.sender}_to_"
            f"{'_'.join(self.recipients)}{more}{SUFFIX}"
        )
        object.__setattr__(self, "_text", text)
        size = len(text.encode())
        if size > MAX_NAME_BYTES:
            raise InvalidKeyError(
                f"the name of the hand-off would have {size} bytes, of {MAX_NAME_BYTES}: "
                "name_for() leaves out recipients that have no room"
            )

    def __str__(self) -> str:
        return self._text

    def __lt__(self, other: HandoffName) -> bool:
        # Not field by field: in a listing `a-b_…` sorts before `a_…`.
        return str(self) < str(other)

    @property
    def id(self) -> str:
        """`<timestamp>_<sequence>_from_<sender>`, the same for all copies of the message."""
        return render_id(self.stamp, self.sender)


def name_for(priority: int, stamp: Stamp, sender: str, recipients: Sequence[str]) -> HandoffName:
    """The name of a message to `recipients`, as many of them as have room, at least one.

    The others become a number: `…_to_coder_cleaner_+7.handoff`.  Raises `InvalidKeyError`.
    """
    for role in recipients:
        check_role(role)
    room = MAX_NAME_BYTES - len(f"00_{stamp}_from_{sender}_to{SUFFIX}".encode())
    sizes = [len(role.encode()) + 1 for role in recipients]
    shown = len(sizes)
    if sum(sizes) > room:
        shown = sum(size <= room - len("_+9999") for size in accumulate(sizes))
    return HandoffName(priority, stamp, sender, tuple(recipients[:shown]), len(recipients) - shown)


@lru_cache(maxsize=512)
def parse(name: str) -> HandoffName:
    """The parts of a file name.  Raises `InvalidKeyError` with the reason.

    `str()` of the result is `name` again, byte for byte.
    """
    if len(name) > MAX_NAME_BYTES:
        raise InvalidKeyError(
            f"{_cut(name)} is no name of a hand-off: it is longer than {MAX_NAME_BYTES} bytes"
        )
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidKeyError(f"{_cut(name)} is no name of a hand-off: {_why(name)}")
    priority, *stamp, sender, recipients = match.groups()
    roles = recipients.split("_")
    more = _MORE.fullmatch(roles[-1])
    try:
        return HandoffName(
            int(priority),
            _stamp(*stamp),
            sender,
            tuple(roles[:-1] if more else roles),
            int(more[1]) if more else 0,
        )
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"{_cut(name)} is no name of a hand-off: {exc}") from exc


def is_name(name: str) -> bool:
    """Whether a file in a queue is one of its messages, well-named or not.

    Dot names, unfinished writes and notes beside messages are not.
    """
    return name.endswith(SUFFIX) and name[:1] != "."


def render_id(stamp: Stamp, sender: str) -> str:
    """`<timestamp>_<sequence>_from_<sender>`."""
    return f"{stamp}_from_{check_role(sender)}"


def parse_id(text: str) -> tuple[Stamp, str]:
    """Stamp and sender of an id.  Raises `InvalidKeyError` with the reason."""
    match = _ID.fullmatch(text) if len(text) <= MAX_NAME_BYTES else None
    if match is None:
        raise InvalidKeyError(
            f"{_cut(text)} is no id of a hand-off; it looks like 20260615T140531Z_000042_from_coder"
        )
    *stamp, sender = match.groups()
    try:
        return _stamp(*stamp), check_role(sender)
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"{_cut(text)} is no id of a hand-off: {exc}") from exc


@lru_cache(maxsize=256)
def check_role(role: str) -> str:
    """Return `role` if hand-offs can be from it and to it.  Raises `InvalidKeyError`.

    It stands between `_` in names, between `,` in headers, between spaces in bodies, and names a
    folder.
    """
    check_name(role, "role")
    for character, why in (("_", "'_' separates"), (",", "',' separates"), ("/", "'/' separates")):
        if character in role:
            raise InvalidKeyError(
                f"role {_cut(role)} contains {character!r}, and {why} roles: use '-' instead"
            )
    if any(map(str.isspace, role)):
        raise InvalidKeyError(f"role {_cut(role)} contains a space: use '-' instead")
    if role[0] in "+-.":
        raise InvalidKeyError(f"role {_cut(role)} begins with {role[0]!r}: begin with a letter")
    if len(role.encode()) > MAX_ROLE_BYTES:
        raise InvalidKeyError(f"role {_cut(role)} is longer than {MAX_ROLE_BYTES} bytes")
    try:
        return check_key(role)
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"role {_cut(role)} cannot be part of a file name: {exc}") from exc


def _stamp(
    year: str, month: str, day: str, hour: str, minute: str, second: str, sequence: str
) -> Stamp:
    try:
        at = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError as exc:
        raise InvalidKeyError(
            f"{year}{month}{day}T{hour}{minute}{second}Z is no time: {exc}"
        ) from exc
    return Stamp((at - _EPOCH) // _SECOND, int(sequence))


def _why(name: str) -> str:
    if not name.endswith(SUFFIX):
        return f"it does not end in {SUFFIX!r}"
    parts = name.removesuffix(SUFFIX).split("_")
    if re.fullmatch(r"[0-9]{2}", parts[0]) is None:
        return f"its priority is {_cut(parts[0])}, not two digits from 00 to 99"
    if len(parts) > 2 and re.fullmatch(r"[0-9]{7,}", parts[2]):
        return (
            f"its sequence number is {_cut(parts[2])}, and more than six digits would not sort; "
            "set the sender's counter back to 0"
        )
    return f"it should look like {_GRAMMAR}"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
