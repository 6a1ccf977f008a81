"""What may change in a session, as values, and the rules that decide.  Pure.

`apply(state, operation, at=…, rev=…)` returns the new state or refuses with an error that says
what would have been allowed.  The same function serves commits, replays and simulations.

Everything aimed at a claim names the id of the operation that granted it: a late `Complete` of
somebody who lost the role is refused, and a `Reset` hits only the claim that was judged.
"""

# ruff: noqa: ARG001 - the rules share one signature

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import check_path
from tapstore.clock import format_time
from tapstore.errors import (
    AlreadyClaimedError,
    ClaimLostError,
    ConflictError,
    NotAllowedError,
)
from tapstore.keys import check_name, encode_name, shell_word
from tapstore.tapfile import edits
from tapstore.tapfile.changes import Change
from tapstore.tapfile.model import (
    COMPLETED,
    FAILED,
    PENDING,
    WORKING,
    Grant,
    Participant,
    Tapfile,
)


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op"):
    """Base of all operations."""

    id: str
    """Random and unique; the same for every attempt to commit it."""

    by: str = ""
    """Agent id, or whatever names the person or program that asks for it."""

    reason: str = ""


class Claim(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="claim"):
    """Take a pending slot of a role."""

    role: str
    agent: str
    instance: str
    ttl_seconds: float
    phase: str = ""
    """Set the phase in the same commit; empty: leave it."""

    expected: str | None = None
    """Only in this phase: who looked for work in it may be too late."""

    takeover: bool = False
    """If this very agent id is at work already (started twice), fence that instance off."""


class Heartbeat(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="heartbeat"):
    """Copy times of heartbeats into the participants' entries, by claim id."""

    beats: Mapping[str, str]


class Publish(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="publish"):
    """Register artifacts whose bytes are already stored."""

    artifacts: tuple[Artifact, ...]
    claim: str = ""
    """Claim under which it happens; empty: by somebody outside (an input, say)."""

    role: str = ""
    """Without a claim: the role that it is registered for."""

    overwrite: bool = False
    """Replace what another role registered under the same phase and name."""


class Complete(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="complete"):
    """End a claim successfully: artifacts, status and phase in one."""

    claim: str
    phase: str = ""
    artifacts: tuple[Artifact, ...] = ()
    overwrite: bool = False


class Fail(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="fail"):
    """End a claim as failed; `reason` says why."""

    claim: str
    phase: str = ""


class Release(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="release"):
    """Give a claim back: the slot is pending again and the attempt does not count."""

    claim: str


class Reopen(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="reopen"):
    """Start the next round of a completed or failed slot (`reviewer`, `reviewer#2`)."""

    slot: str
    phase: str = ""


class Reset(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="reset"):
    """Take a working slot back from the claim that was judged.

    It becomes pending, or failed once `max_attempts` claims of this round were used up
    (0: never).
    """

    slot: str
    claim: str
    max_attempts: int = 0


class SetPhase(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="set_phase"):
    """Move the session to a phase."""

    phase: str
    expected: str | None = None
    """Only from this phase."""


class Park(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="park"):
    """Note that an edit was refused and set aside; changes nothing.  `reason` says why."""

    key: str
    """Where it was set aside."""


class Edit(Operation, frozen=True, kw_only=True, omit_defaults=True, tag="edit"):
    """Change fields, as found by comparing two documents or named by a person.

    All of it or nothing.  `external`: made by a program that edits the Tapfile itself.
    """

    changes: tuple[Change, ...]
    base: int = 0
    """Revision that was edited."""

    external: bool = False
    strict: bool = False
    """Only as the revision after `base`: so far its maker knows what was committed."""


AnyOperation = (
    Claim
    | Heartbeat
    | Publish
    | Complete
    | Fail
    | Release
    | Reopen
    | Reset
    | SetPhase
    | Park
    | Edit
)


def apply(state: Tapfile, operation: Operation, *, at: float, rev: int) -> Tapfile:
    """The state after `operation` in the commit number `rev` at the time `at` (epoch seconds).

    Raises `AlreadyClaimedError`, `ClaimLostError`, `NotAllowedError`, `InvalidKeyError` (a name
    or path), or `ConflictError` (an edit of what was changed meanwhile).
    """
    return _RULES[type(operation)](state, operation, at, rev)


# Claims


