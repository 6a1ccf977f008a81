"""Revisions on places with a compare-and-set of their own: the Tapfile is the commit.

A commit is one conditional write of the Tapfile.  It carries the records that may not be logged
yet, its own among them; they follow into the log (`segments`) behind it.  So history is the log
and what the Tapfile carries, without a hole, and a lost reply is resolved by looking whose record
has the number.

Programs that write the Tapfile without a condition are not protected from, only noticed: the
document has to fit the hash in its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from tapstore.abc import Store
from tapstore.clock import parse_time
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    NotAllowedError,
    NotFoundError,
    OutcomeUnknownError,
    SessionNotFoundError,
    StoreError,
)
from tapstore.record import Head, follow, parse, sha256
from tapstore.segments import Segments
from tapstore.sessions import config as configs
from tapstore.sessions.config import TAPFILE_KEY, SessionConfig
from tapstore.sessions.logwriter import LogWriter
from tapstore.sessions.revisions import Draft
from tapstore.sessions.snapshot import Snapshot
from tapstore.tapfile import format, model, schema
from tapstore.tapfile.format import Format
from tapstore.types import CREATE, GetResult, Update

MAX_CARRIED = 32
"""Records in the Tapfile; before one more is committed they are logged, on the caller's path."""

MAX_CARRIED_BYTES = 64 * 1024


class Carrier(Head, frozen=True):
    """The newest commit, with what its Tapfile carries."""

    version: str
    """Of the Tapfile, for the condition; empty if another revision came on top of it before it
    was known."""

    logged: int
    """Records up to this one are logged."""

    records: tuple[bytes, ...]
    """Records `logged` + 1 to n."""


