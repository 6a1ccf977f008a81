"""The Tapfile as a file: a view of the newest revision, and the door for other programs.

What is published is always a whole, committed revision.  An edit made under `tapfile.lock` is
found, compared with the revision that it names, and handed on as an operation; what can't be
taken is set aside in `.tap/conflicts/` before the view is published again, so nothing is lost.

It promises nothing to a program that edits without the lock: an edit that falls between the last
look and the rename is overwritten.  The view never decides what the state is.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from tapstore.abc import Store
from tapstore.clock import format_time_ms
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
)
from tapstore.sessions import history
from tapstore.sessions.config import CONFLICTS_PREFIX, TAPFILE_KEY, SessionConfig
from tapstore.sessions.revisions import History
from tapstore.sessions.sessionlog import SessionLogFile
from tapstore.sessions.snapshot import Snapshot
from tapstore.tapfile import format, schema
from tapstore.tapfile.changes import Change, diff, edited_document, follows, with_claims
from tapstore.tapfile.operations import Edit, Operation, Park
from tapstore.types import CREATE, OVERWRITE

REST_SECONDS = 2.0
"""What can't be read, or lacks entries, may be half-written: it is judged after this long."""


_UNREADABLE = (StoreError, InvalidKeyError)
"""No permission, a folder in its place, a link that leaves the session."""


class ViewWarning(UserWarning):
    """A commit stands, but the Tapfile that other programs see could not be brought up to date."""


