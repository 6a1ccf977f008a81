"""The state of a session as a value: what the Tapfile says.  Pure.

A *document* is the Tapfile as plain dicts, lists and scalars, as `format` parses and renders it
and as `schema` checks it.  A `Tapfile` is the same as frozen values, for the rules in
`operations`.  Fields that tapstore does not know are carried along in `extra` and survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tapstore.artifacts import model as artifact_model
from tapstore.artifacts.model import Artifact
from tapstore.errors import FormatError, InvalidKeyError, NotAllowedError
from tapstore.keys import check_name, encode_name

VERSION = "1.0"
"""The version of the Tapfile format that new sessions get."""

SUPPORTED_MAJOR = 1

PENDING, WORKING, COMPLETED, FAILED = "pending", "working", "completed", "failed"


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who works on a participant's slot.  Everything aimed at a claim names its `id`."""

    id: str
    """Id of the operation that granted it: unique, also across restored backups."""

    fence: int
    """Revision that granted it: rises with each grant of a role; the fencing number."""

    instance: str = ""
    """Random, per claimant: the same agent id started twice differs here."""

    since: str = ""
    """Time of the commit that granted it."""

    ttl_seconds: float = 0
    """Without a heartbeat for this long it counts as stale; 0: the session's default."""

    external: bool = False
    """An edit of the Tapfile by another program went to work; no heartbeat file belongs to it."""

    renewed: bool = False
    """External only: the program has refreshed its own `heartbeat` or `last_activity` since."""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a role.  A role with several claimants has one entry a slot."""

    role: str
    slot: int = 1
    """Position among the entries of the same role, from 1; not stored."""

    agent_id: str = ""
    status: str = PENDING
    last_activity: str | None = None
    heartbeat: str | None = None
    """Copied from the heartbeat file by commits, where watchdogs of other programs look."""

    attempt: int = 0
    """How many claims this round has seen."""

    round: int = 1
    """1, and one more with each `reopen`."""

    reason: str = ""
    """Why it failed, was released, reset or reopened."""

    claim: Grant | None = None
    extra: Mapping[str, Any] = {}

    @property
    def label(self) -> str:
        """`reviewer`, or `reviewer#2` for the second slot."""
        return self.role if self.slot == 1 else f"{self.role}#{self.slot}"


class Stamp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """tapstore's own bookkeeping, under the one key `tapstore:`."""

    rev: int
    write_id: str
    incarnation: str
    at: str
    by: str = ""


