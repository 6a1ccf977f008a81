"""The inbox of a session."""

from __future__ import annotations

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError
from tapstore.keys import encode_name
from tapstore.sessions.tapfile import Tapfile
from tapstore.types import CREATE


def notify(store: Store, tapfile: Tapfile, *, claim: str, role: str, agent: str) -> None:
    """Drop one signal file for each consumer of what `role` registered."""
    consumers = {c for a in tapfile.artifacts if a.role == role for c in a.consumer}
    for consumer in consumers:
        name = consumer.removeprefix("role:").removeprefix("agent:")
        try:
            store.put(
                f"inbox/{encode_name(name)}/completed-{encode_name(role)}-{claim}.signal",
                agent.encode(),
                CREATE,
            )
        except AlreadyExistsError:
            continue
