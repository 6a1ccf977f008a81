"""`tapstore log | logs`: what happened in the session, and what an agent's program printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import console
from tapstore.cli.events import events, line
from tapstore.cli.invocation import Invocation, common_options
from tapstore.sessions.history import LogEntry, log_entry

if TYPE_CHECKING:
    from tapstore.record import Head


@click.command()
@common_options
@click.option("--after", type=click.IntRange(0), default=0, metavar="REV", help="Only later ones.")
@click.option("-n", "--last", type=click.IntRange(1), metavar="N", help="Only the last N.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on.")
@click.pass_obj
def log(invocation: Invocation, after: int, last: int | None, follow: bool) -> None:
    """Show what happened: who, what and why, one line a commit."""
    session = invocation.open()
    history = session.state.log
    if last is not None:
        after = max(after, session.state.refresh().rev - last)
    seen = after
    for head in history.records(after=after):
        seen = head.n
        _show(invocation, head)
    if follow:
        for entry in session.watch(after=seen):
            found = history.at(entry.rev)
            assert found is not None  # records are permanent
            _show(invocation, found)


def _value(entry: LogEntry) -> dict[str, Any]:
    """Every key is always there, unlike in `.tap/session.log`."""
    return {
        "rev": entry.rev,
        "write_id": entry.write_id,
        "at": entry.at,
        "by": entry.by,
        "reason": entry.reason,
        "operations": list(entry.operations),
        "moves": [
            {
                "slot": move.participant,
                "old": move.old,
                "new": move.new,
                "agent": move.agent,
                "claim": move.claim,
            }
            for move in entry.moves
        ],
        "phase": None if entry.phase is None else list(entry.phase),
    }


def _show(invocation: Invocation, head: Head) -> None:
    if invocation.as_json:
        console.emit(_value(log_entry(head)))
    else:
        console.say(line(events(head)))


@click.command()
@common_options
@click.argument("agent", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what it prints from now on.")
@click.option("--raw", is_flag=True, help="Print the bytes as they are; else nothing is obeyed.")
@click.pass_obj
def logs(invocation: Invocation, agent: str | None, follow: bool, raw: bool) -> None:
    """Show what an agent's program printed; without AGENT, who has a log."""
    from tapstore.agents import logs as agent_logs

    session = invocation.open()
    if agent is None or follow:
        names = agent_logs.agents(session)
    if agent is None:
        invocation.answer({"session_id": session.id, "agents": names}, *(names or ["no logs"]))
        return
    if follow and agent not in names:
        others = ", ".join(names) or "(nobody)"
        invocation.note(f"no log of {agent} yet, only of {others}; waiting for it")
    chunks = agent_logs.read(session, agent, follow=follow)
    if raw:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        return
    for text in _lines(chunks):
        if invocation.as_json:
            console.emit({"agent": agent, "line": text})
        else:
            console.say(text.expandtabs())


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for piece in whole:
            yield piece.decode(errors="replace").removesuffix("\r")
    if rest:
        yield rest.decode(errors="replace")
