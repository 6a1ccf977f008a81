"""`tapstore status`: who does what, since when, and what waits for whom.

Changes nothing but what every look at a session does (it imports an edit of the Tapfile).  Where
this process may not write, heartbeats are not judged, because there is no common clock to see.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import console, lockfile
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.views import artifact_table, artifact_value, slot_value
from tapstore.clock import parse_time
from tapstore.errors import StoreError
from tapstore.keys import mask_url, shell_word
from tapstore.sessions import config as configs
from tapstore.sessions.heartbeats import Health, Judgement
from tapstore.tapfile.model import COMPLETED, FAILED, PENDING, WORKING, Participant, Tapfile
from tapstore.tapfile.operations import consumes
from tapstore.tasks.inbox import Inbox
from tapstore.tasks.standing import Seen, Standing, for_nobody

if TYPE_CHECKING:
    from tapstore.sessions.session import Session

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@click.command()
@common_options
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show who does what, since when, and what waits for whom."""
    session = invocation.open()
    snapshot = session.state.refresh()
    tapfile = snapshot.tapfile
    judged, now = _judge(session)
    lock = None if now is None else lockfile.look(session)
    tasks = {role: _tasks(session, role) for role in tapfile.roles()}
    slots = [
        _slot(session, tapfile, p, judged.get(p.label), tasks[p.role]) for p in tapfile.participants
    ]
    value = {
        "session_id": session.id,
        "url": mask_url(session.url),
        "revision": snapshot.rev,
        "at": snapshot.document["tapstore"]["at"],
        "by": snapshot.document["tapstore"].get("by", ""),
        "phase": tapfile.current_phase,
        "phases": list(tapfile.phases),
        "slots": slots,
        "artifacts": [artifact_value(a) for a in tapfile.artifacts],
        "artifacts_place": mask_url(session.config.artifacts) or None,
        "artifacts_above_bytes": session.config.artifacts_above_bytes,
        "signals": session.signals(),
        "parked": [
            f"{configs.CONFLICTS_PREFIX}/{name}"
            for name in session.store.children(f"{configs.CONFLICTS_PREFIX}/")
        ],
        "tapfile_lock": lockfile.value(lock),
    }
    if invocation.as_json:
        console.emit(value)
    else:
        lines = _lines(session, tapfile, value, now or snapshot.at)
        for _, seen in for_nobody(session.store, tapfile):
            lines.append(f"nobody reads {seen.key}: {seen.reason}")
        if lock is not None and lockfile.advice(lock):
            lines += ["", lockfile.line(lock), lockfile.advice(lock)]
        console.say(*lines)


def _judge(session: Session) -> tuple[dict[str, Judgement], float | None]:
    """How alive the working slots are, and the time; nothing and None where we may not write."""
    try:
        judged = {j.participant.label: j for j in session.judge()}
        return judged, session.store.now()
    except StoreError as exc:
        if exc.errno not in _READ_ONLY:
            raise
        return {}, None


def _slot(
    session: Session,
    tapfile: Tapfile,
    participant: Participant,
    judgement: Judgement | None,
    tasks: list[Seen],
) -> dict[str, Any]:
    inputs = [
        a
        for a in tapfile.artifacts
        if consumes(a, role=participant.role, agent=participant.agent_id)
    ]
    return {
        **slot_value(participant),
        "max_attempts": session.config.max_attempts or None,
        "health": None if judgement is None else judgement.health.value,
        "heartbeat_age_seconds": None if judgement is None else round(judgement.age_seconds, 1),
        "inputs": [{"phase": a.phase, "name": a.name} for a in inputs],
        "tasks": [
            {
                "key": seen.key,
                "task_id": None if seen.task is None else seen.task.id,
                "standing": seen.standing.value,
            }
            for seen in tasks
        ],
    }


def _tasks(session: Session, role: str) -> list[Seen]:
    try:
        return Inbox(session.state, role).look()
    except StoreError as exc:
        if exc.errno not in _READ_ONLY:
            raise
        return []


# For people


