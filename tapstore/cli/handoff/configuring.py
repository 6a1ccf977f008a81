"""`tapstore handoff settings`: what a session sets for its hand-offs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tapstore.cli.invocation import Invocation, common_options

if TYPE_CHECKING:
    from tapstore.handoffs.queue.settings import Settings


@click.command()
@common_options
@click.argument("file", type=click.File("rb"), required=False)
@click.pass_obj
def settings(invocation: Invocation, file: Any) -> None:
    """Show what the session sets for its hand-offs, or set all of it from FILE ('-' too).

    \b
    receive: {architect: batch}      # others take one message at a time
    lease_seconds: 3600              # of accepted work, without a renewal
    max_attempts: 3                  # then it is dead
    max_waiting: 0                   # `send` refuses more for a role; 0: any number
    ageing_seconds: 600              # waiting for so long counts as one priority better; 0: never
    types: []                        # further message types
    """  # fmt: skip
    from tapstore.handoffs.queue import settings as document

    session = invocation.open()
    if file is None:
        found = document.load(session.store)
    else:
        data = file.read(document.MAX_BYTES + 1)
        found = document.save(session.store, data, name=getattr(file, "name", "settings"))
    value = _value(found)
    lines = (f"{name}: {_shown(one)}" for name, one in value.items())
    invocation.answer({"session_id": session.id, **value}, *lines)


def _value(found: Settings) -> dict[str, Any]:
    return {
        "receive": dict(found.receive),
        "lease_seconds": found.lease_seconds,
        "max_attempts": found.max_attempts,
        "max_waiting": found.max_waiting,
        "ageing_seconds": found.ageing_seconds,
        "types": sorted(found.types),
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {mode}" for name, mode in sorted(value.items())) or "-"
    return ", ".join(value) if isinstance(value, list) else f"{value:g}"
