"""The one object of a lease: reads it, and replaces it if it is still what was read.

A lost reply is resolved here.  Each record has a nonce of its own, so no two versions are equal,
not even where a version is a hash of the bytes: one that was replaced never comes back, and a
request that asks for it can do nothing any more, however late it arrives.

It judges nothing: who holds the lease, and since when it is stale, is the business of
`leaseobject`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapstore import failures
from tapstore.abc import Store
from tapstore.clock import parse_time
from tapstore.errors import (
    ConflictError,
    FormatError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.locks import records
from tapstore.locks.records import Current, Names
from tapstore.types import CREATE, Update

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """The object as it was at some time."""

    version: str
    record: Current
    modified: float
    """Store's clock."""

    @property
    def is_held(self) -> bool:
        return self.record.state == "held"

    @property
    def since(self) -> float:
        """When it was granted; store's clock."""
        return parse_time(self.record.since) if self.record.since else self.modified


@dataclass(frozen=True, slots=True)
class Garbled:
    """The object when it was no record."""

    version: str
    fault: str


class LeaseObject:
    """The object of the lease `name`."""

    def __init__(self, store: Store, prefix: str, name: str) -> None:
        self._store = store
        self.name = name
        self.key = Names(prefix, name).current

    def read(self) -> Seen | Garbled | None:
        """The object; None if it is not there.

        Raises `NewerFormatError`, but no other `FormatError`.
        """
        try:
            got = self._store.get(self.key)
        except NotFoundError:
            return None
        info, where = got.info, f"{self._store.url}: {self.key}"
        try:
            record = records.decode(got.data, Current, where, None)
        except records.NewerFormatError:
            raise
        except FormatError as exc:
            return Garbled(info.version, str(exc))
        if record.name != self.name:
            return Garbled(info.version, f"{where} is of the lease {record.name!r}")
        return Seen(info.version, record, info.modified)

    def replace(self, seen: Seen | Garbled | None, record: Current) -> Seen | Garbled | None:
        """Put `record`, which has a fresh nonce, in the place of what was seen.

        Returns what is there afterwards.  If that is not `record`, somebody came first (or right
        after us), and `record` will not take effect any more.
        """
        data = records.encode(record)
        mode = CREATE if seen is None else Update(seen.version)
        doubt: OutcomeUnknownError | None = None
        for _ in range(_ATTEMPTS):
            refusal: OutcomeUnknownError | ConflictError
            try:
                put = self._store.put(self.key, data, mode)
                return Seen(put.version, record, put.modified)
            except OutcomeUnknownError as exc:
                doubt = refusal = exc
            except ConflictError as exc:
                # Also what a client gets that has repeated its request against itself.
                refusal = exc
            except StoreError as exc:
                if doubt is None:
                    raise
                raise failures.outcome_unknown(
                    self._store.url, self.key, "the write", exc
                ) from doubt
            found = self._read_back(refusal)
            if isinstance(found, Seen) and found.record == record:
                return found
            if (found and found.version) != (seen and seen.version):
                return found
            # Nothing has changed: an earlier request may still be under way, and only the same
            # bytes again can be told to be ours whichever of them arrives.
        raise refusal

    def _read_back(self, refusal: Exception) -> Seen | Garbled | None:
        try:
            return self.read()
        except StoreError as exc:
            raise failures.outcome_unknown(self._store.url, self.key, "the write", exc) from refusal
