"""Plain values that stores and lock services take and return.  No behaviour, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import msgspec


class PutMode(Enum):
    """How `Store.put` treats a key that is there, or is not there."""

    CREATE = "create"
    """Only if the key does not exist; exclusive between all writers of the place."""

    OVERWRITE = "overwrite"
    """Whatever is there is replaced, atomically.  For keys with one owner only."""


CREATE = PutMode.CREATE
OVERWRITE = PutMode.OVERWRITE


@dataclass(frozen=True, slots=True)
class Update:
    """Put mode: only if the key still has this version, exclusive between all writers."""

    version: str


class ObjectInfo(msgspec.Struct, frozen=True):
    """What is known of a stored object without its bytes.

    `modified` is in seconds since the epoch, in the clock of the store, not of this host.
    `version` changes whenever the content is written again; it compares by equality only.  On
    S3 it is a sum of the bytes and returns when they do: who updates writes an id into them.
    """

    key: str
    size: int
    version: str
    modified: float


class GetResult(msgspec.Struct, frozen=True):
    """The bytes of an object (or of the range asked for) and what is known of the whole."""

    data: bytes
    info: ObjectInfo


class PutResult(msgspec.Struct, frozen=True):
    """What a successful write made: its version and its time in the clock of the store.

    Where the place tells a writer no more than the second of its reply (S3), the object may have
    the second before.
    """

    version: str
    modified: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a place really offers.  Nothing degrades silently: features look here and refuse."""

    create: bool
    """`put(CREATE)` is exclusive between all writers.  Everything in tapstore needs this."""

    update: bool
    """`put(Update(version))` is a real compare-and-set.  Where it is missing, `commitlog` builds
    one from `create`."""

    conditional_delete: bool
    """`delete(key, version=…)` compares and deletes in one step."""

    files: bool
    """Keys are files that other programs can open, so that agents that know nothing of tapstore
    may take part (a Tapfile view, `tapfile.lock`)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds or asks for something that can expire.  All of it is shown to people."""

    agent: str
    """The agent's id."""

    instance: str
    """Random, drawn once per process or claim: the same agent started twice differs here."""

    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was granted.  Only who has the `token` can renew or release it.

    `generation` is the fencing token: it rises strictly with each grant of this name.
    `expires` is in seconds of this process' monotonic clock: until then, and not later, the
    holder may rely on the lease.  It counts from the start of the request that confirmed it.
    """

    name: str
    generation: int
    token: str
    owner: Owner
    ttl_seconds: float
    expires: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is seen to hold a lease, for people and for error messages.  It has no token.

    `since` and `beat` are in seconds since the epoch in the clock of the store.
    """

    name: str
    generation: int
    owner: Owner
    ttl_seconds: float
    since: float
    beat: float
    reason: str = ""


Severity = Literal["ok", "note", "warning", "fatal"]
"""How bad it is: as it should be, worth knowing, to be changed, nothing can rely on it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe of a place or a lock service found.  `probe` is a stable name.

    `seen`, `means` and `change` are for people, and hold no credentials; `values` are what was
    measured, for programs, with units in their names.
    """

    probe: str
    severity: Severity
    seen: str
    means: str = ""
    change: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
