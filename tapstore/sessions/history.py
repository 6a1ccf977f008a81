"""What happened in a session: the entries of its log, checked and made readable.

The log is the truth of history (`commitlog`); this is how its records are filled and shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tapstore.clock import format_time_ms
from tapstore.errors import FormatError
from tapstore.record import Head
from tapstore.sessions.revisions import History
from tapstore.tapfile import effects
from tapstore.tapfile.model import Tapfile
from tapstore.tapfile.operations import AnyOperation, Edit, Operation


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A participant that changed its status."""

    participant: str
    old: str
    new: str
    agent: str = ""
    claim: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit says about itself."""

    at: str
    """Time in the store's clock, never before that of the revision it follows."""

    by: str = ""
    """Agent id, or whatever names the person or program."""

    reason: str = ""
    operations: tuple[AnyOperation, ...] = ()
    moves: tuple[Move, ...] = ()
    phase: tuple[str, str] | None = None
    """Old and new phase, if it changed."""

    effects: tuple[Any, ...] = ()
    """See `effects`: enough to make this revision of the one before."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log, as people and programs see it (`tapstore log --json`)."""

    rev: int
    write_id: str
    at: str
    by: str = ""
    reason: str = ""
    operations: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    phase: tuple[str, str] | None = None


class _Named(msgspec.Struct):
    """An operation, which may be of a later version."""

    op: str


class _Shown(msgspec.Struct):
    """What a line of the log shows of an entry."""

    at: str
    by: str = ""
    reason: str = ""
    operations: tuple[_Named, ...] = ()
    moves: tuple[Move, ...] = ()
    phase: tuple[str, str] | None = None


_to_builtins = msgspec.to_builtins


def make_entry(
    before: Tapfile | None,
    after: Tapfile,
    changes: Sequence[Any],
    operations: Sequence[Operation],
    at: float,
) -> dict[str, Any]:
    """The entry of a commit, as plain data.  Raises `FormatError` if it could not be read back."""
    entry: dict[str, Any] = {"at": format_time_ms(at)}
    if operations:
        first = operations[0]
        if first.by:
            entry["by"] = first.by
        if first.reason:
            entry["reason"] = first.reason
        entry["operations"] = [_to_builtins(op) for op in operations]
    moves = _moves(before, after)
    if moves:
        entry["moves"] = moves
    if before is not None and before.current_phase != after.current_phase:
        entry["phase"] = (before.current_phase, after.current_phase)
    entry["effects"] = changes
    try:
        # What is not what it should be (a number for a reason) would damage the log for good.
        msgspec.convert(entry, Entry)
    except msgspec.ValidationError as exc:
        raise FormatError(f"this cannot be logged: {exc}") from exc
    return entry


def _moves(before: Tapfile | None, after: Tapfile) -> list[Move]:
    if before is None or before.participants is after.participants:
        return []
    old = {p.label: p for p in before.participants}
    moves = []
    for p in after.participants:
        was = old.get(p.label)
        if was is None or was.status != p.status or was.claim != p.claim:
            claim = p.claim or (None if was is None else was.claim)
            agent = p.agent_id or ("" if was is None else was.agent_id)
            moves.append(
                Move(p.label, "" if was is None else was.status, p.status, agent,
                     "" if claim is None else claim.id)
            )  # fmt: skip
    return moves


def log_entry(head: Head) -> LogEntry:
    """The line for one commit.  Operations of later versions show by their name."""
    try:
        shown = msgspec.convert(head.record.entry, _Shown)
    except msgspec.ValidationError as exc:
        raise FormatError(f"log record {head.n}: {exc}") from exc
    return LogEntry(
        rev=head.n,
        write_id=head.record.write_id,
        at=shown.at,
        by=shown.by,
        reason=shown.reason,
        operations=tuple(operation.op for operation in shown.operations),
        moves=shown.moves,
        phase=shown.phase,
    )


def operation_ids(head: Head) -> Iterator[str]:
    for operation in head.record.entry.get("operations", ()):
        yield operation["id"]


def edits_of(head: Head) -> Iterator[Edit]:
    """The edits in a commit.  Operations of other types may be of a later version."""
    for operation in head.record.entry.get("operations", ()):
        if operation.get("op") == "edit":
            try:
                yield msgspec.convert(operation, Edit)
            except msgspec.ValidationError as exc:
                raise FormatError(f"log record {head.n}: {exc}") from exc


def document_at(log: History, rev: int) -> dict[str, Any] | None:
    """The document of a revision, from its content or, if that was collected, from the effects.

    None if there is no such revision.
    """
    head = log.at(rev)
    if head is None:
        return None
    content = log.content(head)
    if content is not None:
        return _decoded(head, content)
    document: dict[str, Any] = {}
    for number in range(1, rev + 1):
        head = log.at(number)
        if head is None:
            raise FormatError(f"log record {number} is missing; restore it from a backup")
        document = replayed(head, document)
    return document


def replayed(head: Head, before: dict[str, Any]) -> dict[str, Any]:
    """The document that a commit made of the one before.  Raises `FormatError` if it can't be."""
    try:
        return dict(effects.replay(before, head.record.entry.get("effects", ())))
    except (LookupError, TypeError, ValueError) as exc:
        raise FormatError(f"log record {head.n}: its effects do not fit: {exc!r}") from exc


def _decoded(head: Head, content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise FormatError(f"the content of revision {head.n} is damaged: {exc}") from exc


def verify(log: History) -> Iterator[str]:
    """Yield what is wrong with the log: missing or damaged records, a broken chain, contents that
    fit neither their record nor the effects.

    It cannot tell that the newest records were cut off, or that everything was made anew.
    """
    end = _newest(log)
    last: Head | None = None
    parent: str | None = ""
    said = ""
    document: dict[str, Any] | None = {}
    n = 0
    while True:
        n += 1
        try:
            head = log.at(n)
            if head is None and n <= end:
                raise FormatError(f"log record {n} is missing; restore it from a backup")
        except FormatError as exc:
            if str(exc) == said:
                return  # of no record, but of what all of them are found by
            yield (said := str(exc))
            parent = document = None
            continue
        if head is None:
            break
        if parent is not None and head.record.parent != parent:
            yield f"log record {n} does not follow record {n - 1}: one of the two was replaced"
        parent, last = head.digest, head
        try:
            document = _verified(log, head, document)
        except FormatError as exc:
            yield str(exc)
            document = None
    if last is None:
        yield "the log is empty"
    elif log.content(last) is None and log.at(last.n + 1) is None:
        yield f"the content of the newest revision {last.n} is missing"


def _newest(log: History) -> int:
    try:
        head = log.head()
    except FormatError:
        return 0  # it is met again, and told of, on the way
    return 0 if head is None else head.n


def _verified(log: History, head: Head, before: dict[str, Any] | None) -> dict[str, Any] | None:
    """The document of a revision, if that before it is known, or its content is kept."""
    log_entry(head)  # as plain data: operations may be of a later version
    document = None if before is None else replayed(head, before)
    content = log.content(head)
    if content is None:
        return document
    kept = _decoded(head, content)
    if document is not None and effects.effects(document, kept):
        raise FormatError(
            f"log record {head.n}: its effects do not make the content of the revision"
        )
    return kept
