"""What lies among the messages of a mailbox and is none: moved out of the way, with the reason.

The bytes are kept as they are.
"""

from __future__ import annotations

import hashlib

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.handoffs.names import MAX_NAME_BYTES, SUFFIX
from tapstore.handoffs.queue.places import Places, file_name
from tapstore.types import CREATE, OVERWRITE

WRITING_SECONDS = 60.0
"""A file that looks unfinished may still be written, for so long."""

ERROR = ".error"
"""Ends the name of the file that tells why."""


def refuse(store: Store, places: Places, key: str, reason: str) -> None:
    """Move a file to the failed ones of this mailbox, whatever it is."""
    target = f"{places.failed}{_short(file_name(key))}"
    try:
        with store.open(key) as source:
            store.upload(target, source, CREATE)
    except NotFoundError:
        return  # somebody else was faster
    except AlreadyExistsError:
        pass  # so far came somebody who crashed, or this name was refused before
    store.put(target + ERROR, f"{reason}\n".encode(), OVERWRITE)
    store.delete(key)


def _short(name: str) -> str:
    """A name with room for what is appended to it."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"long-name-{hashlib.sha256(name.encode()).hexdigest()[:40]}{SUFFIX}"


def file_again(store: Store, places: Places, key: str, data: bytes) -> str:
    """Move a message to where messages of its name wait; returns its key there."""
    target = places.waiting(file_name(key))
    try:
        store.put(target, data, CREATE)
    except AlreadyExistsError:
        pass  # the same id is the same message
    store.delete(key)
    return target
