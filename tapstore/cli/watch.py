"""`tapstore watch`: events as they happen; as text, to a command, or to a webhook.

A command or webhook that fails is complained about and watching goes on.  Whoever starts again
with `--after` the last revision that they saw misses nothing.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import alarm, console
from tapstore.cli.events import TYPES, describe, events
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.params import duration, or_none
from tapstore.cli.running import CannotRunError, NoCommandError, check
from tapstore.errors import WaitTimeoutError
from tapstore.keys import mask_url

if TYPE_CHECKING:
    from tapstore.sessions.session import Session


@click.command()
@common_options
@click.option(
    "-e",
    "--event",
    "kinds",
    type=click.Choice(TYPES),
    multiple=True,
    metavar="TYPE",
    help=f"Only this type: {', '.join(TYPES)}.  Repeatable.  [default: all]",
)
@click.option(
    "--after",
    type=click.IntRange(0),
    metavar="REV",
    help="Begin after this revision.  [default: now]",
)
@click.option("--once", is_flag=True, help="Stop after the first event.")
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="Exit with 4 when nothing of it happened for so long.",
)
@click.option(
    "--webhook",
    metavar="URL",
    callback=lambda *a: alarm.check(a[2]),
    help="POST each event there as JSON; tried three times.",
)
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG]…]")
@click.pass_obj
def watch(
    invocation: Invocation,
    kinds: tuple[str, ...],
    after: int | None,
    once: bool,
    timeout: float | None,
    webhook: str | None,
    command: tuple[str, ...],
) -> None:
    """Show events as they happen, or hand each to a command.

    COMMAND is run for each event, which it gets as JSON on its standard input.

    \b
    tapstore watch --event failed --event reset -- notify-send "an agent needs help"
    tapstore watch --event failed --webhook https://alerts.example/hook
    """  # fmt: skip
    if command:
        check(command)
    session = invocation.open()
    for event in _events(session, after, timeout, kinds or TYPES):
        if webhook is not None:
            alarm.post(webhook, event, complain=partial(invocation.warn, "WebhookWarning"))
        if command:
            _give(invocation, command, event)
        elif invocation.as_json:
            console.emit(event)
        elif webhook is None:
            reason = f" ({event['reason']})" if event["reason"] else ""
            who = event["by"] or "somebody"
            console.say(f"{event['rev']:>5}  {event['event']:<9}  {who}: {describe(event)}{reason}")
        if once:
            return


def _events(
    session: Session, after: int | None, timeout: float | None, kinds: Collection[str]
) -> Iterator[dict[str, Any]]:
    whose = {"session_id": session.id, "url": mask_url(session.url)}
    clock = session.clock
    limit = math.inf if timeout is None else timeout
    deadline = clock.monotonic() + limit
    while True:
        left = max(0.0, deadline - clock.monotonic())
        for entry in session.watch(after=after, timeout=or_none(left)):
            after = entry.rev
            head = session.state.log.at(entry.rev)
            assert head is not None  # records are permanent
            for event in events(head):
                if event["event"] in kinds:
                    yield {**event, **whose}
                    deadline = clock.monotonic() + limit
            break  # what nobody asked for gives no more time
        else:
            what = "nothing" if kinds is TYPES else "none of these"
            raise WaitTimeoutError(f"session {session.id}: {what} happened for {timeout:g} s")


def _give(invocation: Invocation, command: Sequence[str], event: dict[str, Any]) -> None:
    try:
        status = subprocess.run(
            command, input=console.json_line(event).encode(), check=False
        ).returncode
    except OSError as exc:
        kind = NoCommandError if isinstance(exc, FileNotFoundError) else CannotRunError
        raise kind(f"cannot run {command[0]!r}: {exc.strerror}") from exc
    if status:
        invocation.warn(
            "CommandWarning",
            f"{command[0]} exited with {status} on {event['event']} of revision {event['rev']}; "
            "watching goes on",
        )
