"""Work that an agent can do in a session, and one piece of it in the hands of who took it.

What counts as work is a value, `WorkFilter`: a task in the inbox of the role, or a state of the
session.  `seek` takes a piece if there is one.  Taking is claiming: of any number of agents that
see the same piece one gets it, and an agent that dies loses it to the next who looks.

Nothing here waits (`patrol`) or runs anything (`agents`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tapstore.artifacts import paths
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.errors import (
    AlreadyClaimedError,
    InvalidKeyError,
    NotAllowedError,
    OutcomeUnknownError,
    StoreError,
    TapstoreError,
)
from tapstore.keys import check_name, encode_name, shell_word
from tapstore.sessions.claim import Claim
from tapstore.sessions.session import Session
from tapstore.tapfile.model import PENDING, WORKING, Participant, Tapfile
from tapstore.tapfile.operations import consumes
from tapstore.tasks.inbox import Inbox, Standing, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """So many artifacts of a type."""

    type: str
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Need:
        """`type=code`, or `type=code:2`.  Raises `ValueError`."""
        field, equals, rest = text.partition("=")
        name, colon, number = rest.rpartition(":")
        if not (colon and number.isdecimal()):
            name, number = rest, "1"
        if field != "type" or not equals or not name or int(number) < 1:
            raise ValueError(f"a need is written type=NAME or type=NAME:COUNT, not {text!r}")
        return cls(type=name, count=int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFilter:
    """What counts as work for a role, besides tasks in its inbox.

    The session has to be in `when_phase` and to have all `needs`; with neither, at least one
    artifact has to name the role or the agent as its consumer.
    """

    role: str
    when_phase: str | None = None
    needs: tuple[Need, ...] = ()

    def check(self, tapfile: Tapfile, *phases: str) -> None:
        """Raise `NotAllowedError` if the session knows no such role, or none of these phases."""
        if self.role not in tapfile.roles():
            raise NotAllowedError(
                f"session {tapfile.session_id} has no role {self.role!r}; its roles are "
                f"{', '.join(tapfile.roles()) or '(none)'}"
            )
        for phase in (self.when_phase, *phases):
            if phase:
                tapfile.with_phase(phase)

    def missing(self, tapfile: Tapfile, *, agent: str) -> str:
        """What there is to wait for, for people; empty if the session is ready for the role."""
        if self.when_phase is not None and tapfile.current_phase != self.when_phase:
            return f"the phase is {tapfile.current_phase!r}, not {self.when_phase!r}"
        inputs = self.inputs(tapfile, agent=agent)
        for need in self.needs:
            found = sum(a.type == need.type for a in inputs)
            if found < need.count:
                return f"{found} of {need.count} artifacts of type {need.type!r} are there"
        if self.when_phase is None and not self.needs and not inputs:
            return f"no artifact names {self.role!r} or {agent!r} as its consumer"
        return ""

    def inputs(self, tapfile: Tapfile, *, agent: str) -> tuple[Artifact, ...]:
        """The artifacts to work on: of the needed types, or those that name it as a consumer.

        What the role itself registered in an earlier round meets none of its needs.
        """
        if self.needs:
            types = {need.type for need in self.needs}
            found = (a for a in tapfile.artifacts if a.type in types and a.role != self.role)
        else:
            found = (a for a in tapfile.artifacts if consumes(a, role=self.role, agent=agent))
        return tuple(found)


class Work:
    """A claim and what it is about: a task, or artifacts.  Made by `seek`.

    Used in a `with` block like a claim: an exception fails it, Ctrl-C releases it, and so does a
    block that ends without `complete`, `fail` or `release`, with a warning.
    """

    def __init__(
        self, session: Session, claim: Claim, *, task: Task | None, inputs: tuple[Artifact, ...]
    ) -> None:
        self.session = session
        self.claim = claim
        self.task = task
        """The task, if one in the inbox is the reason for this work."""
        self.inputs = inputs
        """The artifacts to work on."""
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the agent was told to stop; who works for long asks now and then."""
        self._results: list[Artifact] = []

    @property
    def requirement(self) -> str:
        """What the task asks for; empty without a task."""
        return "" if self.task is None else self.task.requirement

    @property
    def output_name(self) -> str:
        """Name that the task wants its result to have; empty if it does not say."""
        return "" if self.task is None else self.task.output_name

    def fetch(self, folder: str | os.PathLike[str]) -> list[tuple[Artifact, str]]:
        """Copy the inputs into a folder of this host, verified; returns them with their paths.

        Files have the names of their artifacts; a second one of a name lies in a folder `2`, and
        so on.  Paths are absolute, so none can be taken for an option.
        """
        return fetch(self.session, self.inputs, folder)

    def add(
        self,
        name: str,
        source: Source,
        *,
        type: str = "",
        consumers: Iterable[str] = (),
        media_type: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Store an artifact, to be registered when the work is completed.

        The result that the task names goes where the task wants it.
        """
        self.claim.check()
        path = phase = None
        if self.task is not None and name == self.task.output_name:
            path, phase = self.task.output_path or None, self.task.output_phase
        artifact = self.session.stage(
            name,
            source,
            type=type,
            consumers=consumers,
            phase=phase,
            path=path,
            media_type=media_type,
            metadata=metadata,
            claim=self.claim,
        )
        self._results.append(artifact)
        return artifact

    def complete(self, *, phase: str = "", overwrite: bool = False, reason: str = "") -> None:
        """End it: what was added, the status and the phase in one commit.

        Raises `ClaimLostError` if the claim has ended; then nothing was registered.
        """
        self.claim.complete(phase=phase, publish=self._results, overwrite=overwrite, reason=reason)
        self._settle()

    def fail(self, reason: str) -> None:
        """End it as failed.  The role stays failed until somebody reopens it."""
        self.claim.fail(reason)
        self._settle()

    def release(self, reason: str = "") -> None:
        """Give it back: somebody else may take it, and the attempt does not count."""
        self.claim.release(reason)
        self._settle()

    def abandon(self) -> None:
        """Leave a claim as it is that is lost, or may be; no heartbeat keeps it alive."""
        if not self.claim.ended:
            self.claim.detach()
        self._settle()

    def _settle(self) -> None:
        if self.task is None:
            return
        # The claim has ended, which is what counts; the next who looks goes on from there.
        with suppress(StoreError, OutcomeUnknownError):
            Inbox(self.session.state, self.claim.role).settle(self.task)

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.claim.ended:
            self.claim.__exit__(kind, error, traceback)
            self._settle()

    def __repr__(self) -> str:
        what = f"task {self.task.id}" if self.task else f"{len(self.inputs)} artifacts"
        return f"<Work on {what} in {self.session.id} by {self.claim.agent}>"


def seek(
    session: Session,
    wanted: WorkFilter,
    *,
    agent: str,
    ttl: float | None = None,
    phase: str = "",
    then: str = "",
    on_lost: Callable[[Claim], None] | None = None,
) -> Work | None:
    """Take a piece of work if there is one now; None if there is none, or others were faster.

    Takes roles back from agents that died, and finishes what they left in the inbox.  `phase` is
    set by the claim, `then` will be by its end.  Raises `NotAllowedError` if the session knows no
    such role or phase.
    """
    check_name(agent, "agent id")
    session.sweep(by=agent)
    tapfile = session.tapfile
    wanted.check(tapfile, phase, then)
    inbox = Inbox(session.state, wanted.role)
    tasks = inbox.pending()
    if not _has_free_slot(tapfile, wanted.role, agent):
        return None
    if not tasks and wanted.missing(tapfile, agent=agent):
        return None
    try:
        claim = session.claim(
            wanted.role,
            agent=agent,
            ttl=ttl,
            phase=phase,
            expected=None if tasks else wanted.when_phase,
            on_lost=on_lost,
        )
    except AlreadyClaimedError:
        return None
    except NotAllowedError:
        now = session.tapfile
        if now.stamp == tapfile.stamp:
            raise  # not a race: it was never allowed
        return None
    try:
        inputs = wanted.inputs(session.state.peek().tapfile, agent=agent)
        if not tasks:
            return Work(session, claim, task=None, inputs=inputs)
        for task in tasks:
            if inbox.take(task, claim=claim.id, fence=claim.token, agent=agent):
                return Work(session, claim, task=task, inputs=inputs)
        # Another slot of the role has them all by now.
        claim.release("others were faster to take the task")
        return None
    except BaseException:
        with suppress(TapstoreError):
            claim.release("taking the work did not succeed")
        raise


def waits_for(session: Session, wanted: WorkFilter, *, agent: str) -> str:
    """Why `seek` finds nothing now, for people; empty if it might find something."""
    tapfile = session.tapfile
    if not _has_free_slot(tapfile, wanted.role, agent):
        return "; ".join(map(_taken, tapfile.slots(wanted.role)))
    if any(seen.standing is Standing.WAITING for seen in Inbox(session.state, wanted.role).look()):
        return ""
    missing = wanted.missing(tapfile, agent=agent)
    return missing and f"no task is in its inbox, and {missing}"


def _taken(slot: Participant) -> str:
    """Why a slot can't be claimed, and what helps."""
    label = shell_word(slot.label)
    if slot.status == PENDING:
        return f"{slot.label} is assigned to {slot.agent_id!r}"
    if slot.status == WORKING:
        return f"{slot.label} is held by {slot.agent_id}"
    return f"{slot.label} is {slot.status} (`tapstore reopen {label}` starts another round)"


def _has_free_slot(tapfile: Tapfile, role: str, agent: str) -> bool:
    return any(p.status == PENDING and p.agent_id in ("", agent) for p in tapfile.slots(role))


def fetch(
    session: Session, artifacts: Iterable[Artifact], folder: str | os.PathLike[str]
) -> list[tuple[Artifact, str]]:
    """See `Work.fetch`."""
    taken: dict[str, int] = {}
    found = []
    for artifact in artifacts:
        name = _file_name(artifact)
        taken[name] = number = taken.get(name, 0) + 1
        inside = os.path.join(folder, "files" if number == 1 else str(number))
        file = session.artifacts.of(artifact)
        found.append((artifact, file.save(name, inside=inside)))
    return found


def _file_name(artifact: Artifact) -> str:
    try:
        return paths.check_name(artifact.name)
    except InvalidKeyError:  # written by a program that knows no such rules
        return encode_name(artifact.name)
