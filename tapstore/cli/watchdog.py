"""`tapstore watchdog`: take roles back from agents that died."""

from __future__ import annotations

import time

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.params import duration
from tapstore.cli.views import slot_value
from tapstore.tapfile.operations import find_slot


@click.command()
@common_options
@click.option("--once", is_flag=True, help="Look once, and exit.")
@click.option(
    "--interval",
    type=duration,
    metavar="DURATION",
    help="Look so often.  [default: a quarter of the session's ttl]",
)
@click.pass_obj
def watchdog(invocation: Invocation, once: bool, interval: float | None) -> None:
    """Take roles back from agents that show no sign of life.

    Any number of watchdogs may run, and none has to: agents that look for work do the same.
    """
    session = invocation.open()
    if interval is None:
        interval = session.config.claim_ttl_seconds / 4
    while True:
        for reset in session.sweep():
            now = find_slot(session.tapfile, reset.label)
            if invocation.as_json:
                console.emit(
                    {"session_id": session.id, "from": slot_value(reset), "to": slot_value(now)}
                )
            else:
                before = f"{reset.label} taken back from {reset.agent_id}"
                console.say(f"{before}, {now.status} now: {now.reason}")
        if once:
            return
        time.sleep(interval)
