"""The plain values that documents are made of, compared and copied cheaply.  Pure.

It does not say which values a document may hold; `fields.settle` does.
"""

from __future__ import annotations

from typing import Any

import msgspec

# What JSON has no form for is never the same as anything.
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def same(one: Any, other: Any) -> bool:
    """Whether two values are surely the same, keys in the same order; costs little.

    To Python, 1 == 1.0 == True; in a document these are three values.
    """
    return one is other or (one == other and _encode(one) == _encode(other))


def copied(value: Any) -> Any:
    """The same value in dicts and lists of its own."""
    if type(value) is dict:
        return {
            key: copied(item) if type(item) in (dict, list) else item for key, item in value.items()
        }
    if type(value) is list:
        return [copied(item) if type(item) in (dict, list) else item for item in value]
    return value
