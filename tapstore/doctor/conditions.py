"""Whether the place keeps the conditions of writes: what sessions remember of it, and see again.

What a place can do is asked of the store, as it is when a session is made; here it is tried once
more as sessions use it, step by step.  Whether it holds in a race is for `race` and `peers`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from tapstore.doctor.subject import Subject
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    UnsupportedOperationError,
)
from tapstore.types import CREATE, OVERWRITE, Finding, Update

CREATION = "exclusive-creation"
PUT = "conditional-put"
DELETE = "conditional-delete"

_CONTRADICTS = (
    "it kept the condition when it was tried out and ignores it now: several servers that differ "
    "behind one address, or a race"
)


def creation(subject: Subject) -> Finding:
    """Create a key twice, and read what is there."""
    store, key = subject.store, subject.work.key("create")
    first = _bytes()
    try:
        store.put(key, first, CREATE)
    except UnsupportedOperationError as exc:
        reason, _, change = str(exc).partition(": ")[2].rpartition("; ")
        return Finding(CREATION, "fatal", reason, "no session can be made here", change)
    refused = _is_refused(lambda: store.put(key, _bytes(), CREATE), AlreadyExistsError)
    kept = store.get(key).data == first
    if refused and kept:
        return Finding(CREATION, "ok", "a second create was refused, the first bytes stayed")
    seen = "a second create succeeded" if not refused else "a refused create changed the bytes"
    return Finding(CREATION, "fatal", seen, _CONTRADICTS, "find out which of them answered")


def conditional_put(subject: Subject) -> Finding:
    """Update with the right version, a stale one, and where nothing is."""
    store, key = subject.store, subject.work.key("update")
    if not store.capabilities.update:
        return _without_update(subject, key)
    stale = store.put(key, _bytes(), OVERWRITE).version
    right, late = _bytes(), _bytes()
    try:
        version = store.put(key, right, Update(stale)).version
    except ConflictError as exc:
        return Finding(PUT, "fatal", f"an update with the right version was refused: {exc}",
                       "nobody could ever commit", "report it, with the server's name")  # fmt: skip
    refused = _is_refused(lambda: store.put(key, late, Update(stale)), ConflictError)
    kept = store.get(key).data == right
    gone = subject.work.key("gone")
    missing = _is_refused(lambda: store.put(gone, late, Update(version)), ConflictError)
    wrong = [
        what
        for what, fine in (
            ("one with a stale version succeeded", refused and kept),
            ("one of what is not there created it", missing and not _is_there(subject, gone)),
        )
        if not fine
    ]
    if wrong:
        return Finding(PUT, "fatal", f"updates: {' and '.join(wrong)}", _CONTRADICTS,
                       "find out which of them answered")  # fmt: skip
    return Finding(PUT, "ok", "right version taken; stale one and missing object refused")


def conditional_delete(subject: Subject) -> Finding:
    """Delete with a stale version, then with the right one."""
    store, key = subject.store, subject.work.key("delete")
    if not store.capabilities.conditional_delete:
        said = "not offered by file systems"
        if not store.capabilities.files:
            version = store.put(key, _bytes(), OVERWRITE).version
            said = _refusal(lambda: store.delete(key, version=version))
        return Finding(
            DELETE,
            "ok" if store.capabilities.files else "note",
            said,
            "nothing that is safe rests on it; `gc` spares what it could remove where it is there",
        )
    stale = store.put(key, _bytes(), OVERWRITE).version
    right = store.put(key, _bytes(), OVERWRITE).version
    refused = _is_refused(lambda: store.delete(key, version=stale), ConflictError)
    if not refused or not _is_there(subject, key):
        return Finding(DELETE, "fatal", "a deletion with a stale version succeeded", _CONTRADICTS,
                       "find out which of them answered")  # fmt: skip
    store.delete(key, version=right)
    return Finding(DELETE, "ok", "stale version refused, right one taken")


def _without_update(subject: Subject, key: str) -> Finding:
    store = subject.store
    if store.capabilities.files:
        return Finding(PUT, "ok", "not offered by file systems; commits are created exclusively")
    return Finding(
        PUT,
        "note",
        _refusal(lambda: store.put(key, _bytes(), Update("none"))),
        "commits go through exclusively created records, with some more requests each",
    )


def _refusal(action: Callable[[], object]) -> str:
    """What the store says of a capability that it lacks."""
    try:
        action()
    except UnsupportedOperationError as exc:
        return (str(exc).partition(": ")[2] or str(exc)).partition(". ")[0]
    except ConflictError:
        pass
    return "it is not offered"


def _is_refused(action: Callable[[], object], error: type[Exception]) -> bool:
    try:
        action()
    except error:
        return True
    return False


def _is_there(subject: Subject, key: str) -> bool:
    try:
        subject.store.head(key)
    except NotFoundError:
        return False
    return True


def _bytes() -> bytes:
    """What no other write has: stores tell their own writes by it."""
    return secrets.token_bytes(16)
