"""One commit as it is logged, the same wherever its bytes lie.  Pure.

A record names the record before it and the content that it made by their hashes, so that a
history can be verified.  It does not say where it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from tapstore.errors import FormatError


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One commit.  `entry` is what the layer above says about it."""

    n: int
    write_id: str
    """Random, drawn per attempt: tells our own record from another's after a lost reply."""

    content: str
    """sha256 of the content, hex."""

    size: int
    """Bytes of the content."""

    parent: str = ""
    """sha256 of the bytes of record n-1, hex; empty for the first: the chain for `verify`."""

    entry: Mapping[str, Any] = {}


class Head(msgspec.Struct, frozen=True):
    """A revision that is committed: what a writer must have read to commit the next one."""

    record: Record
    digest: str
    """sha256 of the record's bytes, hex."""

    @property
    def n(self) -> int:
        return self.record.n


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def follow(
    parent: Head | None, write_id: str, content: bytes, entry: Mapping[str, Any]
) -> tuple[Record, bytes]:
    """The record of the commit after `parent` (None: the first), and its bytes.

    Raises `FormatError` if `entry` holds what JSON has no form for.
    """
    record = Record(
        n=1 if parent is None else parent.n + 1,
        write_id=write_id,
        content=sha256(content),
        size=len(content),
        parent="" if parent is None else parent.digest,
        entry=entry,
    )
    try:
        return record, _encode(record)
    except (TypeError, ValueError) as exc:
        raise FormatError(f"this cannot be logged: {exc}") from exc


def parse(data: bytes, n: int | None, *, where: str) -> Head:
    """The commit in `data`, which has to be number `n` (None: any).  Raises `FormatError`."""
    try:
        record = _decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise FormatError(
            f"{where} is damaged ({exc}); run `tapstore validate`, and restore it from a backup"
        ) from exc
    if n not in (None, record.n):
        raise FormatError(
            f"{where} says that it is commit {record.n}, not {n}; it was copied or renamed by "
            "hand, restore it from a backup"
        )
    return Head(record, sha256(data))
