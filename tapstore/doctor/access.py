"""Whether the place answers at all, and what this user may do there, one by one.

What is not allowed is named as a policy of the place names it, where the backend knows that.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from tapstore.doctor.report import REACH
from tapstore.doctor.subject import Subject, patiently
from tapstore.errors import NotFoundError, StoreError, TapstoreError
from tapstore.types import OVERWRITE, Finding

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

PERMISSIONS = "permissions"


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


def permissions(subject: Subject) -> Finding:
    """List, write, read and delete: each is tried, whatever became of the others."""
    store, key = subject.raw, subject.work.key("access")
    # What may have been left by a refusal of an answer only.
    tried: dict[str, TapstoreError | None] = {
        "list": _attempt(lambda: next(store.list(subject.work.prefix), None)),
        "write": _attempt(lambda: store.put(key, b"?", OVERWRITE)),
    }
    tried["read"] = _attempt(lambda: _read(subject, key, there=tried["write"] is None))
    tried["delete"] = _attempt(lambda: store.delete(key))
    refused = {what: exc for what, exc in tried.items() if exc is not None}
    missing = sorted({_permission(exc) for exc in refused.values()} - {""})
    values = {**{what: exc is None for what, exc in tried.items()}, "missing": missing}
    if not refused:
        return Finding(PERMISSIONS, "ok", "can list, read, write and delete", values=values)
    failed = [exc for exc in refused.values() if not _denied(exc)]
    return Finding(
        PERMISSIONS,
        "warning" if set(refused) == {"delete"} and not failed else "fatal",
        _said(tried, failed),
        _means(set(refused)),
        _change(missing, refused),
        values,
    )


def may_write(finding: Finding) -> bool:
    """Whether probes that write can be made, and be cleaned up after."""
    return all(finding.values.get(what) for what in ("list", "read", "write", "delete"))


def _read(subject: Subject, key: str, *, there: bool) -> None:
    try:
        subject.raw.get(key)
    except NotFoundError as exc:
        if there:
            raise StoreError(f"{exc}, where it was written a moment ago") from exc


def _attempt(action: Callable[[], object]) -> TapstoreError | None:
    for attempt in (1, 2, 3):
        try:
            action()
        except TapstoreError as exc:
            if _denied(exc) or attempt == 3:
                return exc
        else:
            return None
    raise AssertionError("unreachable")


def _denied(exc: TapstoreError) -> bool:
    return isinstance(exc, StoreError) and exc.errno in _DENIED


def _permission(exc: TapstoreError) -> str:
    return exc.permission if isinstance(exc, StoreError) else ""


def _said(tried: dict[str, TapstoreError | None], failed: list[TapstoreError]) -> str:
    can = [what for what, exc in tried.items() if exc is None]
    cannot = [what for what, exc in tried.items() if exc is not None]
    allowed = f"can {' and '.join(can)}" if can else "can do nothing"
    text = f"{allowed}, but not {' or '.join(cannot)}"
    return f"{text}: {failed[0]}" if failed else text


def _means(refused: set[str]) -> str:
    if refused <= {"write", "delete"}:
        if "write" not in refused:
            return "agents can work in sessions that are there; none can be made, nothing collected"
        return "enough to look on (status, log, watch, wait, fetch), not to work"
    if refused == {"list"}:
        return "sessions are found and histories read by listing"
    return "no session can be opened"


def _change(missing: list[str], refused: dict[str, TapstoreError]) -> str:
    if missing:
        return (
            f"allow {', '.join(missing)} below this prefix, if it is to do more "
            "(docs/how-to/bucket-policies.md)"
        )
    text = str(next(iter(refused.values())))
    return text.rpartition("; ")[2] if "; " in text else text
