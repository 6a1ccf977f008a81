"""Whether the place answers at all, and what this user may do there, one by one.

What is not allowed is named as a policy of the place names it, where the backend knows that.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from tapstore.doctor.report import REACH
from tapstore.doctor.subject import Subject, patiently
from tapstore.errors import NotFoundError, StoreError, TapstoreError
from tapstore.sessions.config import SESSION_KEY
from tapstore.types import OVERWRITE, Finding

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

PERMISSIONS = "permissions"

MISS = "see that something is missing"
"""S3 answers 403 instead of 404 to who may read, but not list without naming a prefix."""


def reach(subject: Subject) -> Finding:
    """One request that asks for nothing in particular."""
    store = subject.raw
    try:
        patiently(subject, store.now)
    except StoreError as exc:
        if exc.errno not in _DENIED:
            return Finding(REACH, "fatal", str(exc), "nothing could be tried", "")
        # Where nothing may be written the time cannot be had, but the place is there.
    return Finding(REACH, "ok", subject.store.identity)


def permissions(subject: Subject, *, session: bool) -> Finding:
    """List, read, write and delete: each is tried, whatever became of the others.

    `session`: there is one, so that it may be enough to look on, or to work without deleting.
    """
    store, key = subject.store, subject.work.key("access")
    write = _attempt(lambda: store.put(key, b"?", OVERWRITE))
    tried: dict[str, TapstoreError | None] = {
        "list": _attempt(lambda: next(store.list(subject.work.prefix), None)),
        "read": _attempt(lambda: _read(subject, SESSION_KEY if session else key)),
        "write": write,
        "delete": _attempt(lambda: store.delete(key)),
        MISS: _attempt(lambda: _miss(subject)),
    }
    if tried["read"] is not None or tried["list"] is not None:
        # Said by these already.
        del tried[MISS]
    refused = {what: exc for what, exc in tried.items() if exc is not None}
    missing = sorted({_permission(exc) for what, exc in refused.items() if what != MISS} - {""})
    values: dict[str, Any] = {what: exc is None for what, exc in tried.items()}
    values["absence"] = values.pop(MISS, False)
    values["missing"] = missing
    if not refused:
        return Finding(PERMISSIONS, "ok", "can list, read, write and delete", values=values)
    failed = [exc for exc in refused.values() if not _denied(exc)]
    if failed and len(refused) == len(tried):
        return Finding(REACH, "fatal", str(failed[0]), "nothing could be tried")
    unnamed = [exc for exc in refused.values() if not _permission(exc)]
    enough = session and not {"list", "read", MISS} & set(refused)
    return Finding(
        PERMISSIONS,
        "warning" if enough and not failed else "fatal",
        _said(tried) + (f": {unnamed[0]}" if unnamed else ""),
        _means(set(refused)),
        _CHANGE_MISS if MISS in refused else _change(missing),
        values,
    )


def may_write(finding: Finding) -> bool:
    """Whether probes that write can be made, and be cleaned up after."""
    can = ("list", "read", "write", "delete", "absence")
    return all(finding.values.get(what) for what in can)


def _read(subject: Subject, key: str) -> None:
    try:
        subject.store.get(key)
    except NotFoundError:
        return  # that it was written, and is not seen, is for `visibility`


def _miss(subject: Subject) -> None:
    try:
        subject.store.get(subject.work.key("nothing"))
    except NotFoundError:
        return


def _attempt(action: Callable[[], object]) -> TapstoreError | None:
    try:
        action()
    except TapstoreError as exc:
        return exc
    return None


def _denied(exc: TapstoreError) -> bool:
    return isinstance(exc, StoreError) and exc.errno in _DENIED


def _permission(exc: TapstoreError) -> str:
    return exc.permission if isinstance(exc, StoreError) else ""


def _said(tried: dict[str, TapstoreError | None]) -> str:
    can = [what for what, exc in tried.items() if exc is None and what != MISS]
    cannot = [what for what, exc in tried.items() if exc is not None]
    if not can:
        return "can do nothing here"
    return f"can {_joined(can, 'and')}, but not {_joined(cannot, 'or')}"


def _joined(words: list[str], last: str) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


_CHANGE_MISS = (
    "allow s3:ListBucket also where the request names no prefix: StringLikeIfExists instead of "
    "StringLike (docs/how-to/bucket-policies.md)"
)


def _means(refused: set[str]) -> str:
    if MISS in refused:
        return "each look at what is not there yet fails, so nobody can begin"
    if refused == {"delete"}:
        return "agents can work in a session that is there; none can be made, nothing collected"
    if refused <= {"write", "delete"}:
        return "enough to look on (status, log, watch, wait, fetch), not to work"
    return "no session can be opened: it is found by reading, its history by listing"


def _change(missing: list[str]) -> str:
    if not missing:
        return ""
    return f"allow {', '.join(missing)} here, if it is to do more (docs/how-to/bucket-policies.md)"
