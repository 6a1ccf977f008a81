"""`tapstore handoff list | show | retry | prune`: what is where, and mending it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tapstore.cli import console
from tapstore.cli.handoff.mail import Mail, mail_command
from tapstore.cli.handoff.sending import queued_answer
from tapstore.cli.handoff.words import say
from tapstore.cli.params import duration
from tapstore.errors import NotFoundError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Item, Mailbox, Receipt

STANDINGS = ("queued", "delivered", "accepted", "dead", "failed")


@click.command("list")
@mail_command
@click.option(
    "--standing",
    "standings",
    type=click.Choice(STANDINGS),
    multiple=True,
    metavar="STANDING",
    help=f"Only these: {', '.join(STANDINGS)}.  Repeatable.",
)
def list_(mail: Mail, standings: tuple[str, ...]) -> None:
    """Show what waits, is in process, failed or dead; of all roles if none is named."""
    from tapstore.handoffs import report

    found = [
        entry
        for entry in mail.of_each(lambda mailbox: mailbox.entries())
        if not standings or entry.standing in standings
    ]
    rows = map(report.entry_row, found)
    mail.invocation.answer(
        {"entries": [report.entry_value(entry) for entry in found]},
        *(console.table(report.ENTRY_COLUMNS, rows) if found else ["no hand-offs"]),
    )


@click.command()
@mail_command
@click.argument("wanted", metavar="ID")
def show(mail: Mail, wanted: str) -> None:
    """Show one message, by its id or name, and what became of its copies."""
    from tapstore.handoffs import report

    mailbox, item = _find(mail, wanted)
    receipts = _receipts(mail, mailbox, item)
    if mail.invocation.as_json:
        value = {
            **report.item_value(item),
            "receipts": [report.receipt_value(receipt) for receipt in receipts],
        }
        mail.invocation.answer(value)
    else:
        say(*report.shown_lines(item, receipts))


def _find(mail: Mail, wanted: str) -> tuple[Mailbox, Item]:
    """In the mailbox of the role that is named, else in whichever has it."""

    def ask(mailbox: Mailbox) -> Iterator[tuple[Mailbox, Item]]:
        try:
            yield mailbox, mailbox.find(wanted)
        except NotFoundError:
            if mail.given_role is not None:
                raise

    for found in mail.of_each(ask):
        return found
    raise NotFoundError(
        f"no role has a hand-off {wanted!r} in {mail.place.name}; `tapstore handoff list` shows "
        "what is there"
    )


def _receipts(mail: Mail, mailbox: Mailbox, item: Item) -> tuple[Receipt, ...]:
    """Its sender has them; none if that one, or its copy, is gone."""
    sender = item.message.sender
    if sender != mailbox.role:
        if sender not in mail.place.roles():
            return ()
        try:
            mailbox = mail.place.mailbox(sender)
        except NotFoundError:  # its worktree is away
            return ()
    try:
        return mailbox.receipts(item.message.id)
    except NotFoundError:
        return ()


@click.command()
@mail_command
@click.argument("wanted", metavar="ID")
def retry(mail: Mail, wanted: str) -> None:
    """Queue again what failed, or what is dead in the role's mailbox."""
    queued = mail.mailbox().retry(wanted)
    queued_answer(mail, queued)


@click.command()
@mail_command
@click.option(
    "--older-than",
    type=duration,
    required=True,
    metavar="DURATION",
    help="Only what was completed or sent longer ago (30d).",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(mail: Mail, older_than: float, dry_run: bool) -> None:
    """Remove what was completed or sent long ago; of all roles if none is named.

    A copy that is delivered again after its record was removed is new mail: keep records for
    longer than any agent or delivery may be stopped.
    """
    removed = []
    for place in mail.of_each(lambda mailbox: mailbox.prune(older_than, dry_run=dry_run)):
        removed.append(place)
        if not mail.invocation.as_json:
            console.say(f"{'would remove' if dry_run else 'removed'} {place}")
    if mail.invocation.as_json:
        mail.invocation.answer({"dry_run": dry_run, "removed": removed})
    else:
        mail.invocation.note(f"{len(removed)} removed" if not dry_run else f"{len(removed)} found")
