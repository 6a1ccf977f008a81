"""Reads and writes the files of one lease.

Every look that decides something is a `get` of a known name, made after a write of ours into the
same folder where the protocol asks for it; listings are hints (on NFS they may lag, and names
that were found missing are remembered as missing until the folder is seen to change).

It judges nothing: who holds the lease, and since when it is stale, is the business of `lease`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.locks import records
from tapstore.locks.records import Beat, End, Grant, Names
from tapstore.types import CREATE, OVERWRITE, GetResult

_ATTEMPTS = 3
_PROBES = 8
"""So many requests are worth one listing."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A grant that was found: its record, or what is wrong with it."""

    n: int
    id: str
    record: Grant | None
    fault: str
    since: float
    """Store's clock."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A holder's last sign of life: a beat, or the grant itself."""

    nonce: str
    seen: float
    """Store's clock."""

    at: str
    """The holder's wall clock; empty if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a grant.  What cannot be read has no `record`: it is over, nobody knows why."""

    record: End | None
    seen: float
    """Store's clock."""

    @property
    def at(self) -> str:
        """The wall clock of who ended it; empty if it cannot be read."""
        return "" if self.record is None else self.record.at

    @property
    def is_final(self) -> bool:
        """Whether its holder, or a person who knows better, said that it is over."""
        return self.record is not None and self.record.how != "expired"

    def was_judged_on(self, sign: Sign) -> bool:
        """Whether nothing was heard of the holder after it was judged."""
        return self.record is not None and self.record.nonce == sign.nonce


@dataclass(frozen=True, slots=True)
class Head:
    """The newest grant; with `issued` None there is none above `n`, and all up to n are over."""

    n: int
    issued: Issued | None = None


