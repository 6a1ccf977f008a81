"""The plain values that documents are made of, compared and copied cheaply.  Pure.

It does not say which values a document may hold; `fields.settle` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# What JSON has no form for is never the same as anything.
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def same(one: Any, other: Any) -> bool:
    """Whether two values are surely the same, keys in the same order; costs little.

    To Python, 1 == 1.0 == True; in a document these are three values.
    """
    if one is other:
        return True
    if one != other:
        return False
    kind = type(one)
    if kind is type(other) and kind in (str, int, bool):
        return True
    return _encode(one) == _encode(other)


def sharing(doc: Mapping[Any, Any], known: Mapping[str, Any]) -> dict[Any, Any]:
    """The same fields as in `doc`, with the very values of `known` where they are the same."""
    return {
        key: known[key] if key in known and _is_same(value, known[key]) else value
        for key, value in doc.items()
    }


def _is_same(value: Any, known: Any) -> bool:
    try:
        return same(value, known)
    except ValueError:
        # Arrays of numpy say that their comparison is neither true nor false.
        return False


def copied(value: Any) -> Any:
    """The same value in dicts and lists of its own."""
    if type(value) is dict:
        return {
            key: copied(item) if type(item) in (dict, list) else item for key, item in value.items()
        }
    if type(value) is list:
        return [copied(item) if type(item) in (dict, list) else item for item in value]
    return value