class DirectRevisions:
    """See `revisions.Revisions`."""

    optimistic = True

    def __init__(self, store: Store, config: SessionConfig, config_bytes: bytes) -> None:
        self._store = store
        self._config = config
        self._config_bytes = config_bytes
        self._segments = Segments(store, config.prefix)
        self._writer = LogWriter(self._segments)
        self.seen: Snapshot | None = None
        self.history = DirectHistory(self, self._segments)

    def check_alive(self) -> None:
        """Nothing to ask: every read and every write of the Tapfile shows it."""

    # Reading

    def newest(self) -> Snapshot:
        found = self._look()
        if found is None:
            configs.check_same(self._store, self._config_bytes)
            if self._segments.at(1) is None:
                # Who made the session died before its Tapfile, or is about to go on.
                _publish_first(self._store, self._config, self._config_bytes)
                # If the session was deleted while we were stopped, that was a ghost.
                configs.check_same(self._store, self._config_bytes)
                self._writer.note(2, ())
            # Record 1 is logged after the Tapfile is there, so only this look tells.
            self.seen = None
            found = self._look()
        if found is None:
            raise SessionNotFoundError(
                f"the Tapfile of the session at {self._store.url} is gone; restore it, or remove "
                "the rest to make a new session there"
            )
        return found

    def _look(self) -> Snapshot | None:
        """The newest revision, or None if there is no Tapfile of this incarnation."""
        seen = self.seen
        try:
            if seen is None:
                got: GetResult | None = self._store.get(TAPFILE_KEY)
            else:
                got = self._store.get_if_changed(TAPFILE_KEY, _carrier(seen).version)
        except NotFoundError:
            return None
        if got is None:
            return seen
        snapshot = self._parse(got)
        if snapshot is not None:
            head = _carrier(snapshot)
            # Seen before it was asked for, so not by a slower thread.
            if seen is not None and head.n < seen.rev:
                raise FormatError(
                    f"the Tapfile at {self._store.url} is of revision {head.n}, and {seen.rev} was "
                    "committed: an older Tapfile was put back; restore the newest one"
                )
            self._writer.note(head.logged + 1, head.records)
            self.seen = snapshot
        return snapshot

    def _parse(self, got: GetResult) -> Snapshot | None:
        """None: it is the Tapfile of another incarnation."""
        where = f"the Tapfile at {self._store.url}"
        try:
            document, logged, records = _split(got.data)
            if document["tapstore"]["incarnation"] != self._config.incarnation:
                return None
            heads = [parse(data, logged + i, where=where) for i, data in enumerate(records, 1)]
            head = heads[-1]
            content = format.render_again(document, fmt="json")
            if (
                sha256(content) != head.record.content
                or head.n != document["tapstore"]["rev"]
                or any(b.record.parent != a.digest for a, b in pairwise(heads))
            ):
                raise FormatError(
                    f"{where} was changed by another program than tapstore, which may have undone "
                    "commits: put the version before back (`tapstore edit` makes changes)"
                )
            # A hash can be forged, too; what the rules rely on must hold all the same.
            schema.check(document)
            carrier = Carrier(head.record, head.digest, got.info.version, logged, records)
            at = parse_time(document["tapstore"]["at"])
            return Snapshot(carrier, model.from_doc(document), document, content, at)
        except (
            msgspec.DecodeError, RecursionError,
            AttributeError, LookupError, TypeError, ValueError,
        ) as exc:  # fmt: skip
            if isinstance(exc, FormatError):
                raise
            raise FormatError(f"{where} is damaged: {exc!r}; put the version before back") from exc

    # Writing

    def commit(self, before: Snapshot, draft: Draft) -> Snapshot:
        head = _carrier(before)
        record, data = follow(head, draft.write_id, draft.content, draft.entry)
        try:
            self._make_room(head)
            logged = max(head.logged, min(self._writer.through, head.n))
            records = (*head.records[logged - head.logged :], data)
            whole = _joined(draft.document, logged, records, self._config.tapfile_format)
            version = self._store.put(TAPFILE_KEY, whole, Update(head.version)).version
        except (ConflictError, OutcomeUnknownError) as exc:
            return self._resolve(before, draft, data, exc)
        carrier = Carrier(record, sha256(data), version, logged, records)
        self._writer.note(logged + 1, records)
        self.seen = _snapshot(carrier, draft)
        return self.seen

    def _make_room(self, head: Carrier) -> None:
        self._writer.check()
        self._writer.begin()
        through = max(head.logged, self._writer.through)
        try:
            self._make_sure(head, through)
        except OutcomeUnknownError as exc:
            # Of the log, not of the commit, which is not begun.
            raise StoreError(f"{self._store.url}: the log cannot be written: {exc}") from exc

    def _make_sure(self, head: Carrier, through: int) -> None:
        left = head.records[through - head.logged :]
        if head.n == 1:
            if self._segments.at(2) is not None:
                if self.newest().rev > 1:
                    raise ConflictError(f"{self._store.url}: others have committed meanwhile")
                # Made by a creator who had been stopped while the true one came and went.
                raise FormatError(
                    f"the Tapfile at {self._store.url} is of revision 1, and the log goes on "
                    "behind it: restore the newest Tapfile"
                )
        elif len(left) < MAX_CARRIED and sum(map(len, left)) < MAX_CARRIED_BYTES:
            return
        # A forked child has noted nothing yet.
        self._writer.note(head.logged + 1, head.records)
        self._writer.flush()

    def _resolve(self, before: Snapshot, draft: Draft, data: bytes, cause: Exception) -> Snapshot:
        """What became of a write that was refused, or whose reply was lost."""
        n = before.rev + 1
        try:
            found = self.newest()
            ours = self.at(found, n) if found.rev >= n else None
        except (StoreError, FormatError) as exc:
            if isinstance(exc, FormatError) and isinstance(cause, ConflictError):
                raise
            raise self._unknown(n, draft, exc) from cause
        if found.rev < n and _carrier(found).version == _carrier(before).version:
            # It, or an attempt before it, may still be under way.  The same bytes under the same
            # condition can't land twice, so they may be sent again.
            raise self._unknown(n, draft, cause) from cause
        if ours is None and found.rev >= n:
            raise FormatError(f"log record {n} is missing; restore it from a backup") from cause
        if ours is None or ours.record.write_id != draft.write_id:
            raise ConflictError(
                f"{self._store.url}: revision {n} was committed by somebody else"
            ) from cause
        if ours.n == found.rev:
            return found
        # Others committed on top before we knew.
        carrier = Carrier(ours.record, ours.digest, "", ours.n - 1, (data,))
        return _snapshot(carrier, draft)

    def _unknown(self, n: int, draft: Draft, cause: Exception) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._store.url}: cannot tell whether revision {n} was committed ({cause}); "
            f"`tapstore log --json` will tell: it is if it has the write_id {draft.write_id}"
        )

    def at(self, newest: Snapshot, n: int) -> Head | None:
        """Commit number n, which is one of those up to `newest`; None: it is missing."""
        head = _carrier(newest)
        if head.logged < n <= head.n:
            return parse(head.records[n - head.logged - 1], n, where="the Tapfile")
        return self._segments.at(n)

    def collect(self, snapshot: Snapshot) -> None:
        """Nothing is left behind here."""

    def flush(self) -> None:
        self._writer.close()


