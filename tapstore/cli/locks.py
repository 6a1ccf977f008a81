"""`tapstore lock | locks`: hold a named lock while a command runs; see and end who holds what.

Also: what keeps the locks of a session, and how that is changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import console, lockfile
from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.cli.params import duration, duration_or_forever, or_none
from tapstore.clock import format_time_ms
from tapstore.errors import NotFoundError
from tapstore.keys import mask_url, shell_word

if TYPE_CHECKING:
    from tapstore.types import Holder


@click.command()
@common_options
@agent_option
@click.argument("name")
@click.option(
    "--ttl",
    type=duration,
    default=30.0,
    metavar="DURATION",
    help="If we die, others can have the lock after so long.  [default: 30 s]",
)
@click.option(
    "--wait",
    type=duration_or_forever,
    default=0.0,
    metavar="DURATION",
    help="Wait so long, or 'forever', while somebody else holds it.  [default: do not]",
)
@click.option("--reason", default="", help="What for; those who wait see it.")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND [ARG]…")
@click.pass_context
def lock(
    ctx: click.Context,
    name: str,
    ttl: float,
    wait: float,
    reason: str,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND while holding the lock NAME, like flock(1).

    Exits with what the command exits with; with 4 if the lock could not be had, and with 5 if it
    was lost: then the command is made to stop.  The command finds the fencing token, which rises
    with each holder, in TAPSTORE_LOCK_TOKEN.

    \b
    tapstore lock gpu-0 --wait 10m -- python train.py
    """  # fmt: skip
    from tapstore.cli.running import Running

    invocation: Invocation = ctx.obj
    session = invocation.open_with_locks()
    running = Running()
    with session.lock(
        name,
        ttl=ttl,
        wait=or_none(wait),
        agent=invocation.agent,
        reason=reason or " ".join(command),
        on_lost=running.stop,
    ) as guard:
        status = running.run(
            command,
            {
                **os.environ,
                "TAPSTORE_URL": invocation.absolute_url(),
                "TAPSTORE_LOCK": name,
                "TAPSTORE_LOCK_TOKEN": str(guard.lease.generation),
            },
        )
        guard.check()
    ctx.exit(status)


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def locks(ctx: click.Context) -> None:
    """Show who holds which lock, since when, and what for."""
    if ctx.invoked_subcommand is not None:
        return
    invocation: Invocation = ctx.obj
    session = invocation.open_with_locks()
    now = session.store.now()
    service, former = session.locks.name, session.locks.former
    shown = mask_url(service)
    unfinished = None if former is None else mask_url(former)
    seen = lockfile.look(session)
    found = [h for name in session.locks.names() if (h := session.locks.inspect(name)) is not None]
    invocation.answer(
        {
            "session_id": session.id,
            "service": shown,
            "former": unfinished,
            "locks": [_value(h) for h in found],
            "tapfile_lock": lockfile.value(seen),
        },
        *(_table(found, now) if found else [f"nobody holds a lock ({shown})"]),
        *(
            [
                f"being switched from {unfinished}: who still holds a lock there keeps it; "
                f"`tapstore locks switch {shell_word(service)}` goes on"
            ]
            if unfinished
            else []
        ),
        *([] if seen is None else filter(None, [lockfile.line(seen), lockfile.advice(seen)])),
    )


def _value(holder: Holder) -> dict[str, Any]:
    owner = holder.owner
    return {
        "name": holder.name,
        "generation": holder.generation,
        "agent": owner.agent,
        "host": owner.host or None,
        "pid": owner.pid or None,
        "since": format_time_ms(holder.since),
        "renewed": format_time_ms(holder.beat),
        "ttl_seconds": holder.ttl_seconds,
        "reason": holder.reason or None,
    }


def _table(found: list[Holder], now: float) -> list[str]:
    return console.table(
        ("lock", "held by", "host", "pid", "since", "renewed", "ttl", "generation", "for"),
        [
            (
                h.name,
                h.owner.agent,
                h.owner.host or "-",
                str(h.owner.pid or "-"),
                f"{console.span(now - h.since)} ago",
                f"{console.span(now - h.beat)} ago",
                f"{h.ttl_seconds:g} s",
                str(h.generation),
                h.reason,
            )
            for h in found
        ],
    )


@locks.command()
@common_options
@click.argument("name")
@click.option(
    "--generation",
    type=int,
    required=True,
    help="Of the grant to end, as `tapstore locks` shows it.",
)
@click.pass_obj
def release(invocation: Invocation, name: str, generation: int) -> None:
    """End exactly one grant of the lock NAME, whoever holds it."""
    session = invocation.open_with_locks()
    session.locks.force_release(name, generation)
    invocation.answer(
        {"session_id": session.id, "name": name, "generation": generation},
        f"generation {generation} of lock {name} is released",
    )


@locks.command()
@common_options
@agent_option
@click.argument("service", metavar="SERVICE")
@click.option(
    "--wait",
    type=duration,
    default=30.0,
    metavar="DURATION",
    help="Wait so long for who holds locks in the old service.  [default: 30 s]",
)
@click.option("--force", is_flag=True, help="Then end what is still held there.")
@click.option(
    "--old-is-gone",
    is_flag=True,
    help="Do not ask the old service, only wait.  Whoever still reaches it, or holds a lock there "
    "with a longer ttl than that, may believe in its lock beside a new holder.",
)
@click.pass_obj
def switch(
    invocation: Invocation, service: str, wait: float, force: bool, old_is_gone: bool
) -> None:
    """Have everybody use another lock service: o_excl, store, or a URL.

    Agents that are at work need not stop: what they hold stays theirs, and their next lock comes
    from the new service.  Exits with 4 if something is still held in the old one after the wait:
    the switch is made then, but these locks cannot be had before they are given back.  Repeat the
    command to go on after a failure.

    \b
    tapstore locks switch redis://cache:6379/0
    """  # fmt: skip
    if force and old_is_gone:
        raise click.UsageError("--force ends locks in the old service, which --old-is-gone ignores")
    session = invocation.open_with_locks(warn=False)
    done = session.switch_locks(
        service, wait=wait, force=force, old_is_gone=old_is_gone, agent=invocation.agent
    )
    said = {
        None: f"session {session.id} uses {done.locks} already",
        "drained": f"session {session.id} uses {done.locks} now; nobody holds a lock in "
        f"{done.former}",
        "forced": f"session {session.id} uses {done.locks} now; what was held in {done.former} "
        "was ended",
        "unasked": f"session {session.id} uses {done.locks} now; {done.former} was not asked",
    }
    invocation.answer(
        {
            "session_id": session.id,
            "service": done.locks,
            "former": done.former or None,
            "how": done.how,
        },
        said[done.how],
    )


@locks.command("remove-tapfile-lock")
@common_options
@click.argument("identity")
@click.pass_obj
def remove_tapfile_lock(invocation: Invocation, identity: str) -> None:
    """Remove the lock file of a program that is gone.

    Only if it is still the one that `tapstore locks` and `tapstore status` showed as IDENTITY.
    Make sure that its owner is gone: one that wakes up would edit the Tapfile without a lock.
    """
    session = invocation.open()
    lock = lockfile.lock_file(session)
    if lock is None or lock.inspect() is None:
        raise NotFoundError(f"session {session.id} has no tapfile.lock at present")
    lock.break_lock(identity)
    invocation.answer({"session_id": session.id, "identity": identity}, "tapfile.lock is removed")
