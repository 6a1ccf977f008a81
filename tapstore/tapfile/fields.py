"""What kind each known field of a Tapfile is, and a document settled from raw values by it.  Pure.

A reader of one syntax delivers *raw* values: dicts, lists, text, and `Unquoted` for what stood
there unquoted and is not text (a number, true, null).  Settling decides by the field: where text
belongs, the literal is kept as it was written (`version: 1.10` is no number), where a time
belongs, its forms become one, elsewhere the value counts.

It does not say whether the document is a good Tapfile; `schema` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tapstore.tapfile.times import canonical_time

MAX_DEPTH = 64
MAX_NODES = 250_000

_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""Whole numbers beyond 64 bits are lost or refused by most JSON readers."""


class Kind(Enum):
    """What a scalar is read as, whatever it looks like."""

    TEXT = "text"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose items are all of one kind."""

    of: Any


TEXT, TIME = Kind.TEXT, Kind.TIME
_NOTHING_KNOWN: Mapping[str, Any] = {}

TAPFILE: Mapping[str, Any] = {
    "version": TEXT,
    "session_id": TEXT,
    "current_phase": TEXT,
    "phases": Each(TEXT),
    "participants": Each(
        {
            "role": TEXT,
            "agent_id": TEXT,
            "status": TEXT,
            "last_activity": TIME,
            "heartbeat": TIME,
            "reason": TEXT,
            "claim": {"id": TEXT, "instance": TEXT, "since": TIME},
        }
    ),
    "artifacts": Each(
        {
            "name": TEXT,
            "path": TEXT,
            "type": TEXT,
            "producer": TEXT,
            "consumer": Each(TEXT),
            "checksum": TEXT,
            "phase": TEXT,
            "media_type": TEXT,
            "role": TEXT,
        }
    ),
    "tapstore": {"write_id": TEXT, "incarnation": TEXT, "at": TEXT, "by": TEXT},
}
"""The fields of the Tapfile whose reading does not follow from how they are written."""


class Unquoted:
    """A number, true, false or null as it was written, and what it means."""

    __slots__ = ("line", "text", "value")

    def __init__(self, text: str, value: bool | int | float | None, line: int = 0) -> None:
        self.text = text
        self.value = value
        self.line = line


class Duplicate:
    """Stands for a mapping that has a key twice, in the raw values of a reader."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class FaultError(Exception):
    """Why the data is refused, and where; `format` makes a `FormatError` of it."""

    def __init__(self, reason: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column
        self.path: list[str | int] = []
        """From the innermost step outwards."""

    def within(self, step: str | int) -> None:
        self.path.append(step)

    @property
    def place(self) -> str:
        return place(reversed(self.path))


def settle(raw: Any, spec: Any = None, *, nodes: int = MAX_NODES) -> Any:
    """The value that `raw` stands for where `spec` belongs: new containers, nothing shared.

    More than `nodes` values in all are refused: an alias stands for all that it repeats.
    Raises `FaultError`.
    """
    return _Settling(nodes).value(raw, spec, 0)


def settle_changed(
    raw: Mapping[Any, Any], spec: Any = None, *, known: Mapping[str, Any]
) -> dict[str, Any]:
    """`settle` for a mapping; fields that it shares with `known`, which is settled, are kept.

    So what it costs depends on how much was changed.  What is kept is not counted either.
    """
    changed = {
        key: value
        for key, value in raw.items()
        if type(key) is not str or key not in known or known[key] is not value
    }
    return {**raw, **settle(changed, spec)}


class _Settling:
    __slots__ = ("_left",)

    def __init__(self, nodes: int) -> None:
        self._left = nodes

    def value(self, raw: Any, spec: Any, depth: int) -> Any:
        kind = type(raw)
        if kind is str:
            if not raw.isascii():
                _refuse_surrogates(raw)
            return _time(raw) if spec is TIME else raw
        if kind is dict:
            return self._mapping(raw, spec if type(spec) is dict else _NOTHING_KNOWN, depth + 1)
        if kind is list:
            return self._list(raw, spec.of if type(spec) is Each else None, depth + 1)
        if kind is Unquoted:
            return _scalar(raw.value, raw.text, spec, line=raw.line)
        if raw is None or kind in (bool, int, float):
            return _scalar(raw, str(raw).lower(), spec)
        if kind is Duplicate:
            raise FaultError(f"the key {shorten(raw.key)} is there twice; remove one of the two")
        raise FaultError(
            f"{kind.__name__} cannot be kept: a Tapfile holds text, numbers, true, false, null, "
            "lists and mappings"
        )

    def _mapping(self, raw: dict[Any, Any], spec: Mapping[str, Any], depth: int) -> dict[str, Any]:
        self._enter(len(raw), depth)
        settled = {}
        for key, item in raw.items():
            if type(key) is not str:
                raise FaultError(f"the key {shorten(key)} is {type(key).__name__}, not text")
            if not key.isascii():
                _refuse_surrogates(key)
            of = spec.get(key)
            # Most values; going the long way doubles the time of a commit's check.
            kind = type(item)
            if (kind is str and of is not TIME and item.isascii()) or (
                kind is int and of is None and _SMALLEST <= item <= _LARGEST
            ):
                settled[key] = item
                continue
            try:
                settled[key] = self.value(item, of, depth)
            except FaultError as fault:
                fault.within(key)
                raise
        return settled

    def _list(self, raw: list[Any], spec: Any, depth: int) -> list[Any]:
        self._enter(len(raw), depth)
        settled = []
        for index, item in enumerate(raw):
            try:
                settled.append(self.value(item, spec, depth))
            except FaultError as fault:
                fault.within(index)
                raise
        return settled

    def _enter(self, size: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise FaultError(f"it is nested deeper than {MAX_DEPTH} levels")
        self._left -= size
        if self._left < 0:
            raise FaultError("it holds too many values, or its aliases repeat too much")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise FaultError(
            f"{shorten(text)} has the lone surrogate {text[exc.start]!r}, which is not Unicode text"
        ) from exc


def _scalar(value: Any, text: str, spec: Any, *, line: int = 0) -> Any:
    if value is None:
        return None
    if spec is TEXT:
        return text
    if spec is TIME:
        return _time(text, line=line)
    kept = math.isfinite(value) if type(value) is float else _SMALLEST <= value <= _LARGEST
    if not kept:
        raise FaultError(
            f"the number {text[:40]} cannot be kept: whole numbers have at most 64 bits, and "
            "infinity and NaN are no numbers; quote it if it is text",
            line=line,
        )
    return value


def whole_number(text: str) -> int | float:
    """The number that decimal digits stand for; of hopelessly many, infinity, unread."""
    return int(text) if len(text) <= 24 else math.inf


def _time(text: str, *, line: int = 0) -> str | None:
    if not text:
        return None
    try:
        return canonical_time(text)
    except ValueError as exc:
        raise FaultError(str(exc), line=line) from exc


def place(path: Iterable[str | int]) -> str:
    """`participants[1].status`, for people; empty for the document itself."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            shown += f".{step}" if shown else step
        else:
            shown += f"[{shorten(step)}]"
    return shown


def shorten(value: object, limit: int = 60) -> str:
    """A value for people: cut, and with the words of the file instead of Python's."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
