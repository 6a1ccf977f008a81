"""A compare-and-set document built from exclusive creation: the log is the commit.

Of any number of writers that read revision n, exactly one commits n+1, however long any of them
was paused; what was acknowledged stays.  It needs nothing from the place but `put(CREATE)`: no
listing, no clock and no rename decide anything.

It does not say what a document means, and it does not queue contenders: a loser gets
`ConflictError`, reads again and decides again.

Two kinds of objects below the prefix:

- `revisions/<n>-<write_id>`: contents.  The name is unique, so a loser's content hurts nobody.
- `log/<thousand>/<n>`: records, created exclusively and never deleted.  Creating the record *is*
  the commit.  A name that were deleted could be created again by somebody who was paused in
  between; hence records are permanent, and only contents are collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.record import Head, follow, parse, sha256
from tapstore.types import CREATE

RECORDS_PER_FOLDER = 1000
_DIGITS = 12


class CommitLog:
    """The history of one document below `prefix` of a store.

    Safe to use from several threads; keeps no state but the store and its configuration.
    """

    def __init__(self, store: Store, prefix: str, *, keep: int = 64) -> None:
        """`keep`: how many of the newest contents are kept; any value >= 1 is safe."""
        if keep < 1:
            raise ValueError("keep must be at least 1: the newest content is the state")
        self._store = store
        self._prefix = prefix
        self._keep = keep

    def _record_key(self, n: int) -> str:
        return f"{self._prefix}/log/{n // RECORDS_PER_FOLDER:09d}/{n:0{_DIGITS}d}"

    def _content_key(self, n: int, write_id: str) -> str:
        return f"{self._prefix}/revisions/{n:0{_DIGITS}d}-{write_id}"

    # Reading

    def at(self, n: int) -> Head | None:
        """The commit number n, or None if there is none yet.  Raises `FormatError` if damaged."""
        try:
            data = self._store.get(self._record_key(n)).data
        except NotFoundError:
            return None
        return parse(data, n, where=f"{self._store.url}: {self._record_key(n)}")

    def head(self, known: Head | None = None, *, hint: int = 0) -> Head | None:
        """The newest commit, or None if there is none at all.

        Probes forward from `known`, one request when nothing changed.  Without it, starts from
        `hint` (a number that somebody says exists) or from a listing.  Both are only hints: what
        decides is that record n exists and record n+1 does not.
        """
        at = known or self._start(hint)
        if at is None:
            return None
        # Records have no holes, so who is far behind need not look at each: longer and longer
        # steps until one leads beyond the end, then half of it, and half of that.
        step = 1
        while (found := self.at(at.n + step)) is not None:
            at, step = found, step * 2
        while (step := step // 2) > 0:
            if (found := self.at(at.n + step)) is not None:
                at = found
        return at

    def _start(self, hint: int) -> Head | None:
        if hint > 0 and (found := self.at(hint)) is not None:
            return found
        # A listing may lag (on NFS v3 one came back empty while others wrote), so what it does
        # not show proves nothing: the first record is always there to begin from.
        for number in self._listed():
            if (found := self.at(number)) is not None:
                return found
        return self.at(1)

    def _listed(self) -> Iterator[int]:
        folders = [name for name in self._store.children(f"{self._prefix}/log/") if name[-1] == "/"]
        for folder in sorted(folders, reverse=True):
            names = self._store.children(f"{self._prefix}/log/{folder}")
            yield from sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def content(self, head: Head) -> bytes | None:
        """The bytes of a revision, or None if they were collected (there is a higher one).

        Raises `FormatError` if they do not match the hash in the record.
        """
        record = head.record
        key = self._content_key(record.n, record.write_id)
        try:
            data = self._store.get(key).data
        except NotFoundError:
            return None
        if len(data) != record.size or sha256(data) != record.content:
            raise FormatError(
                f"{self._store.url}: {key} does not match the hash in its log record; "
                "it was changed outside tapstore, restore it from a backup"
            )
        return data

    def read(self, known: Head | None = None, *, hint: int = 0) -> tuple[Head, bytes] | None:
        """The newest commit and its content, or None if there is no commit at all."""
        head = self.head(known, hint=hint)
        while head is not None:
            data = self.content(head)
            if data is not None:
                return head, data
            # Collected: with keep >= 1 that happens only below a newer head.
            newer = self.head(head)
            if newer is None or newer.n == head.n:
                raise FormatError(
                    f"{self._store.url}: the content of revision {head.n}, the newest one, is "
                    f"missing below {self._prefix}/revisions; restore it from a backup"
                )
            head = newer
        return None

    def records(self, *, after: int = 0) -> Iterator[Head]:
        """Every commit from `after` + 1 on, in order, without holes."""
        n = after + 1
        while (head := self.at(n)) is not None:
            yield head
            n += 1

    # Writing

    def commit(
        self, parent: Head | None, write_id: str, content: bytes, entry: Mapping[str, Any]
    ) -> Head:
        """Commit the revision after `parent` (None: the first); return it as the new head.

        Raises `ConflictError` if somebody else committed that number: nothing of ours is left.
        Raises `OutcomeUnknownError` if the place never said and looking could not tell; the same
        call with the same `write_id` and bytes may then be repeated, and tells.
        Raises `FormatError` if `entry` holds what JSON has no form for.
        """
        n = 1 if parent is None else parent.n + 1
        record, data = follow(parent, write_id, content, entry)
        content_key = self._content_key(n, write_id)
        repeated = False
        try:
            self._store.put(content_key, content, CREATE)
        except AlreadyExistsError:
            # Only a repeat of this very call has this name; the record below tells its outcome.
            repeated = True
        try:
            self._store.put(self._record_key(n), data, CREATE)
        except (AlreadyExistsError, OutcomeUnknownError, StoreError) as exc:
            found = self._look(n, exc)
            if found is None and isinstance(exc, StoreError) and not repeated:
                self._discard(content_key)
                raise
            if found is None:
                # The content must stay: the record of this attempt, or of the one before, may
                # still arrive; or it is there, and only this host does not see it yet (NFS).
                raise self._unknown(n, exc) from exc
            if found.record.write_id != write_id:
                self._discard(content_key)
                raise ConflictError(
                    f"{self._store.url}: revision {n} was committed by somebody else"
                ) from exc
            if isinstance(exc, StoreError):
                raise OutcomeUnknownError(
                    f"{self._store.url}: revision {n} is visible, but the place failed while "
                    f"making it durable ({exc}); it may not survive a power loss"
                ) from exc
            if isinstance(exc, OutcomeUnknownError):
                self._confirm(n, data)
            return found
        return Head(record, sha256(data))

    def _confirm(self, n: int, data: bytes) -> None:
        """Make sure that our record, which can be seen, is also durable.

        To be told that it exists says so; the doubt may have come from a sync that failed.
        """
        try:
            self._store.put(self._record_key(n), data, CREATE)
        except AlreadyExistsError:
            return
        except StoreError as exc:
            raise self._unknown(n, exc) from exc

    def _look(self, n: int, cause: Exception) -> Head | None:
        try:
            return self.at(n)
        except StoreError:
            raise self._unknown(n, cause) from cause

    def _unknown(self, n: int, cause: Exception) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._store.url}: cannot tell whether revision {n} was committed ({cause}); "
            f"{self._record_key(n)} will tell by its write_id, or repeat the call"
        )

    def _discard(self, content_key: str) -> None:
        # Nothing refers to it; if it can't be removed now, `strays` finds it later.
        with suppress(StoreError):
            self._store.delete(content_key)

    # Collecting

    def collect(self, head: Head) -> None:
        """Remove contents that are at or below head - keep, now and then.

        The number of the commit tells whether it is time, so that of many writers one looks.  If
        that one dies or fails, the next one removes what it left.
        """
        through = head.n - self._keep
        if through > 0 and head.n % max(1, self._keep // 2) == 0:
            with suppress(StoreError):
                self._collect(through)

    def _collect(self, through: int) -> None:
        folder = f"{self._prefix}/revisions/"
        for name in self._store.children(folder):
            number = name.partition("-")[0]
            if not number.isdecimal():
                continue
            if int(number) > through:
                break
            self._store.delete(folder + name)

    def strays(self, head: Head) -> Iterator[str]:
        """Keys of contents that lost (their writer died before it could remove them).

        A content above the head may belong to a commit that is under way; the caller judges its
        age.  Contents of kept commits are never named.
        """
        for info in self._store.list(f"{self._prefix}/revisions/"):
            number, _, write_id = info.key.rpartition("/")[2].partition("-")
            if not number.isdecimal():
                continue
            if int(number) > head.n:
                yield info.key
                continue
            # One that lacks its record may be all that is left of a damaged commit.
            at = self.at(int(number))
            if at is not None and at.record.write_id != write_id:
                yield info.key
