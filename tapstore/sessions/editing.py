"""Changes fields of the document; with a key, once, however often the call is repeated.

With a key an edit goes only on top of a revision up to which no record of the log has its key.
So one that is still under way and one that is made anew can't both land: they have the same
number, or the former is found.

Not promised: that an edit with a key gets through where others commit all the time; each commit
of theirs costs it an attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tapstore.abc import Clock
from tapstore.errors import ConflictError, NotAllowedError
from tapstore.sessions import history
from tapstore.sessions.config import new_id
from tapstore.sessions.state import SessionState
from tapstore.tapfile import format, schema
from tapstore.tapfile.changes import Change, diff
from tapstore.tapfile.operations import Edit

_KEY = re.compile(r"r([1-9][0-9]{0,15})-[0-9a-f]{16}")


def new_key(state: SessionState) -> str:
    """A key for one edit.  It tells the revision from which on the log has to be searched."""
    return f"r{state.peek().rev}-{new_id()}"


def edit(
    state: SessionState,
    change: Callable[[dict[str, Any]], Any],
    *,
    by: str,
    reason: str,
    timeout: float,
    key: str,
    clock: Clock,
) -> tuple[Change, ...]:
    """See `Session.edit`."""
    searched = _revision_of(key) if key else 0
    deadline = clock.monotonic() + timeout
    while True:
        snapshot = state.refresh()
        if key:
            made = _made(state, key, searched)
            if made is not None:
                return made.changes
            searched = snapshot.rev
        document = msgspec.json.decode(snapshot.content)
        change(document)
        document = format.settled(document, known=snapshot.document)
        schema.check(document, known=snapshot.document)
        changes = diff(snapshot.document, document)
        if not changes:
            return changes
        operation = Edit(
            id=key or new_id(),
            by=by,
            reason=reason,
            changes=changes,
            base=snapshot.rev,
            strict=bool(key),
        )
        try:
            state.commit(operation)
            return changes
        except ConflictError:
            if clock.monotonic() >= deadline:
                raise


def _revision_of(key: str) -> int:
    match = _KEY.fullmatch(key)
    if match is None:
        raise NotAllowedError(f"{key[:40]!r} is no key of an edit: take one from `new_key()`")
    return int(match[1])


def _made(state: SessionState, key: str, after: int) -> Edit | None:
    for head in state.log.records(after=after):
        for made in history.edits_of(head):
            if made.id == key:
                return made
    return None
