"""What a benchmark asks of one way to share a document: read it, count up in it, write it.

The document has about 2 kB, whoever writes it and however many do, and looks like a session of
the original Tapfile protocol.  Each worker counts its own commits in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROLES = ("coder", "reviewer")
PHASE = "coding_in_progress"
ARTIFACTS = 5
WORKERS = tuple(f"w{number:02d}" for number in range(32))


class Way(ABC):
    """One way to commit.  Made anew in each process; the directory is what they share."""

    def __init__(self, *, fsync: bool) -> None:
        self.fsync = fsync

    @abstractmethod
    def create(self, directory: Path) -> None:
        """Make the document, in an empty directory that nobody else uses yet."""

    @abstractmethod
    def open(self, directory: Path) -> None:
        """Use the document that `create` made."""

    @abstractmethod
    def commit(self, worker: str, attempt: str) -> None:
        """Count one commit of this worker and return when it is written, however long others take.

        `attempt` is unique; who keeps a history notes it there.
        """


class SharedWay(Way):
    """One that several processes may use at once without losing anything, as it says."""

    attempts: int | None = 0
    """How often it wrote the document or found that it could not; None: nobody can tell."""

    @abstractmethod
    def missing(self, acknowledged: Mapping[str, Sequence[str]]) -> int:
        """How many of the attempts that were acknowledged, by worker, are not there once."""


def first_document() -> dict[str, Any]:
    """A session with two agents and some artifacts."""
    return {
        "version": "1.0",
        "session_id": "benchmark",
        "participants": [
            {
                "role": role,
                "agent_id": f"{role}-01",
                "status": "working",
                "last_activity": "2024-04-15T10:30:00Z",
            }
            for role in ROLES
        ],
        "current_phase": PHASE,
        "artifacts": [
            {
                "name": f"module_{number}.py",
                "path": f"artifacts/{PHASE}/module_{number}.py",
                "type": "code",
                "producer": "coder-01",
                "consumer": ["reviewer"],
                "checksum": f"sha256:{number:064x}",
            }
            for number in range(ARTIFACTS)
        ],
        "commits": first_counts(),
    }


def first_counts() -> dict[str, int]:
    return dict.fromkeys(WORKERS, 0)


def count(document: dict[str, Any], worker: str) -> None:
    """The modification that every benchmark makes."""
    document["commits"][worker] += 1


def miscounted(document: Mapping[str, Any], acknowledged: Mapping[str, Sequence[str]]) -> int:
    """`SharedWay.missing`, for who keeps no history.

    Nobody but a worker itself adds to its count.  So if an acknowledged commit was undone by
    somebody who wrote an older document, the count stays behind for ever.
    """
    counts = document["commits"]
    return sum(abs(len(ids) - counts[worker]) for worker, ids in acknowledged.items())
