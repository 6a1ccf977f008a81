"""Finds other hosts that have the name of this one, by what tapstore's processes say of theirs.

Servers of NFS v4 know their clients by their names: of two hosts that share one, each takes over
what the other has open, again and again.  People who read who holds a lock are misled, too.

Evidence is a record beside `tapfile.lock` with our name and another boot of a kernel, which was
written after this host had booted.  Not found are hosts without a process of tapstore that works,
or was killed lately, in this session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tapstore.abc import Store
from tapstore.keys import TEMP_MARK
from tapstore.locks.process import Process
from tapstore.locks.tapfile_lock import Record

SLACK_SECONDS = 5.0
"""By so much the time of our boot may be wrong, in the clock of the store."""

_MAX_RECORD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Namesake:
    """A process on another host with this host's name."""

    host: str
    agent: str
    pid: int
    since: float
    """When it wrote its record, in the clock of the store."""


def find(store: Store, key: str, *, host: str, here: Process, booted: float) -> Iterator[Namesake]:
    """Look beside the lock `key` for hosts named `host` that are not the one of `here`.

    `booted` is when this host did, in the clock of the store.  Raises `UnsupportedOperationError`
    where keys are not files, and OSError if the folder must not be read.
    """
    path = store.local_path(key)
    try:
        names = os.listdir(os.path.dirname(path))
    except FileNotFoundError:
        return
    for name in sorted(names):
        if name != os.path.basename(path) and not name.startswith(TEMP_MARK):
            continue
        found = _read(os.path.join(os.path.dirname(path), name))
        if found is None:
            continue
        record, since = found
        other = record.process.boot
        # Before our boot it may have been ourselves.
        if record.host == host and other not in ("", here.boot) and since > booted + SLACK_SECONDS:
            yield Namesake(host, record.agent, record.pid, since)


def _read(path: str) -> tuple[Record, float] | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_RECORD_BYTES)
            since = os.fstat(file.fileno()).st_mtime
        return msgspec.json.decode(data, type=Record), since
    except (OSError, msgspec.DecodeError):
        # It went away meanwhile, or is a temporary file of another kind.
        return None
