"""What a command is run for, as the command sees it: work under a claim, or hand-offs.

Nothing here takes or ends it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from tapstore.agents import logs
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.errors import ClaimLostError, TapstoreError
from tapstore.sessions.session import Session
from tapstore.tasks import fate
from tapstore.tasks.work import Work

VARIABLES = frozenset(
    ("TAPSTORE_CLAIM", "TAPSTORE_TOKEN", "TAPSTORE_HANDOFF", "TAPSTORE_BATCH", "TAPSTORE_ATTEMPT")
)
"""Environment variables that only one of the two kinds sets."""


class Job(ABC):
    """One piece of work in the hands of an agent."""

    session: Session
    stopping: Callable[[], bool]
    """Whether the agent was told to stop."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """What is to be done, as text; may be empty."""

    @property
    @abstractmethod
    def output_name(self) -> str:
        """Name that the result is to have; empty if that is not said."""

    @property
    @abstractmethod
    def lost(self) -> threading.Event:
        """Set when it is known to be lost; never cleared."""

    @abstractmethod
    def loss(self) -> TapstoreError:
        """The error that says how it was lost."""

    @abstractmethod
    def was_ended_by_command(self) -> bool:
        """Whether it is lost because the command itself has ended it, and may finish."""

    @abstractmethod
    def fetch(self, folder: str | os.PathLike[str]) -> list[tuple[Artifact, str]]:
        """Copy the inputs into a folder, verified; returns them with their paths."""

    @abstractmethod
    def add(
        self, name: str, source: Source, *, type: str = "", consumers: Iterable[str] = ()
    ) -> Artifact:
        """Store a result, to be registered when the work is completed."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the command is told on standard input."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The same, in short."""

    @abstractmethod
    def log(self) -> logs.RunLog:
        """Where its output goes."""


def of_work(work: Work) -> Job:
    """Work under a claim."""
    return _Claimed(work)


class _Claimed(Job):
    def __init__(self, work: Work) -> None:
        self._work = work
        self._claim = work.claim
        self.session = work.session
        self.stopping = lambda: work.stopping()

    @property
    def requirement(self) -> str:
        return self._work.requirement

    @property
    def output_name(self) -> str:
        return self._work.output_name

    @property
    def lost(self) -> threading.Event:
        return self._claim.lost

    def loss(self) -> TapstoreError:
        try:
            self._claim.check()
        except TapstoreError as exc:
            return exc
        return ClaimLostError(f"the claim of {self._claim.slot} has ended")

    def was_ended_by_command(self) -> bool:
        # By its TAPSTORE_CLAIM.  A place that did not answer in time would not answer this in time.
        if not self._claim.was_refused:
            return False
        try:
            found = fate.fate(self.session.state, self._claim.id, fence=self._claim.token)
        except TapstoreError:
            return False  # we can't even look: stop it
        return found in (fate.COMPLETED, fate.FAILED, fate.RELEASED)

    def fetch(self, folder: str | os.PathLike[str]) -> list[tuple[Artifact, str]]:
        return self._work.fetch(folder)

    def add(
        self, name: str, source: Source, *, type: str = "", consumers: Iterable[str] = ()
    ) -> Artifact:
        return self._work.add(name, source, type=type, consumers=consumers)

    def describe(self) -> dict[str, Any]:
        claim, task = self._claim, self._work.task
        return {
            "role": claim.role,
            "slot": claim.slot,
            "agent": claim.agent,
            "claim": claim.id,
            "token": claim.token,
            "attempt": claim.attempt,
            "requirement": self.requirement,
            "task": None if task is None else dict(task.document),
        }

    def environment(self) -> dict[str, str]:
        return {
            "TAPSTORE_ROLE": self._claim.role,
            "TAPSTORE_AGENT": self._claim.agent,
            "TAPSTORE_CLAIM": self._claim.id,
            "TAPSTORE_TOKEN": str(self._claim.token),
        }

    def log(self) -> logs.RunLog:
        claim = self._claim
        return logs.RunLog(
            self.session,
            agent=claim.agent,
            run=f"{claim.token:012d}-{claim.id}",
            title=f"{claim.slot} in {self.session.id}, claim {claim.id}",
        )