class DirectHistory:
    """The log, and what the newest Tapfile carries of it: see `revisions.History`."""

    def __init__(self, revisions: DirectRevisions, segments: Segments) -> None:
        self._revisions = revisions
        self._segments = segments

    def head(self) -> Head | None:
        return self._revisions.newest().head

    def at(self, n: int) -> Head | None:
        seen = self._revisions.seen
        if seen is None or seen.rev < n:
            seen = self._revisions.newest()
        return None if n > seen.rev else self._revisions.at(seen, n)

    def records(self, *, after: int = 0) -> Iterator[Head]:
        newest = self._revisions.newest()
        if after < _carrier(newest).logged:
            for head in self._segments.records(after=after):
                if head.n > newest.rev:
                    return
                yield head
                after = head.n
        for n in range(after + 1, newest.rev + 1):
            found = self._revisions.at(newest, n)
            if found is None:
                raise FormatError(f"log record {n} is missing; restore it from a backup")
            yield found

    def content(self, head: Head) -> bytes | None:
        newest = self._revisions.seen
        if newest is None or newest.rev <= head.n:
            newest = self._revisions.newest()
        return newest.content if newest.head.digest == head.digest else None

    def strays(self, head: Head) -> Iterator[str]:
        del head
        return iter(())


def _carrier(snapshot: Snapshot) -> Carrier:
    assert isinstance(snapshot.head, Carrier)
    return snapshot.head


def _snapshot(head: Carrier, draft: Draft) -> Snapshot:
    return Snapshot(head, draft.tapfile, draft.document, draft.content, draft.at)


# The Tapfile with what it carries


class _Carried(msgspec.Struct):
    logged: int
    records: tuple[str, ...]


def _joined(
    document: dict[str, Any], logged: int, records: tuple[bytes, ...], fmt: Format
) -> bytes:
    """Raises `FormatError` if it could not be read back."""
    # Records as text, byte for byte: their hashes chain them.
    carried = {"logged": logged, "records": [record.decode() for record in records]}
    stamp = {**document["tapstore"], **carried}
    whole = {**document, "tapstore": stamp}
    rendered = format.render_again(whole, fmt=fmt, header=format.READ_ONLY_HEADER)
    try:
        format.check_bytes(len(rendered))
    except FormatError as exc:
        raise FormatError(
            f"{exc}; {len(records[-1]):,} of these bytes are the record of this very commit, in "
            "which a value that is set stands twice and one that is replaced once"
        ) from exc
    return rendered


def _split(data: bytes) -> tuple[dict[str, Any], int, tuple[bytes, ...]]:
    # The hash in the record sees to what a plain parser lets pass.
    format.check_bytes(len(data))
    whole = msgspec.json.decode(data) if data[:1] == b"{" else format.parse(data)
    stamp = msgspec.convert(whole["tapstore"], dict[str, Any])
    carried = msgspec.convert(stamp, _Carried)
    del stamp["logged"], stamp["records"]
    records = tuple(record.encode() for record in carried.records)
    return {**whole, "tapstore": stamp}, carried.logged, records


# Creation


def begin(store: Store, config: SessionConfig, draft: Draft) -> None:
    """Prepare revision 1; the first who looks makes it the Tapfile once the session exists."""
    _, data = follow(None, draft.write_id, draft.content, draft.entry)
    whole = _joined(draft.document, 0, (data,), config.tapfile_format)
    try:
        _split(store.get(TAPFILE_KEY).data)
    except NotFoundError:
        pass
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, ValueError) as exc:
        raise NotAllowedError(
            f"there is a Tapfile at {store.url} that is not of a session which commits there: "
            "move it away first"
        ) from exc
    store.put(_first_key(config), whole, CREATE)


def _publish_first(store: Store, config: SessionConfig, config_bytes: bytes) -> None:
    """Make the Tapfile of a session that has none.

    Safe to repeat, also by others, as long as record 1 is not logged: until then nothing can have
    been committed on top.
    """
    try:
        data = store.get(_first_key(config)).data
    except NotFoundError as exc:
        raise SessionNotFoundError(
            f"the session at {store.url} was deleted before it was quite made"
        ) from exc
    try:
        store.put(TAPFILE_KEY, data, CREATE)
    except AlreadyExistsError:
        there = store.get(TAPFILE_KEY)
        document, _, _ = _split(there.data)
        if document["tapstore"]["incarnation"] != config.incarnation:
            # The ghost of a session that was here before; but if ours is the one that was, and we
            # were stopped until here, it is the Tapfile of the new one.
            configs.check_same(store, config_bytes)
            try:
                store.put(TAPFILE_KEY, data, Update(there.info.version))
            except ConflictError:  # another opener was faster
                _publish_first(store, config, config_bytes)
    _, _, records = _split(data)
    Segments(store, config.prefix).append(1, records)


def _first_key(config: SessionConfig) -> str:
    # Among the contents of commits, where `gc` finds those of creators that died.
    return f"{config.prefix}/revisions/first"
