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

from msgspec.structs import replace

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK, format_time, format_time_ms
from tapstore.errors import (
    ConflictError,
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    OutcomeUnknownError,
    StoreError,
    TapstoreError,
    WaitTimeoutError,
)
from tapstore.sessions import config as configs
from tapstore.sessions import history
from tapstore.sessions.config import SessionConfig, new_id
from tapstore.sessions.revisions import Draft, History, Revisions
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
        revisions: Revisions,
        view: View,
        *,
        clock: Clock = SYSTEM_CLOCK,
        user_check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.store = store
        self.config = config
        self.revisions = revisions
        self._view = view
        self._clock = clock
        self._user_check = user_check
        self.on_commit: Callable[[], None] | None = None
        """Called after each commit; must neither raise nor take long."""
        files = store.capabilities.files
        self._turns = Turns(store.local_path(configs.SESSION_KEY) if files else None, clock)
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

    @property
    def log(self) -> History:
        """What was committed, by number."""
        return self.revisions.history

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
        return self.revisions.newest()

    def check_alive(self) -> None:
        """Raise `SessionNotFoundError` if the session was deleted (and perhaps made again)."""
        self.revisions.check_alive()

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
        format.prepare(self.config.tapfile_format)
        while True:
            try:
                with self._alone():
                    snapshot = self._try(batch)
                if self.on_commit is not None:
                    self.on_commit()
                return snapshot
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
            snapshot = self.revisions.seen if self.revisions.optimistic else None
            if snapshot is not None:
                try:
                    return self._write(snapshot, batch)
                except (OutcomeUnknownError, StoreError, _RacedError):
                    raise
                except TapstoreError:
                    # What is refused by a state that is no longer so may be allowed now.
                    if self._read() is snapshot:
                        raise
            snapshot = self._read()
            publish = mine
            if mine and self._view.foreign and self._view.needs_attention(snapshot):
                snapshot, publish = self._settle(snapshot)
            snapshot = self._write(snapshot, batch)
            if publish:
                self._publish(snapshot)
        self.revisions.collect(snapshot)
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
                # Under a lock that was broken, the file may be another one by now.
                operation = self._view.park(imported.id, snapshot, str(exc), finding.data)
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
            beats = dict(self._beats)
        if beats:
            state = operations.apply(state, Heartbeat(id="", beats=beats), at=at, rev=rev)
        state = replace(
            state,
            stamp=Stamp(
                rev=rev,
                write_id=new_id(),
                incarnation=self.config.incarnation,
                at=format_time_ms(at),
                by=batch[0].by if batch else "",
            ),
        )
        document = model.to_doc(state, known=(before.tapfile, before.document))
        schema.check(document, known=before.document)
        if self._user_check is not None:
            self._user_check(document)
        entry = history.make_entry(
            before.tapfile, state, effects.effects(before.document, document), batch, at
        )
        content = format.render(document, fmt="json", known=before.document)
        format.check_size(document, content, fmt=self.config.tapfile_format)
        return self._commit(before, Draft(state, document, content, entry, at))

    def _commit(self, before: Snapshot, draft: Draft) -> Snapshot:
        unknown: OutcomeUnknownError | None = None
        for _ in range(ATTEMPTS):
            try:
                return self.revisions.commit(before, draft)
            except ConflictError as exc:
                raise _RacedError from exc
            except OutcomeUnknownError as exc:
                unknown = exc
            except (StoreError, FormatError):
                # Says of this attempt that it failed, and nothing of one before it.
                if unknown is None:
                    raise
        assert unknown is not None
        raise unknown

    def flush(self) -> None:
        """Bring up to date what follows behind the commits, if the place takes it."""
        self.revisions.flush()

    # Heartbeats of this process' claims

    def note_beat(self, claim: str, at: float | None) -> None:
        """Remember the time of a claim's heartbeat for the next commit; None: forget it."""
        self._notice_fork()
        with self._beats_mutex:
            if at is None:
                self._beats.pop(claim, None)
            else:
                self._beats[claim] = format_time(at)


def first_revision(config: SessionConfig, tapfile: Tapfile, *, by: str, at: float) -> Draft:
    """Revision 1 of a session that does not exist yet."""
    state = replace(
        tapfile,
        stamp=Stamp(
            rev=1,
            write_id=new_id(),
            incarnation=config.incarnation,
            at=format_time_ms(at),
            by=by,
        ),
    )
    document = model.to_doc(state)
    schema.check(document)
    entry = history.make_entry(None, state, effects.effects({}, document), (), at)
    entry |= {"by": by, "reason": "created"}
    content = format.render(document, fmt="json")
    format.check_size(document, content, fmt=config.tapfile_format)
    return Draft(state, document, content, entry, at)
