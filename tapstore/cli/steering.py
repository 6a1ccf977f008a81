"""`tapstore phase | reopen | reset`: what a person, or an agent in charge, steers with."""

from __future__ import annotations

import click

from tapstore.cli.invocation import Invocation, agent_option, common_options, reason_option
from tapstore.cli.views import slot_value
from tapstore.tapfile.operations import find_slot


@click.command()
@common_options
@agent_option
@click.argument("name", required=False)
@click.option("--expected", metavar="PHASE", help="Move only if the session is in this phase.")
@reason_option
@click.pass_obj
def phase(invocation: Invocation, name: str | None, expected: str | None, reason: str) -> None:
    """Show the phase, or move the session to the phase NAME."""
    session = invocation.open()
    if name is not None:
        session.set_phase(name, by=invocation.agent, reason=reason, expected=expected)
    elif expected is not None:
        raise click.UsageError("--expected goes with the NAME of the phase to move to")
    tapfile = session.tapfile
    invocation.answer(
        {
            "session_id": session.id,
            "phase": tapfile.current_phase,
            "phases": list(tapfile.phases),
        },
        tapfile.current_phase,
    )


@click.command()
@common_options
@agent_option
@click.argument("slot")
@click.option("--phase", default="", help="Move the session to this phase in the same commit.")
@reason_option
@click.pass_obj
def reopen(invocation: Invocation, slot: str, phase: str, reason: str) -> None:
    """Start another round of a completed or failed SLOT.

    A slot is a role, or one of several of it: reviewer, reviewer#2.
    """
    session = invocation.open()
    session.reopen(slot, by=invocation.agent, reason=reason, phase=phase)
    participant = find_slot(session.tapfile, slot)
    invocation.answer(
        {"session_id": session.id, **slot_value(participant)},
        f"{slot} of session {session.id} is pending, round {participant.round}",
    )


@click.command()
@common_options
@agent_option
@click.argument("slot")
@click.option(
    "--token", type=int, help="Only from the claim with this fencing token, as `status` shows it."
)
@reason_option
@click.pass_obj
def reset(invocation: Invocation, slot: str, token: int | None, reason: str) -> None:
    """Take a working SLOT back from whoever holds it.

    What the holder still does under its claim is refused.
    """
    session = invocation.open()
    session.reset(slot, by=invocation.agent, reason=reason, token=token)
    participant = find_slot(session.tapfile, slot)
    invocation.answer(
        {"session_id": session.id, **slot_value(participant)},
        f"{slot} of session {session.id} is {participant.status}",
    )
