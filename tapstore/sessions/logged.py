"""Revisions on places that can only create: the log is the commit (`commitlog`)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tapstore.abc import Store
from tapstore.clock import parse_time
from tapstore.commitlog import CommitLog
from tapstore.errors import FormatError, OutcomeUnknownError, SessionNotFoundError, StoreError
from tapstore.record import Head
from tapstore.sessions import config as configs
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.revisions import Draft
from tapstore.sessions.snapshot import Snapshot
from tapstore.tapfile import model


class LoggedRevisions:
    """See `revisions.Revisions`."""

    optimistic = False

    def __init__(
        self, store: Store, config: SessionConfig, config_bytes: bytes, hint: Callable[[], int]
    ) -> None:
        """`hint`: the number of a revision that somebody says exists, or 0."""
        self.history = CommitLog(store, config.prefix, keep=config.keep_revisions)
        self._store = store
        self._config = config
        self._config_bytes = config_bytes
        self._hint = hint
        self.seen: Snapshot | None = None

    def check_alive(self) -> None:
        configs.check_same(self._store, self._config_bytes)

    def newest(self) -> Snapshot:
        seen = self.seen
        if seen is None:
            found = self.history.head(hint=self._hint())
        else:
            found = self.history.head(seen.head)
            if found is not None and found.n == seen.rev:
                return seen
        read = None if found is None else self.history.read(found)
        if read is None:
            raise SessionNotFoundError(
                f"the log of the session at {self._store.url} is gone (below "
                f"{self._config.prefix}/log); it was deleted, or restore it from a backup"
            )
        self.seen = self._parse(*read)
        return self.seen

    def _parse(self, head: Head, content: bytes) -> Snapshot:
        try:
            document = msgspec.json.decode(content)
            tapfile = model.from_doc(document)
            at = parse_time(document["tapstore"]["at"])
        except (
            msgspec.DecodeError, RecursionError,
            AttributeError, LookupError, TypeError, ValueError,
        ) as exc:  # fmt: skip
            raise FormatError(
                f"{self._store.url}: the content of revision {head.n} is damaged: {exc}"
            ) from exc
        return Snapshot(head, tapfile, document, content, at)

    def commit(self, before: Snapshot, draft: Draft) -> Snapshot:
        head = self.history.commit(before.head, draft.write_id, draft.content, draft.entry)
        # The files of a deleted session could have been made anew by this very write.
        try:
            self.check_alive()
        except StoreError as exc:
            raise OutcomeUnknownError(
                f"{self._store.url}: revision {head.n} is in the log, but whether the session was "
                f"deleted meanwhile cannot be told ({exc}); open it again to find out"
            ) from exc
        self.seen = Snapshot(head, draft.tapfile, draft.document, draft.content, draft.at)
        return self.seen

    def collect(self, snapshot: Snapshot) -> None:
        self.history.collect(snapshot.head)

    def flush(self) -> None:
        """Nothing follows behind here."""


def begin(store: Store, config: SessionConfig, draft: Draft) -> None:
    """Commit revision 1; the session does not exist yet and becomes visible with its config."""
    log = CommitLog(store, config.prefix, keep=config.keep_revisions)
    log.commit(None, draft.write_id, draft.content, draft.entry)
