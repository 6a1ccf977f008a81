"""The state of one session on a store: read it, commit operations to it.

A commit that returned is there, once, whatever happened to anybody; a commit that raised is not,
except after `OutcomeUnknownError`.  Correctness rests on the commit log alone.  Turns,
`tapfile.lock` and the waits between attempts only keep contenders from burning each other's
work, and let programs take part that edit the Tapfile themselves.

It does not keep anybody's claim alive and does not start threads.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK, format_time, format_time_ms, parse_time
from tapstore.commitlog import CommitLog, Head
from tapstore.errors import (
    ConflictError,
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    OutcomeUnknownError,
    SessionNotFoundError,
    StoreError,
    WaitTimeoutError,
)
from tapstore.sessions import config as configs
from tapstore.sessions import history
from tapstore.sessions.config import SessionConfig, new_id
from tapstore.sessions.snapshot import Snapshot
from tapstore.sessions.turns import Turns
from tapstore.sessions.view import View, ViewWarning
from tapstore.tapfile import effects, format, operations, schema
from tapstore.tapfile import model as model
from tapstore.tapfile.model import Stamp, Tapfile
from tapstore.tapfile.operations import Heartbeat, Operation, Park

MAX_BACKOFF_SECONDS = 0.05

ATTEMPTS = 4
"""How often a commit is sent of which the place does not say what became of it."""

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class _RacedError(Exception):
    """Another writer committed the revision that we were about to."""


class SessionState:
    """Reads and commits; one per opened session; safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        config: SessionConfig,
        config_bytes: bytes,
        view: View,
        *,
        clock: Clock = SYSTEM_CLOCK,
        user_check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.store = store
        self.config = config
        self.log = CommitLog(store, config.prefix, keep=config.keep_revisions)
        self._config_bytes = config_bytes
        self._view = view
        self._clock = clock
        self._user_check = user_check
        files = store.capabilities.files
        self._turns = Turns(store.local_path(configs.SESSION_KEY) if files else None, clock)
        self._snapshot: Snapshot | None = None
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._beats: dict[str, str] = {}
        self._beats_mutex = threading.Lock()

    def _notice_fork(self) -> None:
        # A thread of the parent may have held a mutex, and is not here to give it back.  The
        # heartbeats are the parent's to report.
        if self._pid != os.getpid():
            self._begin()

    def _alone(self) -> threading.RLock:
        """To be held while committing."""
        self._notice_fork()
        return self._mutex

    # Reading

    def refresh(self) -> Snapshot:
        """The newest committed state; imports an edit of the Tapfile if there is one.

        Costs one look for the next record when nothing changed.
        """
        with self._alone():
            self.check_alive()
            snapshot = self._read()
            if self._view.foreign and self._view.needs_attention(snapshot):
                # Somebody who holds the lock is at work on it and will see to it.
                try:
                    with self._view.exclusive(wait=0) as mine:
                        if mine:
                            snapshot, _ = self._settle(self._read())
                except StoreError as exc:
                    if exc.errno not in _READ_ONLY:
                        raise
                    # Who may only read sees the log; somebody who may write imports.
            return snapshot

    def peek(self) -> Snapshot:
        """The newest committed state as the log has it; writes nothing, imports nothing.

        Waits for nobody, so that heartbeats go on while another thread waits to commit.
        """
        self.check_alive()
        return self._read()

    def _read(self) -> Snapshot:
        known = self._snapshot
        found = self.log.head(
            None if known is None else known.head,
            hint=0 if known is not None else self._view.revision_hint(),
        )
        if known is not None and found is not None and found.n == known.rev:
            return known
        read = None if found is None else self.log.read(found)
        if read is None:
            raise SessionNotFoundError(
                f"the log of the session at {self.store.url} is gone (below "
                f"{self.config.prefix}/log); it was deleted, or restore it from a backup"
            )
        head, content = read
        self._snapshot = self._parse(head, content)
        return self._snapshot

    def _parse(self, head: Head, content: bytes) -> Snapshot:
        try:
            document = msgspec.json.decode(content)
            tapfile = model.from_doc(document)
            at = parse_time(document["tapstore"]["at"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as exc:
            raise FormatError(
                f"{self.store.url}: the content of revision {head.n} is damaged: {exc}"
            ) from exc
        return Snapshot(head, tapfile, document, content, at)

    def check_alive(self) -> None:
        """Raise `SessionNotFoundError` if the session was deleted (and perhaps made again)."""
        if configs.raw(self.store) != self._config_bytes:
            raise SessionNotFoundError(
                f"the session at {self.store.url} was deleted and another one made in its place; "
                "open it again"
            )

    # Writing

    def commit(self, *batch: Operation, timeout: float | None = 60) -> Snapshot:
        """Apply the operations to the newest state and commit the result as one revision.

        All or nothing: the first that is refused raises what `operations.apply` raises, and
        nothing is written.  Raises `WaitTimeoutError` if others kept winning for `timeout`
        seconds, `OutcomeUnknownError` if the place never said.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        attempt = 0
        # What takes long only once must not do so while others wait for their turn.
        schema.prepare()
        format.render({}, fmt=self.config.tapfile_format)
        while True:
            try:
                with self._alone():
                    return self._try(batch)
            except _RacedError as exc:
                attempt += 1
                if deadline is not None and self._clock.monotonic() >= deadline:
                    raise WaitTimeoutError(
                        f"{self.store.url}: others committed first {attempt} times in "
                        f"{timeout:g} s; nothing was written, try again"
                    ) from exc
            self._clock.sleep(random.uniform(0, min(MAX_BACKOFF_SECONDS, 0.0005 * 2**attempt)))

    def try_out(self, *batch: Operation) -> None:
        """Raise what the rules would refuse a commit of these operations with now."""
        snapshot = self.refresh()
        state = snapshot.tapfile
        for operation in batch:
            state = operations.apply(state, operation, at=snapshot.at, rev=snapshot.rev + 1)

    def _try(self, batch: Sequence[Operation]) -> Snapshot:
        wait = self.config.tapfile_lock_wait_seconds
        with self._turns.taken(), self._view.exclusive(wait=wait) as mine:
            snapshot = self._read()
            publish = mine
            if mine and self._view.foreign and self._view.needs_attention(snapshot):
                snapshot, publish = self._settle(snapshot)
            snapshot = self._write(snapshot, batch)
            if publish:
                self._publish(snapshot)
        self.log.collect(snapshot.head)
        return snapshot

    def publish(self) -> None:
        """Bring the Tapfile up to date; an edit of it is imported first."""
        with (
            self._alone(),
            self._view.exclusive(wait=self.config.tapfile_lock_wait_seconds) as mine,
        ):
            snapshot = self._read()
            if mine and self._view.foreign:
                self._settle(snapshot)
            elif mine:
                self._publish(snapshot)

    def _publish(self, snapshot: Snapshot) -> None:
        try:
            self._view.publish(snapshot, self.log)
            # Without a lock, the one who renames last must be one who has seen the newest.
            while not self._view.foreign and (newest := self._read()).rev > snapshot.rev:
                snapshot = newest
                self._view.publish(snapshot, self.log)
        except (OSError, FormatError, OutcomeUnknownError) as exc:
            # Committed is committed; the next one who can publishes.
            warnings.warn(
                f"{self.store.url}: revision {snapshot.rev} is committed, but the Tapfile could "
                f"not be published: {exc}",
                ViewWarning,
                stacklevel=4,
            )

    def _settle(self, snapshot: Snapshot) -> tuple[Snapshot, bool]:
        """Import the edit of the Tapfile, if it is one, and publish; the lock is held.

        Also returns whether the file may be overwritten now.
        """
        # Were the session made anew, its Tapfile would look to us like an edit that names nothing.
        self.check_alive()
        finding = self._view.find_edit(snapshot, self.log)
        operation = finding.operation
        while operation is not None:
            imported, operation = operation, None
            try:
                snapshot = self._write(snapshot, (imported,))
            except _RacedError:
                snapshot = self._read()
                finding = self._view.find_edit(snapshot, self.log)
                operation = finding.operation
            except (FormatError, NotAllowedError, InvalidKeyError, ConflictError) as exc:
                if isinstance(imported, Park):
                    raise  # the state as it is breaks a rule; noting that would break it again
                # Refused by the rules, or by the schema of the session.
                operation = self._view.park(imported.id, snapshot, str(exc))
        if finding.publish:
            self._publish(snapshot)
        return snapshot, finding.publish

    def _write(self, before: Snapshot, batch: Sequence[Operation]) -> Snapshot:
        at = max(self.store.now(), before.at)
        rev = before.rev + 1
        state = before.tapfile
        for operation in batch:
            state = operations.apply(state, operation, at=at, rev=rev)
        with self._beats_mutex:
            beats = Heartbeat(id="", beats=dict(self._beats))
        if beats.beats:
            state = operations.apply(state, beats, at=at, rev=rev)
        write_id = new_id()
        state = replace(
            state,
            stamp=Stamp(
                rev=rev,
                write_id=write_id,
                incarnation=self.config.incarnation,
                at=format_time_ms(at),
                by=batch[0].by if batch else "",
            ),
        )
        document = model.to_doc(state)
        schema.check(document)
        if self._user_check is not None:
            self._user_check(document)
        entry = history.make_entry(
            before.tapfile, state, effects.effects(before.document, document), batch, at
        )
        content = format.render(document, fmt="json")
        format.check_size(document, content, fmt=self.config.tapfile_format)
        head = self._commit(before.head, write_id, content, entry)
        # The files of a deleted session could have been made anew by this very write.
        try:
            self.check_alive()
        except StoreError as exc:
            raise OutcomeUnknownError(
                f"{self.store.url}: revision {rev} is in the log, but whether the session was "
                f"deleted meanwhile cannot be told ({exc}); open it again to find out"
            ) from exc
        self._snapshot = Snapshot(head, state, document, content, at)
        return self._snapshot

    def _commit(self, parent: Head, write_id: str, content: bytes, entry: dict[str, Any]) -> Head:
        unknown: OutcomeUnknownError | None = None
        for _ in range(ATTEMPTS):
            try:
                return self.log.commit(parent, write_id, content, entry)
            except ConflictError as exc:
                raise _RacedError from exc
            except OutcomeUnknownError as exc:
                unknown = exc
            except StoreError:
                # Says of this attempt that it failed, and nothing of one before it.
                if unknown is None:
                    raise
        assert unknown is not None
        raise unknown

    # Heartbeats of this process' claims

    def note_beat(self, claim: str, at: float | None) -> None:
        """Remember the time of a claim's heartbeat for the next commit; None: forget it."""
        self._notice_fork()
        with self._beats_mutex:
            if at is None:
                self._beats.pop(claim, None)
            else:
                self._beats[claim] = format_time(at)


def first_revision(
    store: Store, config: SessionConfig, tapfile: Tapfile, *, by: str, at: float
) -> None:
    """Commit revision 1; the session does not exist yet and becomes visible with its config."""
    write_id = new_id()
    state = replace(
        tapfile,
        stamp=Stamp(
            rev=1, write_id=write_id, incarnation=config.incarnation, at=format_time_ms(at), by=by
        ),
    )
    document = model.to_doc(state)
    schema.check(document)
    entry = history.make_entry(None, state, effects.effects({}, document), (), at)
    entry |= {"by": by, "reason": "created"}
    log = CommitLog(store, config.prefix, keep=config.keep_revisions)
    content = format.render(document, fmt="json")
    format.check_size(document, content, fmt=config.tapfile_format)
    log.commit(None, write_id, content, entry)
