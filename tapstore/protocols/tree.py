"""The syntax tree of a compiled CEL expression.  Pure.

The library tells it only in its serialised form, `google.protobuf.Any` of `cel.expr.CheckedExpr`,
whose field numbers are a public, stable format (cel/expr/syntax.proto).  Only what an expression
without message types can have is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["constant", "name", "select", "has", "call", "list", "map", "loop"]


@dataclass(frozen=True, slots=True)
class Node:
    """`text` is the name, the field or the function; two nodes are equal if they say the same."""

    kind: Kind
    text: str = ""
    value: bool | int | float | str | bytes | None = None
    children: tuple[Node, ...] = ()
    type_name: str = ""
    """Of a constant: to Python, 1 == 1.0 == True."""
    variable: str = ""
    """Of a loop: what it calls each item of its first child."""
    offset: int = field(default=0, compare=False)
    """Of the character that stands for it, from 0."""

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(data: bytes) -> Node:
    """The tree in what the library serialised."""
    checked = _group(_first(data, 2))
    positions: dict[Any, Any] = {}
    for source in checked.get(5, []):
        for entry in _group(source).get(4, []):
            pair = _group(entry)
            positions[pair.get(1, [0])[0]] = pair.get(2, [0])[0]
    return _node(checked[4][0], positions)


def _first(data: bytes, number: int) -> bytes:
    value = _group(data)[number][0]
    assert isinstance(value, bytes)
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _group(data: bytes | int | float) -> dict[int, list[bytes | int | float]]:
    """The fields of one message, by number."""
    assert isinstance(data, bytes)
    found: dict[int, list[bytes | int | float]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: bytes | int | float
        if tag & 7 == 0:
            value, at = _varint(data, at)
        elif tag & 7 == 1:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            value = data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {tag & 7} is not in an expression")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _text(fields: dict[int, list[bytes | int | float]], number: int) -> str:
    value = fields.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value.decode()


def _node(data: bytes | int | float, positions: Mapping[Any, Any]) -> Node:
    fields = _group(data)
    place = positions.get(fields.get(2, [0])[0], 0)
    offset = place if isinstance(place, int) else 0

    def inner(group: dict[int, list[bytes | int | float]], *numbers: int) -> tuple[Node, ...]:
        return tuple(_node(each, positions) for n in numbers for each in group.get(n, []))

    if 3 in fields:
        return _constant(_group(fields[3][0]), offset)
    if 4 in fields:
        return Node("name", _text(_group(fields[4][0]), 1), offset=offset)
    if 5 in fields:
        group = _group(fields[5][0])
        kind: Kind = "has" if group.get(3) else "select"
        return Node(kind, _text(group, 2), children=inner(group, 1), offset=offset)
    if 6 in fields:
        group = _group(fields[6][0])
        return Node("call", _text(group, 2), children=inner(group, 1, 3), offset=offset)
    if 7 in fields:
        return Node("list", children=inner(_group(fields[7][0]), 1), offset=offset)
    if 8 in fields:
        entries = [_group(entry) for entry in _group(fields[8][0]).get(2, [])]
        pairs = tuple(node for entry in entries for node in inner(entry, 3, 4))
        return Node("map", children=pairs, offset=offset)
    group = _group(fields[9][0])
    return Node(
        "loop",
        _text(group, 3),
        children=inner(group, 2, 4, 5, 6, 7),
        variable=_text(group, 1),
        offset=offset,
    )


def _constant(group: dict[int, list[bytes | int | float]], offset: int) -> Node:
    names = {1: "null", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}
    for number, name in names.items():
        if number not in group:
            continue
        raw = group[number][0]
        value: bool | int | float | str | bytes | None = raw
        if name == "null":
            value = None
        elif name == "bool":
            value = bool(raw)
        elif name == "int" and isinstance(raw, int):
            value = raw - 2**64 if raw >= 2**63 else raw
        elif name == "string" and isinstance(raw, bytes):
            value = raw.decode()
        return Node("constant", value=value, type_name=name, offset=offset)
    return Node("constant", type_name="null", offset=offset)
