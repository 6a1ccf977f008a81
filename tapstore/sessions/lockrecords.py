"""Which lock service is in force: permanent, numbered records, each created exclusively.

Number 0 is the service that the session was made with.  `.tap/<incarnation>/locks/<n>` names the
one in force from then on, and `<n>-open` says that nobody holds anything in the one before.
Neither is ever removed or changed, so who was paused at any point and looks afterwards sees them.

Nothing here grants or asks anything; docs/adr/0011-switching-locks.md has the reasons.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tapstore.abc import Store
from tapstore.clock import format_time_ms
from tapstore.errors import AlreadyExistsError, FormatError, NotFoundError
from tapstore.sessions.config import LOCKS_PREFIX, SessionConfig, new_id
from tapstore.types import CREATE

FORMAT = 1

_DIGITS = 6

How = Literal["drained", "forced", "unasked"]
"""Why nobody holds anything in the service before: seen so; ended by force; a person said so."""


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`<n>`: the service in force from number n on."""

    number: int
    locks: str
    """Name or URL, without a password."""

    format: int = FORMAT
    at: str = ""
    by: str = ""
    id: str = ""
    """Drawn for this record, so that its writer knows it again."""


class OpenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`<n>-open`: the service number n grants without asking the one before."""

    number: int
    how: How
    format: int = FORMAT
    at: str = ""
    by: str = ""


class LockRecords:
    """The records of one session.  Safe to use from several threads."""

    def __init__(self, store: Store, config: SessionConfig) -> None:
        self._store = store
        self._config = config
        self._found: dict[int, ServiceRecord] = {0: ServiceRecord(number=0, locks=config.locks)}
        self._open = {0}
        self._newest = 0

    @property
    def where(self) -> str:
        """For messages."""
        return f"session {self._config.session_id}"

    # Names

    def scope(self, number: int) -> str:
        """What the leases of this number belong to, among all who use the same server."""
        # A number of its own: one that goes back to a former service must not meet its leases.
        return self._config.incarnation + (f"n{number}" if number else "")

    def prefix(self, number: int) -> str:
        """Where those that are kept in the session lie."""
        return f"{self._config.prefix}/leases/{number:0{_DIGITS}d}" if number else LOCKS_PREFIX

    # Reading

    def newest(self) -> int:
        """The number in force now.  One small read if nothing has changed."""
        self._look_closely()
        number = self._newest
        while self._read(number + 1) is not None:
            number += 1
        self._newest = max(number, self._newest)
        return number

    def service(self, number: int) -> str:
        """Name or URL of a service, without a password.  Raises `NotFoundError`."""
        record = self._read(number)
        if record is None:
            raise NotFoundError(f"{self.where} has had no lock service number {number}")
        return record.locks

    def is_open(self, number: int) -> bool:
        """Whether nobody holds anything before this number, for good."""
        if number not in self._open and self._get(self._open_key(number)) is not None:
            self._open.add(number)
        return number in self._open

    def _read(self, number: int) -> ServiceRecord | None:
        found = self._found.get(number)
        if found is None:
            data = self._get(self._key(number))
            if data is None:
                return None
            found = self._found[number] = self._parse(number, data)
        return found

    def _look_closely(self) -> None:
        # NFS remembers that a name, or its folder, was absent, until it looks at what is above.
        # What it then finds decides nothing.
        above, files = f"{self._config.prefix}/", self._store.capabilities.files
        if files and "locks/" in self._store.children(above):
            list(self._store.children(self._folder))

    def _get(self, key: str) -> bytes | None:
        try:
            return self._store.get(key).data
        except NotFoundError:
            return None

    def _parse(self, number: int, data: bytes) -> ServiceRecord:
        key = self._key(number)
        try:
            record = msgspec.json.decode(data, type=ServiceRecord)
        except msgspec.DecodeError as exc:
            raise FormatError(f"{self._store.url}: {key} is damaged: {exc}") from exc
        if record.format > FORMAT:
            raise FormatError(
                f"{self._store.url}: {key} has format {record.format}, this tapstore knows "
                f"{FORMAT}; upgrade: pip install -U tapstore"
            )
        return record

    # Writing

    def create(self, number: int, locks: str, *, by: str) -> ServiceRecord:
        """Put a service in force, unless somebody else came first; returns what is in force.

        `number - 1` has to be open: then only the one before ever needs to be asked.
        """
        record = ServiceRecord(number=number, locks=locks, at=self._now(), by=by, id=new_id())
        try:
            self._store.put(self._key(number), _encode(record), CREATE)
        except AlreadyExistsError:
            found = self._read(number)
            if found is None:
                raise
            return found
        self._found[number] = record
        return record

    def open(self, number: int, how: How, *, by: str) -> None:
        """Say that nobody holds anything before this number any more.  Safe to repeat."""
        record = OpenRecord(number=number, how=how, at=self._now(), by=by)
        try:
            self._store.put(self._open_key(number), _encode(record), CREATE)
        except AlreadyExistsError:
            pass
        self._open.add(number)

    @property
    def _folder(self) -> str:
        return f"{self._config.prefix}/locks/"

    def _key(self, number: int) -> str:
        return f"{self._folder}{number:0{_DIGITS}d}"

    def _open_key(self, number: int) -> str:
        return f"{self._key(number)}-open"

    def _now(self) -> str:
        return format_time_ms(self._store.now())


def in_force(store: Store, config: SessionConfig) -> str:
    """Name or URL, without a password, of the lock service that a session uses now."""
    records = LockRecords(store, config)
    return records.service(records.newest())


def _encode(record: ServiceRecord | OpenRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2)
