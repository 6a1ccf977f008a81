"""An agent that works off the hand-offs of a role: takes the next, has a handler do it, is done.

The handler is a `CommandHandler` or any callable that takes a `HandoffWork`; it adds results and
returns, or raises.  What it did not do is given back, as an attempt more; after as many as the
session allows a message is dead.  A message that refers to artifacts which the session does not
have, with these bytes, is given back without being worked on.

What an earlier life of the same agent left in process is done first, within the same attempt.  So
an id is for one process at a time: a second one on the same host is refused, on another host it
would do the same work.  Sessions only; folders of the original layout know neither leases nor
attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

from tapstore.agents.alone import alone
from tapstore.agents.handoffwork import HandoffWork, name_of
from tapstore.agents.logs import RunLog
from tapstore.agents.loop import Loop, trouble
from tapstore.agents.outcome import Ending, Outcome, WorkFailedError
from tapstore.artifacts.model import Artifact
from tapstore.errors import LeaseLostError, TapstoreError
from tapstore.handoffs.mailbox import Item, Mode
from tapstore.handoffs.queue import opening
from tapstore.handoffs.queue.places import Places
from tapstore.keys import mask_url
from tapstore.roots import patrol
from tapstore.sessions.session import Session
from tapstore.tapfile.model import Tapfile

HandoffHandler = Callable[[HandoffWork], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffSpec:
    """Who works off whose hand-offs."""

    agent: str
    """Its id."""

    role: str
    mode: Mode | None = None
    """One message at a time, or all of one priority; None: as the session's settings say."""

    ttl: float | None = None
    """Seconds without a renewal after which others may take it over; None: as the settings say."""

    overwrite: bool = False
    """Results may replace what other roles have registered under the same name and phase."""


class HandoffWorker(Loop[HandoffWork]):
    """One agent at work on the hand-offs of a role in a session."""

    def __init__(
        self,
        session: Session,
        spec: HandoffSpec,
        handler: HandoffHandler,
        *,
        on_outcome: Callable[[Outcome], None] | None = None,
        on_start: Callable[[HandoffWork], None] | None = None,
    ) -> None:
        """`on_start` and `on_outcome` are told of each piece of work, in the worker's thread.

        Raises as `opening.open` does.
        """
        super().__init__(handler, on_outcome=on_outcome, on_start=on_start)
        self._session = session
        self._spec = spec
        self._mailbox = opening.open(
            session, role=spec.role, agent=spec.agent, mode=spec.mode, lease_seconds=spec.ttl
        )
        self._lock = threading.Lock()
        """Guards the mailbox: leases are renewed in another thread."""

    def waits_for(self) -> str:
        """Why there is nothing to do now, for people; empty if there may be something."""
        role = self._spec.role
        if next(self._session.store.list(Places(role).new), None) is None:
            return f"no hand-off waits for {role!r}"
        return ""

    # Finding

    def _work(self, idle: float | None) -> Generator[HandoffWork, None, None]:
        with alone(self._session, role=self._spec.role, agent=self._spec.agent):
            try:
                yield from patrol.in_session(
                    self._session,
                    self._seek,
                    idle=idle,
                    stop=lambda: self._stopping,
                    trouble=trouble,
                )
            finally:
                with self._lock:
                    self._mailbox.close()

    def _seek(self, session: Session) -> HandoffWork | None:
        since = session.clock.monotonic()
        with self._lock:
            try:
                accepted = self._mailbox.next()
            except LeaseLostError:
                return None  # what was left in process is somebody else's since this look began
        if accepted is None:
            # An empty place looks like one without mail: a session that is gone is an error.
            session.state.refresh()
            return None
        return HandoffWork(self._mailbox, self._lock, accepted, since=since)

    # Doing

    def _handle(self, work: HandoffWork) -> None:
        self._resolve(work)
        super()._handle(work)

    def _resolve(self, work: HandoffWork) -> None:
        """Look up what the messages refer to; what refers to something wrong is given back."""
        items = [item for item in work.items if item.message.artifacts]
        if not items:
            return
        tapfile = self._session.tapfile
        inputs: dict[tuple[str, str], Artifact] = {}
        for item in items:
            try:
                found = referred(item, tapfile)
            except WorkFailedError as exc:
                if len(work.items) == 1:
                    raise
                work.refuse(item, str(exc))
                self._tell(self._said(work, Ending.FAILED, (item,), reason=str(exc), error=exc))
            else:
                inputs.update((artifact.identity, artifact) for artifact in found)
        work.inputs = tuple(inputs.values())

    def _complete(self, work: HandoffWork) -> Outcome:
        work.complete(overwrite=self._spec.overwrite)
        return self._said(work, Ending.COMPLETED, work.items)

    def _end(self, work: HandoffWork, ending: Ending, reason: str, error: BaseException) -> Outcome:
        try:
            work.release(reason)
        except TapstoreError as exc:
            exc.__context__ = error
            return self._lost(work, exc, reason=f"{reason}; then {exc}")
        return self._said(work, ending, work.items, reason=reason, error=error)

    def _lost(self, work: HandoffWork, error: TapstoreError, *, reason: str = "") -> Outcome:
        work.abandon()
        if work.is_completed():
            # By the command, or by a request whose reply was lost.
            return self._said(work, Ending.COMPLETED, work.items, error=error)
        return self._said(work, Ending.LOST, work.items, reason=reason or str(error), error=error)

    def _said(
        self,
        work: HandoffWork,
        ending: Ending,
        items: tuple[Item, ...],
        *,
        reason: str = "",
        error: BaseException | None = None,
    ) -> Outcome:
        return Outcome(
            ending=ending,
            session_id=self._session.id,
            url=mask_url(self._session.url),
            slot=work.role,
            agent=work.agent,
            handoffs=tuple(map(name_of, items)),
            batch=work.batch,
            attempt=max(item.attempt for item in items),
            reason=reason,
            error=error,
        )

    def _run_log(self, work: HandoffWork) -> RunLog:
        return work.log()


def referred(item: Item, tapfile: Tapfile) -> list[Artifact]:
    """The artifacts that a message refers to.  Raises `WorkFailedError` for a wrong reference."""
    found = []
    for reference in item.message.artifacts:
        artifact = tapfile.artifact(reference.name, reference.phase)
        shown = f"{reference.phase}/{reference.name}" if reference.phase else reference.name
        if artifact is None:
            raise WorkFailedError(
                f"not worked on: it refers to the artifact {shown!r}, which session "
                f"{tapfile.session_id} does not have"
            )
        if artifact.checksum != reference.checksum:
            raise WorkFailedError(
                f"not worked on: it refers to {shown!r} with {reference.checksum}, but "
                f"{artifact.producer or 'somebody'} has registered it with "
                f"{artifact.checksum or 'no checksum'}"
            )
        found.append(artifact)
    return found