class LeaseFolder:
    """The files of the lease `name`."""

    def __init__(self, store: Store, prefix: str, name: str) -> None:
        self._store = store
        self.names = Names(prefix, name)

    # Reading

    def head(self, hint: int = 0) -> Head:
        """Find the newest grant, from a number that was seen once, or from a listing."""
        if hint and (issued := self.issued(hint)) is not None:
            return self.newest(issued)
        for _ in range(_ATTEMPTS):
            listed = self._listed()
            if listed and (issued := self.issued(listed)) is not None:
                return self.newest(issued)
            head = self.above(listed)
            # A listed number that is neither there nor below a floor: the listing was old.
            if not listed or head.n >= listed:
                return head
        raise self._restless()

    def above(self, n: int) -> Head:
        """Find the newest grant without a listing, from the floors that cover n."""
        through = 0
        while self.is_closed(n):
            through = records.floor_of(n) - 1
            n = through + 1
        issued = self.issued(through + 1)
        return Head(through) if issued is None else self.newest(issued)

    def newest(self, issued: Issued) -> Head:
        """Find the newest grant from one that is there."""
        while True:
            for _ in range(_PROBES):
                following = self.issued(issued.n + 1)
                if following is None:
                    return Head(issued.n, issued)
                issued = following
            listed = self._listed()
            if listed > issued.n:
                issued = self.issued(listed) or issued

    def _listed(self) -> int:
        last = 0
        for info in self._store.list(f"{self.names.folder}grant-"):
            last = records.number_in(info.key) or last
        return last

    def issued(self, n: int) -> Issued | None:
        """The grant number n.  Raises `NewerFormatError`, but no other `FormatError`."""
        key = self.names.grant(n)
        got = self._get(key)
        if got is None:
            return None
        since = got.info.modified
        try:
            record = records.decode(got.data, Grant, self._where(key), n)
        except records.NewerFormatError:
            raise
        except FormatError as exc:
            return Issued(n, records.UNREADABLE, None, str(exc), since)
        return Issued(n, record.id, record, "", since)

    def is_there(self, issued: Issued) -> bool:
        """Whether this very grant has neither been collected nor replaced."""
        found = self.issued(issued.n)
        return found is not None and found.id == issued.id

    def sign(self, issued: Issued) -> Sign | None:
        """The last beat of a grant, if there was one."""
        key = self.names.beat(issued.n, issued.id)
        got = self._get(key)
        if got is None:
            return None
        try:
            beat = records.decode(got.data, Beat, self._where(key), issued.n)
        except FormatError:
            # Somebody else wrote here.  As long as it changes, the holder gets the benefit.
            return Sign(f"unreadable {got.info.version}", got.info.modified, "")
        return Sign(beat.nonce, got.info.modified, beat.at)

    def ended(self, n: int, grant_id: str) -> Ended | None:
        """The end of a grant, if it has come."""
        key = self.names.end(n, grant_id)
        got = self._get(key)
        if got is None:
            return None
        try:
            record = records.decode(got.data, End, self._where(key), n)
        except FormatError:
            return Ended(None, got.info.modified)
        return Ended(record, got.info.modified)

    def is_closed(self, n: int) -> bool:
        """Whether a floor says that n is over.  What the file says does not matter."""
        return self._get(self.names.floor(records.floor_of(n))) is not None

    def _get(self, key: str) -> GetResult | None:
        try:
            return self._store.get(key)
        except NotFoundError:
            return None

    # Writing

    def grant(self, grant: Grant) -> bool:
        """Create the grant; False if the number is somebody else's."""
        return self._create(self.names.grant(grant.generation), records.encode(grant))

    def retract(self, n: int) -> None:
        """Remove a grant of ours that does not count.

        Its number is over, or the folder is not the one it was made for: nobody waits for it.
        """
        self._store.delete(self.names.grant(n))

    def beat(self, n: int, grant_id: str, at: str) -> None:
        """Show that the holder is alive."""
        beat = Beat(format=records.FORMAT, generation=n, nonce=records.new_nonce(), at=at)
        key, data = self.names.beat(n, grant_id), records.encode(beat)
        try:
            self._store.put(key, data, OVERWRITE)
        except OutcomeUnknownError:
            self._store.put(key, data, OVERWRITE)

    def end(self, grant_id: str, end: End) -> bool:
        """Create the end of a grant; False if it had ended already."""
        return self._create(self.names.end(end.generation, grant_id), records.encode(end))

    def _create(self, key: str, data: bytes) -> bool:
        # The same bytes again: they hold what was drawn for them, so what is found is ours or not.
        for attempt in range(_ATTEMPTS):
            try:
                self._store.put(key, data, CREATE)
                return True
            except AlreadyExistsError:
                found = self._get(key)
                return found is not None and found.data == data
            except OutcomeUnknownError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    # Collecting

    def collect(self, head: int, *, limit: int, at: str) -> int:
        """Remove the files of up to `limit` old numbers; return how many numbers there were.

        Anybody may do it, at any time, several at once, and die anywhere.
        """
        below = records.closable_below(head)
        numbers: dict[int, list[str]] = {}
        for kind in ("beat", "released", "grant"):
            for info in self._store.list(f"{self.names.folder}{kind}-") if below else ():
                n = records.number_in(info.key)
                if n is None:
                    continue
                if n >= below:
                    break
                numbers.setdefault(n, []).append(info.key)
        chosen = sorted(numbers)[:limit]
        for floor in sorted({records.floor_of(n) for n in chosen}):
            record = records.Floor(format=records.FORMAT, below=floor, at=at)
            try:
                self._store.put(self.names.floor(floor), records.encode(record), CREATE)
            except AlreadyExistsError:
                pass
        for n in chosen:
            # The grant first, listed or not: a zombie that finds no end looks for its grant next.
            grant = self.names.grant(n)
            for key in [grant, *(key for key in numbers[n] if key != grant)]:
                self._store.delete(key)
        return len(chosen)

    # Words

    def _where(self, key: str) -> str:
        return f"{self._store.url}: {key}"

    def _restless(self) -> StoreError:
        error = StoreError(
            f"{self._where(self.names.folder)} changes faster than it can be listed; somebody may "
            "be removing files by hand: try again"
        )
        error.errno = errno.EAGAIN
        return error
