"""Keys and records of leases in Redis.  Pure.

All keys of one session carry its scope as a hash tag, so a cluster keeps them on one node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapstore.types import Holder, Owner

MAX_TTL_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of what one session keeps in Redis."""

    scope: str

    def of(self, name: str) -> list[str]:
        """What the scripts call KEYS: the record of a lease, and what belongs to it."""
        return [self.record(name), self.held, *self._queue(name)]

    def record(self, name: str) -> str:
        """A hash that is never deleted: the fencing number lives in it."""
        return f"{self._begin}:lock:{name}"

    @property
    def held(self) -> str:
        """The set of the names that somebody holds."""
        return f"{self._begin}:held"

    def _queue(self, name: str) -> list[str]:
        """Who waits by its turn, and until when each counts as alive."""
        return [f"{self._begin}:queue:{name}", f"{self._begin}:alive:{name}"]

    @property
    def wake(self) -> str:
        """Followed by a waiter's id: the channel on which it is called."""
        return f"{self._begin}:wake:"

    @property
    def changed(self) -> str:
        """The channel for those who watch the session."""
        return f"{self._begin}:changed"

    @property
    def _begin(self) -> str:
        return f"tapstore:{{{self.scope}}}"


def text(value: str) -> bytes:
    """For Redis; what no UTF-8 can say is escaped."""
    return value.encode("utf-8", "backslashreplace")


def strings(values: Sequence[Any]) -> list[str]:
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]


def record(flat: Sequence[Any]) -> dict[str, str]:
    """The fields of a hash, as scripts return it; empty if there is none."""
    values = strings(flat)
    return dict(zip(values[::2], values[1::2], strict=True))


def holder(name: str, fields: Mapping[str, str]) -> Holder:
    """Who holds it by this record, or was the last to."""
    pid = fields.get("pid", "")
    return Holder(
        name=name,
        generation=int(fields["generation"]),
        owner=Owner(
            agent=fields.get("agent", "?"),
            instance=fields.get("instance", ""),
            host=fields.get("host", ""),
            pid=int(pid) if pid.isdigit() else 0,
        ),
        ttl_seconds=seconds(fields["ttl"]),
        since=seconds(fields["since"]),
        beat=seconds(fields["beat"]),
        reason=fields.get("reason", ""),
    )


def owner_fields(owner: Owner, reason: str) -> list[bytes]:
    pairs = {
        "agent": owner.agent,
        "instance": owner.instance,
        "host": owner.host,
        "pid": str(owner.pid),
        "reason": reason,
    }
    return [part for name, value in pairs.items() for part in (text(name), text(value))]


def microseconds(value: float) -> int:
    return math.ceil(value * 1_000_000)


def seconds(microseconds: str) -> float:
    return float(microseconds) / 1_000_000


def check_ttl(ttl: float) -> float:
    if not (math.isfinite(ttl) and 0 < ttl <= MAX_TTL_SECONDS):
        raise ValueError(
            f"ttl must be more than 0 and at most {MAX_TTL_SECONDS:.0f} seconds, not {ttl!r}"
        )
    return ttl


def check_wait(wait: float | None) -> float | None:
    if wait is not None and not (math.isfinite(wait) and wait >= 0):
        raise ValueError(f"wait must be None (for ever) or 0 or more seconds, not {wait!r}")
    return wait