class ExclusiveFile(Protocol):
    """What the view needs of `tapfile.lock`."""

    def acquire(self, wait: float) -> bool: ...
    def is_ours(self) -> bool: ...
    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in the view, and what to do about it."""

    operation: Operation | None = None
    """Commit this first."""

    publish: bool = True
    """Then (or at once) publish the newest revision; else leave the file alone."""

    data: bytes = b""
    """What the operation was found in."""


class View:
    """Publishes revisions to `.tap/Tapfile` and `.tap/session.log`; finds edits."""

    def __init__(
        self,
        store: Store,
        config: SessionConfig,
        *,
        lock: ExclusiveFile | None,
        log_file: SessionLogFile | None,
    ) -> None:
        """`lock`: taken around everything; None: no other program edits the Tapfile."""
        self._store = store
        self._config = config
        self._lock = lock
        self._log_file = log_file
        self._published: tuple[int, bytes] = (0, b"")

    @property
    def foreign(self) -> bool:
        """Whether other programs may edit the Tapfile."""
        return self._lock is not None

    def exclusive(self, *, wait: float) -> AbstractContextManager[bool]:
        """Hold `tapfile.lock`, if it can be had within `wait` seconds; yields whether it is."""
        return nullcontext(True) if self._lock is None else self._locked(self._lock, wait)

    @contextmanager
    def _locked(self, lock: ExclusiveFile, wait: float) -> Iterator[bool]:
        mine = lock.acquire(wait)
        try:
            yield mine
        finally:
            if mine:
                self._release(lock)

    def _release(self, lock: ExclusiveFile) -> None:
        try:
            lock.release()
        except OSError as exc:
            # What was done under it is done.  Others remove it when this process is gone.
            warnings.warn(f"tapfile.lock could not be removed: {exc}", ViewWarning, stacklevel=4)

    def _read(self) -> bytes | None:
        try:
            return self._store.get(TAPFILE_KEY).data
        except NotFoundError:
            return None

    def revision_hint(self) -> int:
        """The revision that the file claims to show, 0 if it does not say; only a hint."""
        try:
            certified = format.certified(self._read() or b"")
        except _UNREADABLE:
            return 0
        return 0 if certified is None else certified[0]

    def needs_attention(self, snapshot: Snapshot) -> bool:
        """Whether the file shows anything but this revision, unedited."""
        try:
            data = self._read()
        except _UNREADABLE:
            return True
        if not data:
            return True
        if self._published == (snapshot.rev, data):
            return False
        shown = format.certified(data)
        if shown is None and self._config.tapfile_format == "json":
            current = data == snapshot.content
        else:
            current = shown == (snapshot.rev, snapshot.head.record.write_id)
        if current:
            self._published = (snapshot.rev, data)
        return not current

    # Publishing

    def publish(self, snapshot: Snapshot, log: History) -> None:
        """Show this revision.  With a lock, only if it is still ours."""
        data = snapshot.content
        if self._config.tapfile_format == "yaml":
            data = format.render_again(snapshot.document, fmt="yaml")
        # A lock that somebody broke while we were stopped belongs to a writer who has seen, or
        # will see, our commit in the log: it publishes, and may have been edited since.
        if self._lock is not None and not self._lock.is_ours():
            return
        self._store.put(TAPFILE_KEY, data, OVERWRITE)
        self._published = (snapshot.rev, data)
        if self._log_file is not None:
            self._log_file.extend(log, snapshot.head)

    # Importing

    def find_edit(self, snapshot: Snapshot, log: History) -> Finding:
        """Compare the file with the revision that it names; the lock is held."""
        try:
            got = self._store.get(TAPFILE_KEY)
        except NotFoundError:
            return Finding()  # never published, or removed: not a deletion of anything
        except _UNREADABLE as exc:
            # It may hold an edit; and the state is what the log says, with or without it.
            warnings.warn(
                f"the Tapfile can neither be read nor published: {exc}", ViewWarning, stacklevel=5
            )
            return Finding(publish=False)
        data = got.data
        # If we were stopped and our lock was broken, another program may be in the middle of
        # writing, and half of what it writes may look like a whole edit.
        if self._lock is not None and not self._lock.is_ours():
            return Finding(publish=False)
        if not data:
            return Finding()
        if format.certified(data) is not None:
            # Nobody has edited it: an older revision, or the ghost of a session that was deleted.
            return Finding()
        # From the future (copied with its times, or by a wrong clock) it would never have rested.
        rested = abs(self._store.now() - got.info.modified) >= REST_SECONDS
        identity = "edit-" + hashlib.sha256(data).hexdigest()[:24]
        try:
            document = format.parse(data)
            schema.check(document)
            base, base_document = self._base(document, log)
        except FormatError as exc:
            if not rested:
                return Finding(publish=False)
            return Finding(self.park(identity, snapshot, str(exc), data))
        if self._was_judged(identity, base, snapshot, log):
            return Finding()
        try:
            changes = diff(self._edited(base, base_document, document, snapshot, log), document)
        except ConflictError as exc:
            if not rested:
                return Finding(publish=False)
            return Finding(self.park(identity, snapshot, str(exc), data))
        if not changes:
            return Finding()
        missing = any(
            c.path[0] in ("participants", "artifacts") and c.new is UNSET and not c.append
            for c in changes
        )
        if missing and not rested:
            return Finding(publish=False)
        return Finding(
            Edit(
                id=identity,
                by=_author(changes),
                reason="edit of the Tapfile",
                changes=changes,
                base=base,
                external=True,
            ),
            data=data,
        )

    def _base(self, document: dict[str, Any], log: History) -> tuple[int, dict[str, Any]]:
        """The revision that the edited document names.  Raises `FormatError`."""
        stamp = document.get("tapstore") or {}
        rev = stamp.get("rev")
        head = log.at(rev) if isinstance(rev, int) and rev > 0 else None
        if head is None or head.record.write_id != stamp.get("write_id"):
            raise FormatError(
                "the Tapfile does not name the revision it was made from (tapstore.rev and "
                "tapstore.write_id must be kept), so what it changes can't be told"
            )
        base = history.document_at(log, head.n)
        assert base is not None
        return head.n, base

    def _edited(
        self,
        base: int,
        base_document: dict[str, Any],
        document: dict[str, Any],
        snapshot: Snapshot,
        log: History,
    ) -> dict[str, Any]:
        """What the program that wrote `document` had before it.

        Usually the revision that it names.  But if an importer died between commit and
        publishing, the next program edited the Tapfile as the one before it had left it.
        Raises `ConflictError` if it can't be told whether it did.
        """
        for number in range(base + 1, snapshot.rev + 1):
            head = log.at(number)
            for operation in () if head is None else history.edits_of(head):
                if operation.external and operation.base == base:
                    # Who did not see one of them may have seen the next, which did not either.
                    try:
                        edited = edited_document(base_document, operation.changes)
                    except ConflictError:
                        continue  # made from one of those that this program did not see
                    if follows(document, base_document, edited, operation.changes):
                        base_document = with_claims(edited, operation.changes, operation.id)
        return base_document

    def _was_judged(self, identity: str, base: int, snapshot: Snapshot, log: History) -> bool:
        # Who judged it died between commit and publishing, or the program wrote the same again.
        # What was refused then may be allowed by now, but its program was told that it is not.
        judged = {identity, _parked(identity)}
        for number in range(base + 1, snapshot.rev + 1):
            head = log.at(number)
            if head is not None and not judged.isdisjoint(history.operation_ids(head)):
                return True
        return False

    def park(self, identity: str, snapshot: Snapshot, reason: str, data: bytes) -> Park:
        """Set the edited file aside with the reason; returns the operation that notes it."""
        identity = _parked(identity)
        key = f"{CONFLICTS_PREFIX}/{identity}.json"
        parked = {
            "at": format_time_ms(self._store.now()),
            "reason": reason,
            "head": snapshot.rev,
            "tapfile": data.decode("utf-8", "backslashreplace"),
        }
        with suppress(AlreadyExistsError):  # the one before us died here, or it was written again
            self._store.put(key, msgspec.json.format(msgspec.json.encode(parked)), CREATE)
        return Park(id=identity, by="edit of the Tapfile", reason=reason, key=key)


class NoView(View):
    """Where the Tapfile itself is the commit, there is nothing to publish and nothing to find."""

    def __init__(self, store: Store, config: SessionConfig) -> None:
        super().__init__(store, config, lock=None, log_file=None)

    @contextmanager
    def exclusive(self, *, wait: float) -> Iterator[bool]:
        del wait
        yield False


def _parked(identity: str) -> str:
    return identity.replace("edit-", "park-", 1)


def _author(changes: tuple[Change, ...]) -> str:
    agents = {
        str(c.new) for c in changes if c.path[0] == "participants" and c.path[-1] == "agent_id"
    }
    return agents.pop() if len(agents) == 1 else "edit of the Tapfile"
