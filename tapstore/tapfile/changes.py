"""What changed between two documents, as values.  Pure.

`diff` finds what an edit changed against the document that was edited; the order of entries and
keys is no change.  Whether a change may be made is decided in `edits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tapstore.artifacts import model as artifact_model
from tapstore.errors import ConflictError
from tapstore.tapfile.values import copied, same

OWN_ENTRY_FIELDS = frozenset(("claim", "attempt", "round"))
"""Of participants: kept by tapstore, and of no meaning in an edit."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two documents.

    `path` addresses entries by what they are: `("participants", "reviewer#2", "status")`,
    `("artifacts", phase, name)`, `("anything", "else")`.
    """

    path: tuple[str, ...]
    old: Any | UnsetType = UNSET
    new: Any | UnsetType = UNSET
    """Not set: removed."""

    append: tuple[Any, ...] = ()
    """Items added at the end of a list; then `old` and `new` are not set."""

    claim: str = ""
    """Of a participant: the claim that the edited revision showed."""

    @property
    def place(self) -> str:
        return ".".join(self.path)


# Finding what changed


def diff(base: Mapping[str, Any], edited: Mapping[str, Any]) -> tuple[Change, ...]:
    """What `edited` changes, compared with `base`.  The order of entries and keys is no change."""
    changes: list[Change] = []
    rest_base, rest_edited = dict(base), dict(edited)
    for doc in (rest_base, rest_edited):
        doc.pop("tapstore", None)
    changes += _participant_changes(
        rest_base.pop("participants", None) or [], rest_edited.pop("participants", None) or []
    )
    changes += _artifact_changes(
        rest_base.pop("artifacts", None) or [], rest_edited.pop("artifacts", None) or []
    )
    changes += _value_changes((), rest_base, rest_edited)
    return tuple(changes)


def labelled(entries: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The entries of participants by their labels: `reviewer`, `reviewer#2`."""
    seen: dict[str, int] = {}
    found = {}
    for entry in entries:
        role = entry["role"]
        seen[role] = seen.get(role, 0) + 1
        found[role if seen[role] == 1 else f"{role}#{seen[role]}"] = entry
    return found


def _participant_changes(
    base: Sequence[Mapping[str, Any]], edited: Sequence[Mapping[str, Any]]
) -> Iterator[Change]:
    if same(base, edited):
        return
    old_entries, new_entries = labelled(base), labelled(edited)
    for label in old_entries.keys() - new_entries.keys():
        yield Change(("participants", label), old=old_entries[label])
    for label, entry in new_entries.items():
        before = old_entries.get(label)
        if before is None:
            yield Change(("participants", label), new=entry)
            continue
        claim = (before.get("claim") or {}).get("id", "")
        for field in {**before, **entry}:
            old, new = before.get(field), entry.get(field)
            # A program that rebuilds the entries from fields it knows drops ours: no edit.
            if not equal(old, new) and not (field in OWN_ENTRY_FIELDS and new is None):
                yield Change(("participants", label, field), old=old, new=new, claim=claim)


