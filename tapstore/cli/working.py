"""The workers behind `tapstore agent run`, and what is said of their work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation
from tapstore.errors import ClaimLostError

if TYPE_CHECKING:
    from tapstore.agents.command import CommandHandler
    from tapstore.agents.handoffwork import HandoffWork
    from tapstore.agents.loop import Loop
    from tapstore.agents.outcome import Outcome
    from tapstore.agents.worker import AgentSpec
    from tapstore.sessions.session import Session
    from tapstore.tasks.work import Work

NOT_DONE = 1
"""Failed, or given back."""


def handoff_worker(
    invocation: Invocation,
    handler: CommandHandler,
    *,
    role: str,
    batch: bool,
    ttl: float | None,
    overwrite: bool,
) -> tuple[Loop[HandoffWork], Callable[[], str]]:
    """The worker, and what says why it has nothing to do."""
    from tapstore.agents.handoffs import HandoffSpec, HandoffWorker

    worker = HandoffWorker(
        invocation.open(),
        HandoffSpec(
            agent=invocation.agent,
            role=role,
            mode="batch" if batch else None,
            ttl=ttl,
            overwrite=overwrite,
        ),
        handler,
        on_start=lambda work: _accepted(invocation, work),
        on_outcome=lambda outcome: _ended(invocation, outcome),
    )
    return worker, worker.waits_for


def claim_worker(
    ctx: click.Context, handler: CommandHandler, spec: AgentSpec, root: str | None
) -> tuple[Loop[Work], Callable[[], str]]:
    """The same, for a session or for all below a root."""
    from tapstore.agents.worker import Worker
    from tapstore.roots.root import Root
    from tapstore.roots.root import root as open_root
    from tapstore.tasks.work import waits_for

    invocation: Invocation = ctx.obj
    target: Session | Root
    if root is None:
        target = invocation.open()
    else:
        with invocation.configured(root) as options:
            target = ctx.with_resource(
                open_root(
                    root, storage_options=options, artifact_options=invocation.artifact_options
                )
            )
    worker = Worker(
        target,
        spec,
        handler,
        on_start=lambda work: _started(invocation, work),
        on_outcome=lambda outcome: _ended(invocation, outcome),
    )

    def why() -> str:
        """What is missing; below a root that may be anything."""
        if isinstance(target, Root):
            return ""
        return waits_for(target, spec.work, agent=spec.agent)

    return worker, why


@contextmanager
def complaining(invocation: Invocation) -> Iterator[None]:
    """What the worker logs is said as any other warning: escaped, or as JSON."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            invocation.warn("AgentWarning", record.getMessage())

    handler = Handler()
    logger = logging.getLogger("tapstore.agents")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _started(invocation: Invocation, work: Work) -> None:
    count = len(work.inputs)
    why = f"task {work.task.id}" if work.task else f"{count} input{'' if count == 1 else 's'}"
    claim = work.claim
    invocation.note(f"{claim.agent} has claimed {claim.slot} of session {work.session.id}: {why}")


def _accepted(invocation: Invocation, work: HandoffWork) -> None:
    attempt = f", attempt {work.attempt}" if work.attempt > 1 else ""
    invocation.note(f"{work.agent} has accepted {work.what} of session {work.session.id}{attempt}")


def _ended(invocation: Invocation, outcome: Outcome) -> None:
    if invocation.as_json:
        console.emit(
            {
                "outcome": outcome.ending.value,
                "session_id": outcome.session_id,
                "url": outcome.url,
                "slot": outcome.slot,
                "agent": outcome.agent,
                "claim": outcome.claim or None,
                "task_id": outcome.task_id or None,
                "handoffs": list(outcome.handoffs),
                "batch": outcome.batch or None,
                "attempt": outcome.attempt or None,
                "reason": outcome.reason or None,
            }
        )
        return
    reason = f": {outcome.reason}" if outcome.reason else ""
    what = " ".join(outcome.handoffs) or outcome.slot
    console.say(
        f"{outcome.agent} has {outcome.ending.value} {what} of session {outcome.session_id}{reason}"
    )


def exit_code(outcome: Outcome) -> int:
    """What `--once` exits with."""
    if outcome.ending.value == "completed":
        return 0
    return ClaimLostError.exit_code if outcome.ending.value == "lost" else NOT_DONE
