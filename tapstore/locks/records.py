"""What a lease looks like in a store: the names of its files and what they say.  No I/O.

`Current` is the one object of a lease where a store can compare and set; the others are the files
of one where it can only create.

Nothing here decides who holds a lease; `docs/spec/locks.md` describes the format.
"""

from __future__ import annotations

import math
import re
import secrets
from typing import Any, Literal, TypeVar

import msgspec

from tapstore.clock import parse_time
from tapstore.errors import FormatError, InvalidKeyError
from tapstore.keys import check_name, decode_name, encode_name
from tapstore.types import Owner

FORMAT = 1
"""Version of the records."""

MAX_TTL_SECONDS = 86_400.0
"""Who dies is waited for that long, and to renew costs nothing."""

BLOCK = 100
"""So many numbers are closed together; each closed block leaves one small file behind for good."""

KEEP = 50
"""A block is closed only when the newest grant is so far above it."""

UNREADABLE = "unreadable"
"""Stands for the id of a grant whose record cannot be read."""

_DIGITS = 12
_MAX_GENERATION = 10**_DIGITS - 2 * BLOCK
_NUMBERED = re.compile(rf"(grant|beat|released)-(\d{{{_DIGITS}}})(-[0-9a-z]+)?")


How = Literal["released", "forced", "expired"]
"""Given back by its holder, ended by a person, or taken from a holder that did not renew."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`grant-<n>`: created exclusively, never changed."""

    format: int
    name: str
    generation: int
    token: str
    """Drawn for this grant; who has it may renew and release."""

    owner: Owner
    ttl_seconds: float
    at: str
    """The holder's own wall clock: for people, and a veto; no reason to take anything over."""

    reason: str = ""

    @property
    def id(self) -> str:
        return id_of(self.token)


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """`beat-<n>-<id>`: rewritten by the holder alone."""

    format: int
    generation: int
    nonce: str
    """Drawn for each renewal."""

    at: str
    """The holder's own wall clock."""


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`released-<n>-<id>`: created exclusively; from then on the grant is over."""

    format: int
    generation: int
    how: How
    at: str
    """The wall clock of who wrote it."""

    nonce: str | None = None
    """Expired only: the last sign of life, on which it was judged."""

    by: Owner | None = None


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """`floor-<n>`: the numbers below n are over and may be removed.  Permanent."""

    format: int
    below: int
    at: str


class Current(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`lease`: who has it, or had it last; rewritten by each transition, and never removed."""

    format: int
    name: str
    generation: int
    state: Literal["held", "released", "forced"]
    token: str
    """Drawn for this grant; who has it may renew and release."""

    nonce: str
    """Drawn for each time that it is written: no two versions have the same bytes."""

    owner: Owner
    ttl_seconds: float
    at: str
    """The wall clock of who wrote it."""

    since: str = ""
    """Of the grant, in the clock of the store; empty as long as it was not written since."""

    reason: str = ""
    follows: How | None = None
    """How the generation before ended; None if there was none."""


R = TypeVar("R", Grant, Beat, End, Current)


def new_token() -> str:
    return secrets.token_hex(16)


def new_nonce() -> str:
    return secrets.token_hex(8)


def id_of(token: str) -> str:
    """The part of the token that stands in names, so that those of two grants never meet.

    Where a folder was removed and made again, numbers repeat; what a ghost of the old one
    writes must not end a grant of the new one.
    """
    return token[:8]


def floor_of(n: int) -> int:
    """The floor that says that n is over."""
    return (n // BLOCK + 1) * BLOCK


def closable_below(head: int) -> int:
    """Numbers below this may be removed when `head` is the newest grant."""
    return max(0, (head - KEEP) // BLOCK * BLOCK)


class Names:
    """The keys of the files of one lease."""

    def __init__(self, prefix: str, name: str) -> None:
        self.name = check_name(name, "the name of a lease")
        self.folder = f"{prefix}/{segment(name)}/"

    def grant(self, n: int) -> str:
        if n > _MAX_GENERATION:
            raise FormatError(
                f"{self.folder}: the number {n} is not one that tapstore wrote; remove the file "
                "by hand"
            )
        return f"{self.folder}grant-{n:0{_DIGITS}d}"

    def beat(self, n: int, grant_id: str) -> str:
        return f"{self.folder}beat-{n:0{_DIGITS}d}-{grant_id}"

    def end(self, n: int, grant_id: str) -> str:
        return f"{self.folder}released-{n:0{_DIGITS}d}-{grant_id}"

    def floor(self, below: int) -> str:
        return f"{self.folder}floor-{below:0{_DIGITS}d}"

    @property
    def current(self) -> str:
        return f"{self.folder}lease"


def number_in(key: str) -> int | None:
    """The number of a grant in the key of its grant, beat or end; None for anything else."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match[2]) if match else None


def segment(name: str) -> str:
    """The folder of a lease.  Files `….lock` beside it belong to the original protocol."""
    encoded = encode_name(name)
    if encoded.lower().endswith(".lock"):
        return f"{encoded[:-5]}%2E{encoded[-4:]}"
    return encoded


def name_in(child: str) -> str | None:
    """The name of the lease whose folder is `child` (ending in `/`), None if it is none."""
    if not child.endswith("/"):
        return None
    name = decode_name(child[:-1])
    try:
        return name if segment(check_name(name, "lease")) == child[:-1] else None
    except InvalidKeyError:
        return None


def encode(record: Grant | Beat | End | Floor | Current) -> bytes:
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[R], where: str, n: int | None) -> R:
    """The record, which has the number n if that is known.

    Raises `FormatError` naming the place and the reason.
    """
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise NewerFormatError(
                f"{where} has format {version}, this tapstore knows {FORMAT}; upgrade: "
                "pip install -U tapstore"
            )
        record = msgspec.json.decode(data, type=kind)
        if n is not None and record.generation != n:
            raise FormatError(f"{where} says that it is number {record.generation}")
        _check(record)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as exc:
        if isinstance(exc, FormatError):
            raise
        raise FormatError(f"{where} is not a record of a lease: {exc}") from exc
    return record


class NewerFormatError(FormatError):
    """It was written by a newer version of tapstore, which may well be using it."""


class _Version(msgspec.Struct):
    format: int


def _check(record: Any) -> None:
    parse_time(record.at)
    if isinstance(record, Grant | Current):
        check_ttl(record.ttl_seconds)
        if not re.fullmatch(r"[0-9a-f]{16,}", record.token):
            raise ValueError("token: not hexadecimal")
    if isinstance(record, Current):
        if record.since:
            parse_time(record.since)
        if not 0 < record.generation < _MAX_GENERATION:
            raise ValueError(f"generation: {record.generation} is not one that tapstore wrote")


def check_ttl(ttl: float) -> float:
    if not (math.isfinite(ttl) and 0 < ttl <= MAX_TTL_SECONDS):
        raise ValueError(
            f"ttl must be more than 0 and at most {MAX_TTL_SECONDS:.0f} seconds, not {ttl!r}"
        )
    return ttl
