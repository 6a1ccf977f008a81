"""What `--json` says of slots and artifacts: the same keys in every command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tapstore.artifacts import model
from tapstore.artifacts.model import Artifact
from tapstore.cli import console
from tapstore.tapfile.model import Participant


def slot_value(participant: Participant) -> dict[str, Any]:
    """One slot; every key is always there."""
    claim = participant.claim
    return {
        "slot": participant.label,
        "role": participant.role,
        "status": participant.status,
        "agent": participant.agent_id or None,
        "claim": None if claim is None else claim.id,
        "token": None if claim is None else claim.fence,
        "since": None if claim is None else claim.since or None,
        "ttl_seconds": None if claim is None else claim.ttl_seconds or None,
        "last_activity": participant.last_activity,
        "heartbeat": participant.heartbeat,
        "attempt": participant.attempt,
        "round": participant.round,
        "reason": participant.reason or None,
    }


def artifact_value(artifact: Artifact) -> dict[str, Any]:
    """One artifact, as it stands in the Tapfile."""
    return model.to_doc(artifact)


def artifact_table(artifacts: Iterable[Artifact]) -> list[str]:
    """One line an artifact, for people."""
    return console.table(
        ("phase", "name", "type", "size", "from", "for", "path"),
        [
            (
                a.phase or "-",
                a.name,
                a.type or "-",
                console.size(a.size),
                a.producer or "-",
                ", ".join(a.consumer) or "-",
                a.path,
            )
            for a in artifacts
        ],
    )
