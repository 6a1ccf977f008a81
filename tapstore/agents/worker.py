"""An agent: waits for work of a role, claims it, has a handler do it, and ends the claim.

The handler is a `CommandHandler` or any callable that takes a `Work`; it adds results and returns,
or raises.  While it runs the claim's heartbeats are written.  Whatever happens to it, the claim
ends: completed, failed with the reason, released, or, if even that is impossible, left to the
watchdog.  A worker that dies leaves no more than that.

A worker started again under its old id waits until the claim of the one that died is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

from tapstore.agents import logs
from tapstore.agents.job import of_work
from tapstore.agents.loop import Loop, trouble
from tapstore.agents.outcome import Ending, Outcome
from tapstore.errors import TapstoreError
from tapstore.keys import check_name, mask_url
from tapstore.roots import patrol
from tapstore.roots.root import Root
from tapstore.sessions.session import Session
from tapstore.tasks import fate
from tapstore.tasks.work import Work, WorkFilter, seek

Handler = Callable[[Work], None]

_ENDINGS = {
    fate.COMPLETED: Ending.COMPLETED,
    fate.FAILED: Ending.FAILED,
    fate.RELEASED: Ending.RELEASED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """Who works, on what, and what becomes of the phase."""

    agent: str
    """Its id."""

    work: WorkFilter
    claim_phase: str = ""
    """Phase that claiming sets; empty: as it is."""

    then: str = ""
    """Phase that completing sets; empty: as it is."""

    ttl: float | None = None
    """Seconds without a sign of life after which the claim may be taken back; None: the session's
    default."""

    overwrite: bool = False
    """Results may replace what other roles have registered under the same name and phase."""


class Worker(Loop[Work]):
    """One agent at work in a session, or in all sessions below a root."""

    def __init__(
        self,
        target: Session | Root,
        spec: AgentSpec,
        handler: Handler,
        *,
        on_outcome: Callable[[Outcome], None] | None = None,
        on_start: Callable[[Work], None] | None = None,
    ) -> None:
        """`on_start` and `on_outcome` are told of each piece of work, in the worker's thread."""
        check_name(spec.agent, "agent id")
        super().__init__(handler, on_outcome=on_outcome, on_start=on_start)
        self._target = target
        self._spec = spec
        if isinstance(target, Session):
            spec.work.check(target.tapfile, spec.claim_phase, spec.then)

    # Finding

    def _work(self, idle: float | None) -> Generator[Work, None, None]:
        def stop() -> bool:
            return self._stopping

        if isinstance(self._target, Session):
            yield from patrol.in_session(
                self._target, self._seek, idle=idle, stop=stop, trouble=trouble
            )
        else:
            yield from patrol.in_root(
                self._target, self._seek_if_concerned, idle=idle, stop=stop, trouble=trouble
            )

    def _seek(self, session: Session) -> Work | None:
        spec = self._spec
        return seek(
            session, spec.work, agent=spec.agent, ttl=spec.ttl, phase=spec.claim_phase,
            then=spec.then,
        )  # fmt: skip

    def _seek_if_concerned(self, session: Session) -> Work | None:
        # Below a root there may be sessions of any kind.
        roles = session.state.refresh().tapfile.roles()
        return self._seek(session) if self._spec.work.role in roles else None

    # Doing

    def _complete(self, work: Work) -> Outcome:
        if work.claim.ended:
            ending, reason = self._fate(work)
            return self._said(work, ending, reason=reason)
        work.complete(phase=self._spec.then, overwrite=self._spec.overwrite)
        return self._said(work, Ending.COMPLETED)

    def _end(self, work: Work, ending: Ending, reason: str, error: BaseException) -> Outcome:
        """End a claim whose handler did not; whether it can be ended is not sure."""
        if work.claim.ended:
            ending, _ = self._fate(work)
            return self._said(work, ending, reason=reason, error=error)
        try:
            if ending is Ending.FAILED:
                work.fail(reason)
            else:
                work.release(reason)
        except TapstoreError as exc:
            exc.__context__ = error
            return self._lost(work, exc, reason=f"{reason}; then {exc}")
        return self._said(work, ending, reason=reason, error=error)

    def _lost(self, work: Work, error: TapstoreError, *, reason: str = "") -> Outcome:
        """The claim is not ours any more, or nobody can tell: keep off, and see what became of it.

        The command may have ended it itself.
        """
        work.abandon()
        ending, own = self._fate(work)
        said = reason or str(error) if ending is Ending.LOST else own
        return self._said(work, ending, reason=said, error=error)

    def _fate(self, work: Work) -> tuple[Ending, str]:
        """How the claim ended, and why, by the log; lost if nobody can tell."""
        claim = work.claim
        with suppress(TapstoreError):
            found, reason = fate.fate_and_reason(work.session.state, claim.id, fence=claim.token)
            return _ENDINGS.get(found, Ending.LOST), reason
        return Ending.LOST, ""

    def _said(
        self, work: Work, ending: Ending, *, reason: str = "", error: BaseException | None = None
    ) -> Outcome:
        return Outcome(
            ending=ending,
            session_id=work.session.id,
            url=mask_url(work.session.url),
            slot=work.claim.slot,
            agent=work.claim.agent,
            claim=work.claim.id,
            task_id="" if work.task is None else work.task.id,
            reason=reason,
            error=error,
        )

    def _run_log(self, work: Work) -> logs.RunLog:
        return of_work(work).log()
