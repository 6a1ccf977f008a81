"""What a commit means, as events: for `watch`, for alarms, and as a time line for people.

Each commit has at least one event.  Operations of later versions show as `other`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tapstore.artifacts import model
from tapstore.artifacts.model import Artifact
from tapstore.cli import console
from tapstore.record import Head
from tapstore.sessions import history
from tapstore.sessions.history import Move
from tapstore.tapfile.model import COMPLETED, FAILED, WORKING

TYPES = (
    "created", "claimed", "completed", "failed", "released", "reset", "reopened", "phase",
    "published", "edited", "parked", "other",
)  # fmt: skip
"""All kinds of events."""


def events(head: Head) -> list[dict[str, Any]]:
    """The events of one commit, in order.  Raises `FormatError` if the record is damaged."""
    entry = history.log_entry(head)
    common = {"rev": entry.rev, "at": entry.at, "by": entry.by, "reason": entry.reason}
    operations: list[Mapping[str, Any]] = head.record.entry.get("operations", [])
    found: list[dict[str, Any]] = []
    if entry.rev == 1:
        found.append({"event": "created", "reason": ""})
    for operation in operations:
        found += _of_operation(operation)
    found += [_of_move(move, entry.operations) for move in entry.moves]
    if entry.phase is not None:
        found.append({"event": "phase", "old": entry.phase[0], "new": entry.phase[1]})
    if not found:
        found.append({"event": "other", "operations": list(entry.operations)})
    return [{"event": event.pop("event"), **common, **event} for event in found]


def _of_operation(operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if operation["op"] in ("publish", "complete"):
        for artifact in operation.get("artifacts", ()):
            artifact = model.to_doc(msgspec.convert(artifact, Artifact))
            yield {"event": "published", "artifact": artifact}
    elif operation["op"] == "edit":
        changes = operation.get("changes", ())
        yield {"event": "edited", "changes": [".".join(c["path"]) for c in changes]}
    elif operation["op"] == "park":
        yield {"event": "parked", "key": operation["key"]}


def _of_move(move: Move, operations: tuple[str, ...]) -> dict[str, Any]:
    if move.new == WORKING:
        kind = "claimed"
    elif move.new in (COMPLETED, FAILED):
        kind = move.new
    elif move.old == WORKING:
        kind = "reset" if "reset" in operations else "released"
    else:
        kind = "reopened" if move.old in (COMPLETED, FAILED) else "edited"
    return {
        "event": kind,
        "slot": move.participant,
        "old": move.old,
        "new": move.new,
        "agent": move.agent,
        "claim": move.claim,
    }


def describe(event: Mapping[str, Any]) -> str:
    """What was done, for people; who did it stands before it."""
    kind = event["event"]
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map({**event, "agent": event.get("agent") or "somebody"})
    if kind == "published":
        return _published(event["artifact"])
    if kind == "phase":
        return f"phase {event['old'] or '(none)'} -> {event['new'] or '(none)'}"
    if kind == "edited":
        return f"edited {', '.join(event.get('changes') or [event['slot']])}"
    return ", ".join(event.get("operations", ())) or "changed nothing"


_SENTENCES = {
    "created": "created the session",
    "claimed": "claimed {slot}",
    "completed": "completed {slot}",
    "failed": "failed {slot}",
    "released": "released {slot}",
    "reset": "took {slot} back from {agent}",
    "reopened": "reopened {slot}",
    "parked": "refused, and set aside in {key}",
}


def _published(artifact: Mapping[str, Any]) -> str:
    name = "/".join(filter(None, (artifact["phase"], artifact["name"])))
    consumers = ", ".join(artifact["consumer"])
    whom = f" for {consumers}" if consumers else ""
    return f"published {name} ({console.size(artifact.get('size'))}){whom}"


def line(found: list[dict[str, Any]]) -> str:
    """One commit on one line, for people: number, time, who, what, why."""
    first = found[0]
    at = f"{first['at'][:19]}Z".replace("T", " ")
    what = "; ".join(map(describe, found))
    reason = f" ({first['reason']})" if first["reason"] else ""
    return f"{first['rev']:>5}  {at}  {first['by'] or 'somebody'}: {what}{reason}"
