"""Signal files: `complete` tells the consumers of what was published, in their inboxes.

A notice wakes an agent sooner; nothing rests on it, and one that is missing is missed by nobody
who looks at the session.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tapstore.abc import Store
from tapstore.artifacts import model as artifact_model
from tapstore.errors import AlreadyExistsError
from tapstore.keys import encode_name
from tapstore.sessions.config import INBOX
from tapstore.tapfile.model import Tapfile
from tapstore.types import CREATE


def inbox_folder(name: str) -> str:
    """Where tasks for a role, and signals for a role or agent, are dropped: `inbox/coder`."""
    return f"{INBOX}/{encode_name(name)}"


def notify(store: Store, tapfile: Tapfile, *, claim: str, role: str, agent: str) -> None:
    """Tell the consumers of what a role registered that the claim has completed.

    One file a consumer, created once whoever repeats it; it does not end in `.json`, because
    other programs take every such file for a task.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for artifact in tapfile.artifacts:
        if artifact.role == role:
            for consumer in artifact.consumer:
                name = consumer.removeprefix("role:").removeprefix("agent:")
                found.setdefault(name, []).append(artifact_model.to_doc(artifact))
    for consumer, artifacts in found.items():
        signal = {
            "event": "completed",
            "session_id": tapfile.session_id,
            "role": role,
            "agent": agent,
            "claim": claim,
            "artifacts": artifacts,
        }
        key = f"{inbox_folder(consumer)}/completed-{encode_name(role)}-{encode_name(claim)}.signal"
        try:
            store.put(key, msgspec.json.format(msgspec.json.encode(signal)), CREATE)
        except AlreadyExistsError:
            continue