def _artifact_changes(
    base: Sequence[Mapping[str, Any]], edited: Sequence[Mapping[str, Any]]
) -> Iterator[Change]:
    if same(base, edited):
        return

    def keyed(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        artifacts = map(artifact_model.from_doc, entries)
        return {a.identity: artifact_model.to_doc(a) for a in artifacts}

    old_entries, new_entries = keyed(base), keyed(edited)
    for identity in old_entries.keys() - new_entries.keys():
        yield Change(("artifacts", *identity), old=old_entries[identity])
    for identity, entry in new_entries.items():
        before = old_entries.get(identity, UNSET)
        if not equal(before, entry):
            yield Change(("artifacts", *identity), old=before, new=entry)


def _value_changes(
    path: tuple[str, ...], base: Mapping[str, Any], edited: Mapping[str, Any]
) -> Iterator[Change]:
    for key in base.keys() - edited.keys():
        yield Change((*path, key), old=base[key])
    for key, new in edited.items():
        old = base.get(key, UNSET)
        if old is new:
            continue
        if old is UNSET:
            yield Change((*path, key), new=new)
        elif not equal(old, new):
            yield from _value_change((*path, key), old, new)


def _value_change(path: tuple[str, ...], old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _value_changes(path, old, new)
    elif isinstance(old, list) and isinstance(new, list) and old and equal(new[: len(old)], old):
        yield Change(path, append=tuple(new[len(old) :]))
    else:
        yield Change(path, old=old, new=new)


def equal(one: Any, other: Any) -> bool:
    """Whether two values of documents are the same.

    Unlike in Python `true` is not 1.  But 60.0 is 60: programs in other languages have one kind
    of number only, and writing it back is no edit.
    """
    if one != other or same(one, other):
        return bool(one == other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


# Finding the document that was edited


def value_at(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What the document has at the path of a change; `UNSET` if there is nothing."""
    kind, *rest = path
    value: Any = document
    if kind == "participants":
        value = labelled(document.get("participants") or []).get(rest.pop(0), UNSET)
    elif kind == "artifacts":
        entries = map(artifact_model.from_doc, document.get("artifacts") or [])
        return next((artifact_model.to_doc(a) for a in entries if a.identity == tuple(rest)), UNSET)
    else:
        rest = list(path)
    for step in rest:
        value = value.get(step, UNSET) if isinstance(value, dict) else UNSET
    return value


def edited_document(base: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """The document that `diff` compared with `base` when it found these changes.

    Raises `ConflictError` if they were found in comparison with another one.
    """
    document: dict[str, Any] = copied(dict(base))
    for change in changes:
        try:
            _make(change, document)
        except (AttributeError, LookupError, TypeError) as exc:
            raise ConflictError(f"{change.place} is not what was changed") from exc
    return document


def _make(change: Change, document: dict[str, Any]) -> None:
    kind = change.path[0]
    if kind == "participants" and len(change.path) == 2:
        document["participants"].append(copied(change.new))
    elif kind == "artifacts":
        document["artifacts"] = [
            entry
            for entry in document["artifacts"]
            if artifact_model.from_doc(entry).identity != change.path[1:]
        ] + [copied(change.new)]
    else:
        *parents, key = change.path
        parent: Any = document
        if kind == "participants":
            parent = labelled(document["participants"])[change.path[1]]
            parents = []
        for step in parents:
            parent = parent.setdefault(step, {})
        if change.append:
            parent[key] = [*parent[key], *change.append]
        elif change.new is UNSET:
            parent.pop(key, None)
        else:
            parent[key] = copied(change.new)


def granted_claim(edit_id: str, label: str) -> str:
    """Id of the claim under which an edit put this participant to work."""
    return f"{edit_id}.{label}"


def with_claims(
    edited: Mapping[str, Any], changes: Sequence[Change], edit_id: str
) -> dict[str, Any]:
    """The edited document with the claims that its import granted and ended.

    The program that wrote it did not see them, but what it does next is done under them.
    """
    document: dict[str, Any] = copied(dict(edited))
    entries = labelled(document["participants"])
    for change in changes:
        if change.path[0] == "participants" and change.path[2:] in ((), ("status",)):
            label = change.path[1]
            entry: Any = entries[label]
            entry.pop("claim", None)
            if entry.get("status") == "working":
                entry["claim"] = {"id": granted_claim(edit_id, label)}
    return document


def follows(
    document: Mapping[str, Any],
    base: Mapping[str, Any],
    edited: Mapping[str, Any],
    changes: Sequence[Change],
) -> bool:
    """Whether `document` was made from `edited`, which has these changes, and not from `base`.

    Both may have been changed since.  It was made from `edited` if some change of it is still
    there, none is undone, and each list of it was at most added to.  Raises `ConflictError` if
    some are still there and others are not: it could be either.
    """
    there: list[str] = []
    undone: list[str] = []
    for change in changes:
        before, after, now = (value_at(d, change.path) for d in (base, edited, document))
        if same(now, after):
            there.append(change.place)
        elif isinstance(after, list):
            added = isinstance(now, list) and same(now[: len(after)], after)
            (there if added else undone).append(change.place)
        elif same(now, before):
            undone.append(change.place)
    if there and undone:
        # Taken for made from `base`, what is still there would be applied again.
        raise ConflictError(
            f"an edit of the same revision changed {there[0]} and {undone[0]} and was applied; "
            "this one has the former change, but not the latter, so whether it undoes that or "
            "knew nothing of it can't be told"
        )
    return bool(there)
