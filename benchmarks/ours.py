"""tapstore as a way to commit, used as a user would.

`Editing` is the read-modify-write that the baselines make, too; `Stepping` only moves the phase,
which is the least that a commit can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tapstore
from benchmarks.ways import ARTIFACTS, PHASE, ROLES, SharedWay, count, first_counts
from tapstore.sessions.config import TapfileFormat
from tapstore.sessions.revisions import Draft
from tapstore.sessions.session import Session
from tapstore.sessions.snapshot import Snapshot


class Editing(SharedWay):
    """`session.edit`.  `foreign`: under `tapfile.lock`, so that plain agents can take part."""

    def __init__(self, *, fsync: bool, format: TapfileFormat, foreign: bool) -> None:
        super().__init__(fsync=fsync)
        self.attempts: int = 0
        self._format = format
        self._foreign = foreign
        self._options = {"durability": "full" if fsync else "none"}

    def create(self, directory: Path) -> None:
        with tapstore.create(
            str(directory),
            session_id="benchmark",
            roles=ROLES,
            phase=PHASE,
            fields={"commits": first_counts()},
            tapfile_format=self._format,
            foreign=self._foreign,
            storage_options=self._options,
        ) as session:
            for number in range(ARTIFACTS):
                session.publish(
                    f"module_{number}.py",
                    f"print({number})\n".encode(),
                    type="code",
                    producer="coder-01",
                    consumers=["reviewer"],
                )

    def open(self, directory: Path) -> None:
        self.session: Session = tapstore.open(str(directory), storage_options=self._options)
        _count_attempts(self.session, self)

    def commit(self, worker: str, attempt: str) -> None:
        def change(document: dict[str, Any]) -> None:
            count(document, worker)

        self.session.edit(change, by=worker, reason=attempt)

    def missing(self, acknowledged: Mapping[str, Sequence[str]]) -> int:
        landed = Counter(entry.reason for entry in self.session.log())
        return sum(landed[attempt] != 1 for ids in acknowledged.values() for attempt in ids)


class Stepping(Editing):
    """`session.set_phase`."""

    def commit(self, worker: str, attempt: str) -> None:
        # Of the same length, whichever it is: the document must not grow.
        phase = f"{PHASE[:-1]}{attempt[-1]}"
        self.session.set_phase(phase, by=worker, reason=attempt)


def _count_attempts(session: Session, way: Editing) -> None:
    revisions = session.state.revisions
    commit = revisions.commit

    def counted(before: Snapshot, draft: Draft) -> Snapshot:
        way.attempts += 1
        return commit(before, draft)

    revisions.commit = counted  # type: ignore[method-assign]
