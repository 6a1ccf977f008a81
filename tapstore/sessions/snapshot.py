"""One revision of a session, as it was committed.  A value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapstore.record import Head
from tapstore.tapfile.model import Tapfile


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One committed revision."""

    head: Head
    tapfile: Tapfile
    document: dict[str, Any]
    """Shared; never changed in place."""

    content: bytes
    """The document as it is kept: JSON."""

    at: float
    """Time of the commit, seconds since the epoch in the store's clock."""

    @property
    def rev(self) -> int:
        return self.head.n