def _claim(state: Tapfile, op: Claim, at: float, rev: int) -> Tapfile:
    # Its heartbeats could not be written, nor be looked for, under a name too long for a file.
    encode_name(check_name(op.agent, "agent id"))
    if op.expected is not None and op.expected != state.current_phase:
        raise NotAllowedError(
            f"session {state.session_id} is in phase {state.current_phase!r}, not "
            f"{op.expected!r}; {op.role} was not claimed"
        )
    slots = _slots(state, op.role)
    own = next((p for p in slots if p.status == WORKING and p.agent_id == op.agent), None)
    if own is not None:
        if own.claim is None or not op.takeover:
            raise AlreadyClaimedError(
                f"{_says(state, own)} under this very agent id; wait until that instance ends, use "
                "another agent id, or claim with takeover to fence it off"
            )
        slot = own
    else:
        slot = _free_slot(state, op, slots)
    when = format_time(at)
    state = state.with_phase(op.phase) if op.phase else state
    return state.with_participant(
        replace(
            slot,
            agent_id=op.agent,
            status=WORKING,
            last_activity=when,
            heartbeat=when,
            attempt=slot.attempt + 1,
            reason="",
            claim=Grant(
                id=op.id, fence=rev, instance=op.instance, since=when, ttl_seconds=op.ttl_seconds
            ),
        )
    )


def _free_slot(state: Tapfile, op: Claim, slots: tuple[Participant, ...]) -> Participant:
    pending = [p for p in slots if p.status == PENDING]
    for participant in pending:
        if participant.agent_id in ("", op.agent):
            return participant
    if pending:
        reserved = ", ".join(repr(p.agent_id) for p in pending)
        label = f'"{pending[0].label}"' if "." in op.role else pending[0].label
        clearing = shell_word(f"participants.{label}.agent_id=")
        raise NotAllowedError(
            f"role {op.role!r} of session {state.session_id} is assigned to {reserved}; claim it "
            f"as that agent, or clear the assignment: `tapstore edit --set {clearing}`"
        )
    working = [p for p in slots if p.status == WORKING]
    if working:
        said = "; ".join(_says(state, p) for p in working)
        label = shell_word(working[0].label)
        raise AlreadyClaimedError(f"{said}; wait, or `tapstore reset {label}`")
    statuses = ", ".join(f"{p.label} is {p.status}" for p in slots)
    raise NotAllowedError(
        f"nothing to claim in session {state.session_id}: {statuses}; "
        f"`tapstore reopen {shell_word(op.role)}` starts another round"
    )


def _slots(state: Tapfile, role: str) -> tuple[Participant, ...]:
    slots = state.slots(role)
    if not slots:
        raise NotAllowedError(
            f"session {state.session_id} has no role {role!r}; its roles are "
            f"{', '.join(state.roles()) or '(none)'}"
        )
    return slots


def find_slot(state: Tapfile, label: str) -> Participant:
    """The slot of that label; raises `NotAllowedError` that lists the labels there are."""
    for participant in state.participants:
        if participant.label == label:
            return participant
    labels = ", ".join(p.label for p in state.participants) or "(none)"
    raise NotAllowedError(f"session {state.session_id} has no {label!r}; there are {labels}")


def _says(state: Tapfile, p: Participant) -> str:
    token = "" if p.claim is None else f", token {p.claim.fence}"
    since = p.claim.since if p.claim is not None and p.claim.since else p.last_activity
    return (
        f"role {p.label!r} of session {state.session_id} is claimed by {p.agent_id or 'somebody'} "
        f"(since {since}{token})"
    )


def _held(state: Tapfile, claim: str) -> Participant:
    participant = state.claimed_by(claim)
    if participant is None:
        raise ClaimLostError(
            f"claim {claim} in session {state.session_id} has ended: it was completed, released, "
            "reset by the watchdog, or taken over; `tapstore log` tells which. Nothing of this "
            "call was applied; stop working on it"
        )
    return participant


def _heartbeat(state: Tapfile, op: Heartbeat, at: float, rev: int) -> Tapfile:
    for claim, beat in op.beats.items():
        participant = state.claimed_by(claim)
        if participant is not None and beat > (participant.heartbeat or ""):
            state = state.with_participant(replace(participant, heartbeat=beat))
    return state


def _ended(participant: Participant, status: str, at: float, reason: str) -> Participant:
    return replace(
        participant, status=status, last_activity=format_time(at), reason=reason, claim=None
    )


def _complete(state: Tapfile, op: Complete, at: float, rev: int) -> Tapfile:
    held = _held(state, op.claim)
    state = _register(state, op.artifacts, held.role, op.overwrite)
    state = state.with_phase(op.phase) if op.phase else state
    return state.with_participant(_ended(held, COMPLETED, at, op.reason))


def _fail(state: Tapfile, op: Fail, at: float, rev: int) -> Tapfile:
    held = _held(state, op.claim)
    state = state.with_phase(op.phase) if op.phase else state
    return state.with_participant(_ended(held, FAILED, at, op.reason))


def _freed(participant: Participant, at: float, reason: str) -> Participant:
    return replace(
        participant,
        status=PENDING,
        agent_id="",
        last_activity=format_time(at),
        heartbeat=None,
        reason=reason,
        claim=None,
    )


def _release(state: Tapfile, op: Release, at: float, rev: int) -> Tapfile:
    held = _held(state, op.claim)
    freed = _freed(held, at, op.reason)
    return state.with_participant(replace(freed, attempt=max(0, held.attempt - 1)))


