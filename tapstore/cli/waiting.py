"""`tapstore wait | signal`: let one script go on when another has got somewhere."""

from __future__ import annotations

import math
from typing import Any

import click

from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.cli.params import duration_or_forever, json_or_text, or_none


@click.command()
@common_options
@click.option("--phase", help="Until the session is in this phase.")
@click.option("--artifact", metavar="NAME", help="Until an artifact of this name is registered.")
@click.option("--signal", metavar="NAME", help="Until this signal was given.")
@click.option("--completed", metavar="ROLE", help="Until all slots of this role are completed.")
@click.option(
    "--timeout",
    type=duration_or_forever,
    default=math.inf,
    metavar="DURATION",
    help="Give up after so long, and exit with 4.  [default: forever]",
)
@click.pass_obj
def wait(
    invocation: Invocation,
    phase: str | None,
    artifact: str | None,
    signal: str | None,
    completed: str | None,
    timeout: float,
) -> None:
    """Wait until all that is named holds at once.

    \b
    tapstore wait --completed coder --phase awaiting_review --timeout 10m
    """  # fmt: skip
    if phase is None and artifact is None and signal is None and completed is None:
        raise click.UsageError("name what to wait for: --phase, --artifact, --signal, --completed")
    session = invocation.open()
    tapfile = session.wait_for(
        phase=phase,
        artifact=artifact,
        signal=signal,
        completed=completed,
        timeout=or_none(timeout),
    )
    given = None if signal is None else session.read_signal(signal)
    value: dict[str, Any] = {
        "session_id": session.id,
        "phase": tapfile.current_phase,
        "revision": 0 if tapfile.stamp is None else tapfile.stamp.rev,
        "signal": given,
    }
    invocation.answer(value, f"session {session.id} is in phase {tapfile.current_phase!r}")


@click.command()
@common_options
@agent_option
@click.argument("name")
@click.option("--data", help="What goes with it; may be JSON.")
@click.pass_obj
def signal(invocation: Invocation, name: str, data: str | None) -> None:
    """Give the signal NAME, once and for all.

    `tapstore wait --signal NAME` waits for it.
    """
    session = invocation.open()
    value = None if data is None else json_or_text(data)
    session.signal(name, value, by=invocation.agent)
    invocation.answer(
        {"session_id": session.id, **(session.read_signal(name) or {})},
        f"signal {name} of session {session.id} is given",
    )