def _lines(session: Session, tapfile: Tapfile, value: dict[str, Any], now: float) -> list[str]:
    by = f" by {value['by']}" if value["by"] else ""
    lines = [
        f"session {session.id} at {value['url']}",
        f"{_phase(tapfile)}, revision {value['revision']}, "
        f"{console.span(now - parse_time(value['at']))} ago{by}",
        "",
        *_table(tapfile, value["slots"], now),
    ]
    if tapfile.artifacts:
        lines += ["", *artifact_table(tapfile.artifacts)]
    notes = _notes(value)
    return [*lines, *([""] if notes else []), *notes]


def _phase(tapfile: Tapfile) -> str:
    phase = f"phase {tapfile.current_phase}" if tapfile.current_phase else "no phase"
    if tapfile.phases:
        number = tapfile.phases.index(tapfile.current_phase) + 1
        return f"{phase} ({number} of {len(tapfile.phases)}: {', '.join(tapfile.phases)})"
    return phase


def _table(tapfile: Tapfile, slots: list[dict[str, Any]], now: float) -> list[str]:
    if not slots:
        return ["no roles; `tapstore edit --append participants=…` adds one"]
    rows = []
    for slot in slots:
        age, limit = slot["heartbeat_age_seconds"], slot["max_attempts"]
        since = slot["since"] if slot["status"] == WORKING else slot["last_activity"]
        rows.append(
            (
                slot["slot"],
                slot["status"],
                slot["agent"] or "-",
                f"{console.span(now - parse_time(since))} ago" if since else "-",
                "-" if age is None else f"{console.span(age)} ago",
                str(slot["token"] or "-"),
                f"{slot['attempt']} of {limit}" if limit else str(slot["attempt"]),
                _remark(tapfile, slot),
            )
        )
    return console.table(
        ("role", "status", "agent", "since", "heartbeat", "token", "attempt", ""), rows
    )


def _remark(tapfile: Tapfile, slot: dict[str, Any]) -> str:
    """What it waits for, or what is wrong with it and what helps."""
    label, reason = shell_word(slot["slot"]), slot["reason"]
    because = f": {reason}" if reason else ""
    count = _waiting(slot)
    if slot["status"] == COMPLETED and count:
        return f"{_tasks_in_inbox(count)}; `tapstore reopen {label}` starts another round"
    if slot["status"] == FAILED:
        return f"`tapstore reopen {label}` starts another round{because}"
    if slot["status"] == PENDING:
        return "; ".join(filter(None, [_waits_for(tapfile, slot), reason]))
    if slot["health"] == Health.STALE.value:
        return f"stale: whoever looks for work takes it back, or `tapstore reset {label}`"
    if slot["health"] == Health.UNJUDGED.value:
        return "no heartbeats: never taken back by itself"
    return reason or ""


def _waiting(slot: dict[str, Any]) -> int:
    return [task["standing"] for task in slot["tasks"]].count(Standing.WAITING.value)


def _tasks_in_inbox(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'} in its inbox"


def _waits_for(tapfile: Tapfile, slot: dict[str, Any]) -> str:
    ready = []
    count = _waiting(slot)
    if count:
        ready.append(_tasks_in_inbox(count))
    if slot["inputs"]:
        ready.append("for it: " + ", ".join(a["name"] for a in slot["inputs"]))
    if ready:
        return f"waits for an agent; {', '.join(ready)}"
    working = ", ".join(p.label for p in tapfile.participants if p.status == WORKING)
    return "no task or artifact for it yet" + (f"; at work: {working}" if working else "")


def _notes(value: dict[str, Any]) -> list[str]:
    notes = []
    if place := value["artifacts_place"]:
        above = value["artifacts_above_bytes"]
        which = "new artifacts" if above is None else f"new artifacts of more than {above} bytes"
        notes.append(f"{which} go to {place}")
    if value["signals"]:
        notes.append(f"signals given: {', '.join(value['signals'])}")
    notes += [_parked(key) for key in value["parked"]]
    return notes


def _parked(key: str) -> str:
    name = shell_word(key.rpartition("/")[2])
    return (
        f"an edit of the Tapfile was refused and set aside: {key} says why; once it is made again "
        f"(`tapstore edit`) or not wanted: `tapstore gc --parked {name} --yes`"
    )
