"""`tapstore claim | heartbeat | complete | fail | release`: work, one command at a time.

Between the commands nothing runs, so nobody writes heartbeats unless the caller sees to it:
`heartbeat` once, or in the background with `--while`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli.invocation import (
    Invocation,
    agent_option,
    claim_option,
    common_options,
    reason_option,
)
from tapstore.cli.params import duration, duration_or_forever, file_to_publish, or_none
from tapstore.cli.views import artifact_value
from tapstore.errors import ClaimLostError, UnsupportedOperationError

if TYPE_CHECKING:
    from tapstore.sessions.claim import Claim
    from tapstore.sessions.session import Session

_LOOK_SECONDS = 1.0
"""A script that waits for its heartbeats to end does not wait longer after it has completed."""


@click.command()
@common_options
@agent_option
@click.argument("role")
@click.option(
    "--wait",
    type=duration_or_forever,
    default=0.0,
    metavar="DURATION",
    help="Wait so long, or 'forever', while others hold the role.  [default: do not]",
)
@click.option(
    "--ttl",
    type=duration,
    metavar="DURATION",
    help="Without a heartbeat for so long the claim is stale.  [default: the session's]",
)
@click.option("--phase", default="", help="Move the session to this phase in the same commit.")
@click.option("--expected", metavar="PHASE", help="Claim only if the session is in this phase.")
@click.option(
    "--takeover",
    is_flag=True,
    help="If this very agent holds the role already, fence that instance off and begin again.",
)
@reason_option
@click.pass_obj
def claim(
    invocation: Invocation,
    role: str,
    wait: float,
    ttl: float | None,
    phase: str,
    expected: str | None,
    takeover: bool,
    reason: str,
) -> None:
    """Claim ROLE and print the claim's id.

    The commands that follow need it in their environment, or as --claim.

    \b
    TAPSTORE_CLAIM=$(tapstore claim coder --agent c1) || exit
    export TAPSTORE_CLAIM
    tapstore heartbeat --while $$ &
    …
    tapstore complete --phase awaiting_review --publish code.py:type=code

    Of all who ask at once exactly one gets it.  Without heartbeats the claim goes stale after its
    ttl, and then anybody may take the role back.
    """  # fmt: skip
    session = invocation.open()
    made = session.claim(
        role,
        agent=invocation.agent,
        wait=or_none(wait),
        ttl=ttl,
        phase=phase,
        expected=expected,
        takeover=takeover,
        reason=reason,
    )
    made.detach()
    ttl = session.config.claim_ttl_seconds if ttl is None else ttl
    invocation.answer(
        {**claim_value(session, made), "attempt": made.attempt, "ttl_seconds": ttl}, made.id
    )
    invocation.note(
        f"{made.agent} has claimed {made.slot} of session {session.id} (token {made.token}); "
        f"without `tapstore heartbeat` it goes stale in {ttl:g} s"
    )


def claim_value(session: Session, claim: Claim) -> dict[str, Any]:
    """The keys that every command on a claim prints."""
    return {
        "session_id": session.id,
        "claim": claim.id,
        "role": claim.role,
        "slot": claim.slot,
        "agent": claim.agent,
        "token": claim.token,
    }


@click.command()
@common_options
@claim_option
@click.option(
    "--while",
    "pid",
    type=click.IntRange(1),
    metavar="PID",
    help="Go on until this process ends (in a script: $$), or the claim does.",
)
@click.pass_obj
def heartbeat(invocation: Invocation, pid: int | None) -> None:
    """Show that the holder of a claim is alive: once, or while a process runs.

    With --while it exits with 0 when the process ended or the claim was completed, failed or
    released, and with 5 when the claim was taken back.
    """
    session = invocation.open()
    if pid is not None:
        _beat_while(invocation, session, pid)
        return
    held = invocation.claim(session)
    held.heartbeat()
    if invocation.as_json:
        invocation.answer(claim_value(session, held))


def _beat_while(invocation: Invocation, session: Session, pid: int) -> None:
    from tapstore.tasks import fate

    fence = 0
    try:
        held = invocation.claim(session)
        fence = held.token
        with _process(pid) as ended:
            _beat_until(ended, session, held)
    except ClaimLostError:
        # A short script may even have completed it before we began.
        how = fate.fate(session.state, invocation.claim_id or "", fence=fence)
        if how not in (fate.COMPLETED, fate.FAILED, fate.RELEASED):
            raise


def _beat_until(ended: Callable[[float], bool], session: Session, held: Claim) -> None:
    """Write heartbeats; raises `ClaimLostError` soon after the claim has ended."""
    clock = session.clock
    pause = _ttl(session, held) / 3
    due = clock.monotonic()
    while True:
        alive = session.state.peek().tapfile.claimed_by(held.id) is not None
        if clock.monotonic() >= due or not alive:
            held.heartbeat()
            due = clock.monotonic() + pause
        if ended(min(pause, _LOOK_SECONDS)):
            return


def _ttl(session: Session, held: Claim) -> float:
    participant = session.tapfile.claimed_by(held.id)
    grant = None if participant is None else participant.claim
    return (grant.ttl_seconds if grant else 0) or session.config.claim_ttl_seconds


@contextmanager
def _process(pid: int) -> Iterator[Callable[[float], bool]]:
    """Yield `ended(seconds)`: waits so long, or until the process has ended; whether it has."""
    import os
    import select

    if not hasattr(os, "pidfd_open"):
        raise UnsupportedOperationError(
            "--while needs Linux, where a process can be waited for without being mistaken for "
            "a later one of the same number; call `tapstore heartbeat` from a loop instead"
        )
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield lambda _: True
        return
    try:
        yield lambda seconds: bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


@click.command()
@common_options
@claim_option
@click.option(
    "--publish",
    "files",
    type=file_to_publish,
    multiple=True,
    metavar="FILE[:OPTION=VALUE,…]",
    help="Publish a file in the same commit; options are name, type, consumer (repeatable), "
    "phase, path, media_type.  Repeatable.",
)
@click.option("--phase", default="", help="Move the session to this phase in the same commit.")
@click.option(
    "--overwrite", is_flag=True, help="Replace artifacts that another role has registered."
)
@reason_option
@click.pass_obj
def complete(
    invocation: Invocation,
    files: tuple[tuple[str, dict[str, Any]], ...],
    phase: str,
    overwrite: bool,
    reason: str,
) -> None:
    """End a claim: artifacts, status and phase in one commit.

    \b
    tapstore complete --phase awaiting_review --publish code.py:type=code,consumer=reviewer
    """  # fmt: skip
    session = invocation.open()
    held = invocation.claim(session)
    staged = [session.stage(source=path, claim=held, **options) for path, options in files]
    held.complete(phase=phase, publish=staged, overwrite=overwrite, reason=reason)
    published = "".join(f"; published {a.name} ({a.path})" for a in staged)
    _ended(invocation, session, held, "completed", published, artifacts=staged)


@click.command()
@common_options
@claim_option
@click.argument("reason")
@click.option("--phase", default="", help="Move the session to this phase in the same commit.")
@click.pass_obj
def fail(invocation: Invocation, reason: str, phase: str) -> None:
    """End a claim as failed, because of REASON.  `tapstore reopen` starts another round."""
    session = invocation.open()
    held = invocation.claim(session)
    held.fail(reason, phase=phase)
    _ended(invocation, session, held, "failed")


@click.command()
@common_options
@claim_option
@click.argument("reason", default="")
@click.pass_obj
def release(invocation: Invocation, reason: str) -> None:
    """Give a claim back; the attempt does not count."""
    session = invocation.open()
    held = invocation.claim(session)
    held.release(reason)
    _ended(invocation, session, held, "released")


def _ended(
    invocation: Invocation,
    session: Session,
    held: Claim,
    how: str,
    more: str = "",
    *,
    artifacts: Any = (),
) -> None:
    invocation.answer(
        {
            **claim_value(session, held),
            "outcome": how,
            "phase": session.phase,
            "artifacts": [artifact_value(a) for a in artifacts],
        },
        f"{held.agent} has {how} {held.slot} of session {session.id}{more}",
    )
