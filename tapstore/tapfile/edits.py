"""Edits of the document: whether what they change may change.  Pure.

Programs that know nothing of tapstore change the Tapfile by rewriting it; `changes.diff` finds
what they changed.  Here it is applied to the newest state, under the same rules as every other
operation, all of it or nothing.

A change that the newest state has in another way by now is a conflict and is refused, except
where both can stand: items appended to a list, and the later of two times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tapstore.artifacts import model as artifact_model
from tapstore.artifacts.paths import check_path
from tapstore.errors import ConflictError, NotAllowedError
from tapstore.keys import shell_word
from tapstore.tapfile import model as model
from tapstore.tapfile.changes import OWN_ENTRY_FIELDS, Change, equal, granted_claim, labelled
from tapstore.tapfile.model import (
    COMPLETED,
    FAILED,
    PENDING,
    WORKING,
    Grant,
    Participant,
    Tapfile,
)
from tapstore.tapfile.values import copied

_TIME_FIELDS = frozenset(("last_activity", "heartbeat"))


def apply_changes(
    state: Tapfile, changes: Sequence[Change], *, base: int, claim_id: str, at: str, rev: int
) -> Tapfile:
    """The state with all changes made; raises naming the first that may not be.

    `ConflictError` where the newest state was changed in another way meanwhile,
    `NotAllowedError` where the rules forbid it.

    `base` is the revision that was edited; an edit that goes to work holds the claim `claim_id`.
    """
    before = state
    by_participant: dict[str, dict[str, Change]] = {}
    changed = {change.path[0] for change in changes}
    # A list that is not changed need not be written out; another one stands for it.
    unread: dict[str, Any] = {
        name: [] for name in ("participants", "artifacts") if name not in changed
    }
    shown = model.to_doc(state, known=(state, unread))
    doc = {key: copied(value) if key in changed else value for key, value in shown.items()}
    for change in changes:
        kind = change.path[0]
        if kind == "participants" and len(change.path) == 3:
            by_participant.setdefault(change.path[1], {})[change.path[2]] = change
        elif kind == "participants":
            _add_participant(doc, change, base)
        elif kind == "artifacts":
            _change_artifact(doc, change, base)
        elif kind in ("session_id", "version", "tapstore"):
            raise NotAllowedError(f"{change.place} of a session never changes; the edit of "
                                  f"revision {base} was not applied")  # fmt: skip
        else:
            _change_value(doc, change, base)
    state = model.from_doc(doc, known=(state, shown))
    if state.current_phase != before.current_phase or state.phases != before.phases:
        state = state.with_phase(state.current_phase)
    for label, fields in by_participant.items():
        state = _change_participant(
            state, label, fields, base=base, claim_id=claim_id, at=at, rev=rev
        )
        _check_producers(before, state, label)
    return _grant_new_workers(before, state, claim_id=claim_id, at=at, rev=rev)


def _conflict(change: Change, base: int, head: Any) -> ConflictError:
    return ConflictError(
        f"{change.place} was changed by an edit of revision {base} from {_short(change.old)} to "
        f"{_short(change.new)}, but it is {_short(head)} by now"
    )


def _short(value: Any) -> str:
    text = "(absent)" if value is UNSET else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _change_value(doc: dict[str, Any], change: Change, base: int) -> None:
    *parents, key = change.path
    parent = doc
    for step in parents:
        inner = parent.setdefault(step, {})
        if not isinstance(inner, dict):
            raise _conflict(change, base, inner)
        parent = inner
    head = parent.get(key, UNSET)
    if change.append:
        if not isinstance(head, list):
            raise _conflict(change, base, head)
        head.extend(change.append)
    elif change.path == ("current_phase",) and head == change.new:
        return
    elif not equal(head, change.old):
        # Also if it has the new value already: of two that counted from 5 to 6 one would be lost.
        raise _conflict(change, base, head)
    elif change.new is UNSET:
        del parent[key]
    else:
        parent[key] = change.new


def _change_artifact(doc: dict[str, Any], change: Change, base: int) -> None:
    if change.new is UNSET:
        raise NotAllowedError(
            f"artifact {'/'.join(change.path[1:])} disappeared in an edit of revision {base}; "
            "an edit can't remove artifacts"
        )
    entries: list[dict[str, Any]] = doc["artifacts"]
    new = artifact_model.from_doc(change.new)
    moved = change.old is UNSET or change.old["path"] != new.path
    if moved and not new.is_external:
        others = map(artifact_model.from_doc, entries)
        check_path(new.path, registered=[a.path for a in others if a.identity != new.identity])
    for number, entry in enumerate(entries):
        artifact = artifact_model.from_doc(entry)
        if artifact.identity == change.path[1:]:
            head = artifact_model.to_doc(artifact)
            if equal(head, change.new):
                return
            if not equal(head, change.old):
                raise _conflict(change, base, head)
            entries[number] = change.new
            return
    if change.old is not UNSET:
        raise _conflict(change, base, UNSET)
    entries.append(change.new)


def _add_participant(doc: dict[str, Any], change: Change, base: int) -> None:
    label = change.path[1]
    if change.new is UNSET:
        raise NotAllowedError(f"participant {label} disappeared; an edit can't remove participants")
    if change.new.get("status", PENDING) not in (PENDING, WORKING) or "claim" in change.new:
        raise NotAllowedError(f"participant {label} was added; a new one is pending or working")
    model.check_role(change.new["role"])
    there = labelled(doc["participants"]).get(label)
    if there is not None:
        # Another edit of the same revision added it; both meant this one, not one each.
        if not equal(there, _normal_participant(change.new)):
            raise _conflict(change, base, there)
        return
    doc["participants"].append(change.new)


def _normal_participant(entry: Mapping[str, Any]) -> dict[str, Any]:
    doc = {"version": "", "session_id": "", "participants": [entry]}
    normal: dict[str, Any] = model.to_doc(model.from_doc(doc))["participants"][0]
    return normal


def _change_participant(
    state: Tapfile, label: str, fields: dict[str, Change], *, base: int, claim_id: str, at: str,
    rev: int,
) -> Tapfile:  # fmt: skip
    head = next((p for p in state.participants if p.label == label), None)
    if head is None:
        raise NotAllowedError(f"participant {label} of revision {base} is not there any more")
    for own in fields.keys() & OWN_ENTRY_FIELDS:
        raise NotAllowedError(f"participants.{label}.{own} is kept by tapstore; it can't be edited")
    held = "" if head.claim is None else head.claim.id
    was = head
    status = fields.pop("status", None)
    agent = fields.pop("agent_id", None)
    times = {name: fields.pop(name) for name in _TIME_FIELDS & fields.keys()}
    shown = any(change.new is not None for change in times.values())
    if shown and status is None and head.claim is not None and head.claim.external:
        head = replace(head, claim=replace(head.claim, renewed=True))
    if status is not None and PENDING in (status.old, status.new):
        # That of the holder before would make the next one judged, which may never write any.
        head = replace(head, heartbeat=None)
    for name, change in times.items():
        there = getattr(head, name)
        if not change.new:
            continue
        # Written by two: both are true, and the later one is news.  By one: also back, since its
        # clock was ahead and was set right.
        news = change.new if there == change.old else max(there or "", str(change.new))
        head = replace(head, **{name: news})
    if status is not None:
        if status.old != head.status or status.claim != held:
            raise _conflict(status, base, head.status)
        head = _move(head, str(status.new), agent, claim_id=claim_id, at=at, rev=rev)
    elif agent is not None:
        if (agent.old or "") != head.agent_id:
            raise _conflict(agent, base, head.agent_id)
        if head.status == WORKING:
            raise NotAllowedError(
                f"{label} is held by {head.agent_id or 'somebody'}; an edit can't give it to "
                f"another agent: `tapstore reset {shell_word(label)}` takes it back"
            )
        head = replace(head, agent_id=agent.new or "")
    # Null and absent say the same in an entry: nothing.  `diff` gives both as None.
    entry = {"reason": was.reason or None, **was.extra}
    entry = copied({name: value for name, value in entry.items() if value is not None})
    for name, change in fields.items():
        old = UNSET if change.old is None else change.old
        new = UNSET if change.new is None else change.new
        _change_value(entry, replace(change, path=(name,), old=old, new=new), base)
    reason = entry.pop("reason", "") or ""
    if "reason" not in fields:
        reason = head.reason
    return state.with_participant(replace(head, reason=reason, extra=entry))


def _move(
    head: Participant, status: str, agent: Change | None, *, claim_id: str, at: str, rev: int
) -> Participant:
    """One participant after an edit of its status (and of its agent id in the same breath)."""
    agent_id = head.agent_id if agent is None else agent.new or ""
    where = f"{head.label} can't go from {head.status} to {status} by an edit"
    if head.status == PENDING:
        # A program that keeps the lock while it works shows only the end of it: pending to
        # completed.  One whose claim was taken back meanwhile leaves the agent id empty.
        if not agent_id:
            raise NotAllowedError(
                f"{where}: nobody holds it (an agent_id is missing); if its claim was reset "
                "meanwhile, claim it again"
            )
        if head.agent_id not in ("", agent_id):
            raise NotAllowedError(
                f"{where}: it is assigned to {head.agent_id!r}; who assigns it anew does so in an "
                "edit before"
            )
        grant = None
        if status == WORKING:
            grant = Grant(
                id=granted_claim(claim_id, head.label), fence=rev, since=at, external=True
            )
        return replace(
            head, status=status, agent_id=agent_id, attempt=head.attempt + 1, reason="", claim=grant
        )
    if head.status == WORKING:
        if head.claim is not None and not head.claim.external:
            reset = f"tapstore reset {shell_word(head.label)}"
            raise NotAllowedError(
                f"{where}: it is held by {head.agent_id} under a claim of tapstore (token "
                f"{head.claim.fence}); only that claim or `{reset}` ends it"
            )
        if agent is not None and agent_id not in ("", head.agent_id):
            raise NotAllowedError(f"{where} for another agent: it is held by {head.agent_id}")
        freed = status == PENDING
        return replace(head, status=status, agent_id="" if freed else agent_id, claim=None)
    if status != PENDING:
        raise NotAllowedError(f"{where}; set it to pending first, or `tapstore reopen`")
    reopened = "" if agent is None else agent_id
    return replace(head, status=PENDING, agent_id=reopened, attempt=0, round=head.round + 1)


def _check_producers(before: Tapfile, after: Tapfile, label: str) -> None:
    """Refuse a completion that brings only artifacts of somebody else.

    A program whose claim was reset, and whose role another one took since, would else end the
    other's work: it looks at the role only.  What it registers gives it away.
    """
    old = next((p for p in before.participants if p.label == label), None)
    new = next(p for p in after.participants if p.label == label)
    if old is None or old.status != WORKING or new.status not in (COMPLETED, FAILED):
        return
    added = {a.producer for a in after.artifacts if a not in before.artifacts} - {""}
    if added and old.agent_id and old.agent_id not in added:
        raise NotAllowedError(
            f"{label} is held by {old.agent_id}, but the edit that ends it registers artifacts of "
            f"{', '.join(sorted(added))}"
        )


def _grant_new_workers(
    before: Tapfile, state: Tapfile, *, claim_id: str, at: str, rev: int
) -> Tapfile:
    known = {p.label for p in before.participants}
    for p in state.participants:
        if p.label not in known and p.status == WORKING:
            grant = Grant(id=granted_claim(claim_id, p.label), fence=rev, since=at, external=True)
            state = state.with_participant(replace(p, attempt=1, claim=grant))
    return state
