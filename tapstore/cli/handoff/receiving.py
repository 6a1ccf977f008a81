"""`tapstore handoff next | done | renew | release`: take work, be done with it, or give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from tapstore.cli.handoff.mail import Mail, mail_command
from tapstore.cli.handoff.words import say
from tapstore.cli.params import duration, duration_or_forever, or_none

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Accepted, Completed, Mailbox, Mode

mode_option = click.option(
    "--mode",
    type=click.Choice(["task", "batch"]),
    help="One message, or all of the first one's priority.  [default: as the role is set to]",
)

lease_option = click.option(
    "--lease",
    type=duration,
    metavar="DURATION",
    help="After so long without `renew`, others may take it over.  [default: the session's]",
)


@click.command("next")
@mail_command
@mode_option
@lease_option
@click.option(
    "--wait",
    type=duration_or_forever,
    default=0.0,
    metavar="DURATION",
    help="Wait so long, or 'forever', until there is something.  [default: do not]",
)
def next_(mail: Mail, mode: str | None, lease: float | None, wait: float) -> None:
    """Show what the role is working on, or take what comes next; NO_TASK if nothing waits."""
    mailbox = mail.mailbox(mode=cast("Mode | None", mode), lease_seconds=lease)
    accepted = mailbox.next()
    if accepted is None and wait:
        accepted = _wait(mail, mailbox, wait)
    _accepted(mail, accepted)


def _wait(mail: Mail, mailbox: Mailbox, wait: float) -> Accepted | None:
    accepted = None
    with mail.waiting(or_none(wait)) as waiter:
        while accepted is None and waiter.wait():
            accepted = mailbox.next()
    return accepted


def _accepted(mail: Mail, accepted: Accepted | None) -> None:
    from tapstore.handoffs import report

    if mail.invocation.as_json:
        mail.invocation.answer(report.accepted_value(accepted))
    else:
        say(*report.accepted_lines(accepted))


@click.command()
@mail_command
@mode_option
@lease_option
def done(mail: Mail, mode: str | None, lease: float | None) -> None:
    """Complete what the role is working on, and take what comes next."""
    from tapstore.handoffs import report

    mailbox = mail.mailbox(mode=cast("Mode | None", mode), lease_seconds=lease)
    completed = mailbox.done()
    if not mail.invocation.as_json:
        # At once: what comes next may be refused, and this is done all the same.
        say(*report.completed_lines(completed))
        _accepted(mail, mailbox.next())
        return
    _completed_and_next(mail, completed, mailbox)


def _completed_and_next(mail: Mail, completed: Completed, mailbox: Mailbox) -> None:
    """One object; with `next` null if that was refused, which is told as any error."""
    from tapstore.handoffs import report

    value = {"completed": report.completed_value(completed), "next": None}
    try:
        value["next"] = report.accepted_value(mailbox.next())
    finally:
        mail.invocation.answer(value)


@click.command()
@mail_command
def renew(mail: Mail) -> None:
    """Say that the work is still going on: its lease begins again.

    Exits with 5 if it is lost: somebody else may have it.
    """
    mailbox = mail.queue("renew")
    mailbox.renew()
    mail.invocation.answer({"role": mailbox.role}, f"the lease of {mailbox.role} begins again")


@click.command()
@mail_command
@click.option("--reason", default="", help="Why; who takes it next can see it.")
def release(mail: Mail, reason: str) -> None:
    """Give back what the role is working on, for somebody else to take; the attempt counts."""
    from tapstore.handoffs import report

    items = mail.queue("release").release(reason)
    value = {"items": [report.item_value(item) for item in items]}
    mail.invocation.answer(value, *(f"RELEASED: {item.place}" for item in items))