class Tapfile(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one session.

    Dicts and lists within `extra` and `metadata` are shared with others who look; copy them before
    changing them.
    """

    session_id: str
    version: str = VERSION
    participants: tuple[Participant, ...] = ()
    current_phase: str = ""
    phases: tuple[str, ...] = ()
    """Declared phases in order; empty: any phase is allowed."""

    artifacts: tuple[Artifact, ...] = ()
    stamp: Stamp | None = None
    extra: Mapping[str, Any] = {}

    def slots(self, role: str) -> tuple[Participant, ...]:
        return tuple(p for p in self.participants if p.role == role)

    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.role for p in self.participants))

    def claimed_by(self, claim_id: str) -> Participant | None:
        """The participant whose present claim has this id."""
        for participant in self.participants:
            if participant.claim is not None and participant.claim.id == claim_id:
                return participant
        return None

    def artifact(self, name: str, phase: str | None = None) -> Artifact | None:
        """The artifact of that name; without a phase the one registered last."""
        for artifact in reversed(self.artifacts):
            if artifact.name == name and phase in (None, artifact.phase):
                return artifact
        return None

    def with_participant(self, changed: Participant) -> Tapfile:
        """The same state with one slot replaced."""
        return msgspec.structs.replace(
            self,
            participants=tuple(
                changed if (p.role, p.slot) == (changed.role, changed.slot) else p
                for p in self.participants
            ),
        )

    def with_phase(self, phase: str) -> Tapfile:
        """The same state in another phase; raises `NotAllowedError` if that is not declared."""
        check_name(phase, "phase")
        if self.phases and phase not in self.phases:
            raise NotAllowedError(
                f"session {self.session_id} has no phase {phase!r}; its phases are, in order: "
                f"{', '.join(self.phases)}"
            )
        return msgspec.structs.replace(self, current_phase=phase)


_SLOT = re.compile("#[0-9]+$")
_PARTICIPANT_FIELDS = frozenset(
    ("role", "agent_id", "status", "last_activity", "heartbeat", "attempt", "round", "reason",
     "claim")
)  # fmt: skip
TAPFILE_FIELDS = frozenset(
    ("version", "session_id", "participants", "current_phase", "phases", "artifacts", "tapstore")
)


def check_role(role: str) -> str:
    """Return `role` if it can be one; raises `InvalidKeyError` with the reason."""
    encode_name(check_name(role, "role"))  # it names a folder of the inbox
    if _SLOT.search(role):
        raise InvalidKeyError(
            f"role {role!r} reads like a slot of another role; let it not end in '#' and a number"
        )
    return role


Known = tuple[Tapfile, Mapping[str, Any]]
"""A state and the document that describes it."""


def from_doc(doc: Mapping[str, Any], *, known: Known | None = None) -> Tapfile:
    """The state that a *checked* document describes.

    Lists that the document has in common with that of `known`, the very same objects, are not
    read again.  Raises `FormatError` only for what a schema cannot say: none today beyond the
    shape of tapstore's own bookkeeping.
    """
    participants = artifacts = None
    if known is not None:
        state, document = known
        if doc.get("participants") is document.get("participants"):
            participants = state.participants
        if doc.get("artifacts") is document.get("artifacts"):
            artifacts = state.artifacts
    try:
        if participants is None:
            participants = tuple(_participants(doc.get("participants") or ()))
        if artifacts is None:
            artifacts = tuple(map(artifact_model.from_doc, doc.get("artifacts") or ()))
        stamp = doc.get("tapstore")
        return Tapfile(
            version=doc["version"],
            session_id=doc["session_id"],
            participants=participants,
            current_phase=doc.get("current_phase") or "",
            phases=tuple(doc.get("phases") or ()),
            artifacts=artifacts,
            stamp=None if stamp is None else msgspec.convert(stamp, Stamp),
            extra={key: value for key, value in doc.items() if key not in TAPFILE_FIELDS},
        )
    except (msgspec.ValidationError, KeyError, TypeError) as exc:
        raise FormatError(f"Tapfile: {exc}") from exc


def _participants(entries: Any) -> Iterator[Participant]:
    seen: dict[str, int] = {}
    for entry in entries:
        role = entry["role"]
        seen[role] = seen.get(role, 0) + 1
        claim = entry.get("claim")
        yield Participant(
            role=role,
            slot=seen[role],
            agent_id=entry.get("agent_id") or "",
            status=entry.get("status") or PENDING,
            last_activity=entry.get("last_activity"),
            heartbeat=entry.get("heartbeat"),
            attempt=entry.get("attempt") or 0,
            round=entry.get("round") or 1,
            reason=entry.get("reason") or "",
            claim=None if claim is None else msgspec.convert(claim, Grant),
            extra={key: value for key, value in entry.items() if key not in _PARTICIPANT_FIELDS},
        )


def to_doc(tapfile: Tapfile, *, known: Known | None = None) -> dict[str, Any]:
    """The document, in its usual order, without empty optional fields.

    Lists that the state has in common with that of `known` are taken from the document there.
    """
    participants = artifacts = None
    if known is not None:
        state, document = known
        if tapfile.participants is state.participants:
            participants = document.get("participants")
        if tapfile.artifacts is state.artifacts:
            artifacts = document.get("artifacts")
    if participants is None:
        participants = [_participant_doc(p) for p in tapfile.participants]
    if artifacts is None:
        artifacts = [artifact_model.to_doc(a) for a in tapfile.artifacts]
    doc: dict[str, Any] = {
        "version": tapfile.version,
        "session_id": tapfile.session_id,
        "participants": participants,
        "current_phase": tapfile.current_phase,
    }
    if tapfile.phases:
        doc["phases"] = list(tapfile.phases)
    doc["artifacts"] = artifacts
    doc.update(tapfile.extra)
    if tapfile.stamp is not None:
        doc["tapstore"] = msgspec.to_builtins(tapfile.stamp)
    return doc


def _participant_doc(participant: Participant) -> dict[str, Any]:
    doc: dict[str, Any] = {
        "role": participant.role,
        "agent_id": participant.agent_id,
        "status": participant.status,
        "last_activity": participant.last_activity,
    }
    if participant.heartbeat is not None:
        doc["heartbeat"] = participant.heartbeat
    if participant.attempt:
        doc["attempt"] = participant.attempt
    if participant.round != 1:
        doc["round"] = participant.round
    if participant.reason:
        doc["reason"] = participant.reason
    doc.update(participant.extra)
    if participant.claim is not None:
        doc["claim"] = msgspec.to_builtins(participant.claim)
    return doc
