"""Names that were collected are never used again.

A collector may be stopped between its last look at a file and the deletion, for any time.  Were
its name created again meanwhile, by a publisher that found it free, the collector would wake up
and delete what the publisher registered.  So before a name is deleted a permanent record of it
is created, and a publisher looks for that record *after* its bytes are there: if it finds one,
the name is not to be relied upon, and it takes another.
"""

from __future__ import annotations

import hashlib
import json

from tapstore.abc import Store
from tapstore.artifacts.paths import COLLECTED
from tapstore.clock import format_time
from tapstore.errors import AlreadyExistsError, NotFoundError


def record_key(key: str) -> str:
    """Where the record of `key` lies.  Its own name would be too long, and clash with folders."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{COLLECTED}/{digest[:2]}/{digest}"


def is_condemned(store: Store, key: str) -> bool:
    """Whether somebody may delete `key` at any time, now or long after this call."""
    try:
        store.head(record_key(key))
    except NotFoundError:
        return False
    return True


def condemn(store: Store, key: str, *, now: float) -> None:
    """Let nobody rely on `key` who does not already.  For good; safe to repeat."""
    record = json.dumps({"key": key, "at": format_time(now)}, ensure_ascii=False)
    try:
        store.put(record_key(key), record.encode())
    except AlreadyExistsError:
        return
