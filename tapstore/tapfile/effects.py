"""The effects of a commit: what to set and remove to make the next document.  Pure.

For the log: unlike operations, effects mean the same to every later version of the rules, so a
history is replayed by applying them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tapstore.tapfile.values import copied, same


def effects(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[list[Any]]:
    """What to set and remove to make `after` of `before`: `[path, value]` or `[path]`.

    Paths are lists of keys and list positions.  For the log: unlike operations, effects mean the
    same to every later version of the rules.
    """
    found: list[list[Any]] = []
    _effects([], before, after, found)
    return found


def _effects(path: list[str | int], before: Any, after: Any, found: list[list[Any]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        found.extend([[*path, key]] for key in before if key not in after)
        for key, value in after.items():
            if key not in before:
                found.append([[*path, key], value])
            elif (old := before[key]) is not value and not same(old, value):
                _effects([*path, key], old, value, found)
    elif isinstance(before, list) and isinstance(after, list):
        found.extend([[*path, n]] for n in range(len(before) - 1, len(after) - 1, -1))
        for n, value in enumerate(after):
            if n >= len(before):
                found.append([[*path, n], value])
            elif (old := before[n]) is not value and not same(old, value):
                _effects([*path, n], old, value, found)
    else:
        found.append([path, after])


def replay(document: Any, changes: Sequence[Sequence[Any]]) -> Any:
    """The document after the effects of one commit; the inverse of `effects`."""
    document = copied(document)
    for path, *value in changes:
        if not path:
            document = copied(value[0])
            continue
        *parents, key = path
        parent = document
        for step in parents:
            parent = parent[step]
        if not value:
            del parent[key]
        elif isinstance(parent, list) and key == len(parent):
            parent.append(copied(value[0]))
        else:
            parent[key] = copied(value[0])
    return document