def _reopen(state: Tapfile, op: Reopen, at: float, rev: int) -> Tapfile:
    slot = find_slot(state, op.slot)
    if slot.status not in (COMPLETED, FAILED):
        back = f" (`tapstore reset {shell_word(slot.label)}` takes it back)"
        raise NotAllowedError(
            f"{slot.label} of session {state.session_id} is {slot.status}; only a completed or "
            f"failed one can be reopened{back if slot.status == WORKING else ''}"
        )
    state = state.with_phase(op.phase) if op.phase else state
    freed = _freed(slot, at, op.reason)
    return state.with_participant(replace(freed, attempt=0, round=slot.round + 1))


def _reset(state: Tapfile, op: Reset, at: float, rev: int) -> Tapfile:
    slot = find_slot(state, op.slot)
    if slot.status != WORKING:
        raise NotAllowedError(
            f"{slot.label} of session {state.session_id} is {slot.status}, not working: there is "
            "nothing to reset"
        )
    claim = "" if slot.claim is None else slot.claim.id
    if claim != op.claim:
        raise ClaimLostError(
            f"{_says(state, slot)} by now, under another claim than the one to be reset; look again"
        )
    if op.max_attempts and slot.attempt >= op.max_attempts:
        reason = f"{op.reason} (attempt {slot.attempt} of {op.max_attempts}, the last)"
        return state.with_participant(_ended(slot, FAILED, at, reason))
    return state.with_participant(_freed(slot, at, op.reason))


# Phases and artifacts


def _move_phase(state: Tapfile, op: SetPhase, at: float, rev: int) -> Tapfile:
    if op.expected is not None and op.expected != state.current_phase:
        raise NotAllowedError(
            f"session {state.session_id} is in phase {state.current_phase!r}, not "
            f"{op.expected!r}; the phase was left as it is"
        )
    return state.with_phase(op.phase)


def _publish(state: Tapfile, op: Publish, at: float, rev: int) -> Tapfile:
    role = op.role
    if role and role not in state.roles():
        raise NotAllowedError(f"session {state.session_id} has no role {role!r}")
    if op.claim:
        held = _held(state, op.claim)
        role = held.role
        state = state.with_participant(replace(held, last_activity=format_time(at)))
    return _register(state, op.artifacts, role, op.overwrite)


def _register(
    state: Tapfile, artifacts: tuple[Artifact, ...], role: str, overwrite: bool
) -> Tapfile:
    registered = {a.identity: a for a in state.artifacts}
    for artifact in artifacts:
        _check_consumers(state, artifact)
        before = registered.pop(artifact.identity, None)
        same = before is not None and before.checksum == artifact.checksum
        if before is not None and not (same or overwrite or (role and before.role == role)):
            raise NotAllowedError(
                f"artifact {artifact.name!r} of phase {artifact.phase!r} was registered by "
                f"{before.producer or 'somebody else'} ({before.path}); publish under another "
                "name or phase, or with overwrite"
            )
        if not artifact.is_external:
            check_path(artifact.path, registered=(a.path for a in registered.values()))
        # The one registered last stands last: a name without a phase means that one.
        registered[artifact.identity] = replace(artifact, role=role or artifact.role)
    return replace(state, artifacts=tuple(registered.values()))


def _check_consumers(state: Tapfile, artifact: Artifact) -> None:
    agents = {p.agent_id for p in state.participants if p.agent_id}
    for consumer in artifact.consumer:
        check_name(consumer, f"consumer of {artifact.name!r}")
        if consumer in agents and consumer in state.roles():
            raise NotAllowedError(
                f"consumer {consumer!r} of artifact {artifact.name!r} is the name of a role and of "
                f"an agent; write 'role:{consumer}' or 'agent:{consumer}'"
            )


def consumes(artifact: Artifact, *, role: str, agent: str = "") -> bool:
    """Whether the artifact names this role or agent as a consumer."""
    names = {role, f"role:{role}"} | ({agent, f"agent:{agent}"} if agent else set())
    return not names.isdisjoint(artifact.consumer)


# Edits


def _edit(state: Tapfile, op: Edit, at: float, rev: int) -> Tapfile:
    if op.strict and rev != op.base + 1:
        raise ConflictError(
            f"others have committed since revision {op.base} of session {state.session_id} was "
            "read; nothing was changed, read it again"
        )
    return edits.apply_changes(
        state, op.changes, base=op.base, claim_id=op.id, at=format_time(at), rev=rev
    )


def _park(state: Tapfile, op: Park, at: float, rev: int) -> Tapfile:
    return state


_RULES: dict[type[Operation], Callable[[Tapfile, Any, float, int], Tapfile]] = {
    Claim: _claim,
    Heartbeat: _heartbeat,
    Publish: _publish,
    Complete: _complete,
    Fail: _fail,
    Release: _release,
    Reopen: _reopen,
    Reset: _reset,
    SetPhase: _move_phase,
    Park: _park,
    Edit: _edit,
}
