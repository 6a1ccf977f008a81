"""What lies among the messages of a mailbox and is none: moved out of the way, with the reason.

The bytes are kept as they are.
"""

from __future__ import annotations

import hashlib
from itertools import count

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, NotFoundError, UnsupportedOperationError
from tapstore.handoffs.names import MAX_NAME_BYTES, SUFFIX
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.endings import exists
from tapstore.handoffs.queue.places import Places, file_name, split_attempt
from tapstore.types import CREATE, OVERWRITE

WRITING_SECONDS = 60.0
"""A file that looks unfinished may still be written, for so long."""

_CHUNK = 1 << 20

ERROR = ".error"
"""Ends the name of the file that tells why."""


def refuse(store: Store, places: Places, key: str, reason: str) -> None:
    """Move a file to the failed ones of this mailbox, whatever it is."""
    try:
        target = _moved(store, places, key)
    except NotFoundError:
        return  # somebody else was faster
    store.put(target + ERROR, f"{reason}\n".encode(), OVERWRITE)
    store.delete(key)


def _moved(store: Store, places: Places, key: str) -> str:
    """Copy it there, under a name that nothing else has; returns its key."""
    name, first = split_attempt(_short(file_name(key)))
    for number in count(first):
        target = f"{places.failed}{name}" + (f"~{number}" if number else "")
        try:
            with store.open(key) as source:
                store.upload(target, source, CREATE)
        except AlreadyExistsError:
            if not _are_equal(store, key, target):
                continue  # another one of this name was refused before
            # so far came somebody who crashed
        except UnsupportedOperationError:
            # Too large to be created exclusively in this place.
            if exists(store, target) and not _are_equal(store, key, target):
                continue
            with store.open(key) as source:
                store.upload(target, source, OVERWRITE)
        return target
    raise AssertionError("unreachable")


def _are_equal(store: Store, one: str, other: str) -> bool:
    if store.head(one).size != store.head(other).size:
        return False
    with store.open(one) as left, store.open(other) as right:
        while part := left.read(_CHUNK):
            if part != right.read(len(part)):
                return False
    return True


def _short(name: str) -> str:
    """A name with room for what is appended to it."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"long-name-{hashlib.sha256(name.encode()).hexdigest()[:40]}{SUFFIX}"


def file_again(store: Store, places: Places, key: str, data: bytes) -> bool:
    """Move a message to where messages of its name wait.

    False if another message of its name waits there: then it is refused.
    """
    target = places.waiting(file_name(key))
    try:
        store.put(target, data, CREATE)
    except AlreadyExistsError:
        found = records.fetch(store, target)
        if found is not None and found.data != data:
            refuse(store, places, key, f"another message of its name waits at {target}")
            return False
    store.delete(key)
    return True
