"""`tapstore handoff deliver`: finish what anybody queued, once or as a daemon, and wake recipients.

Nobody needs it: who sends, delivers, and who looks for work finishes what others began.  It is for
agents that must be woken, and for senders of the original scripts.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from tapstore.cli.handoff.mail import Mail, mail_command
from tapstore.cli.handoff.places import SwarmPlace
from tapstore.cli.handoff.telling import Teller, warn_about_wake_up
from tapstore.cli.params import duration
from tapstore.errors import NotFoundError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Mailbox
    from tapstore.handoffs.wakeups.notifiers import Notifier

AGAIN_SECONDS = 120.0


@click.command()
@mail_command
@click.option("--watch", is_flag=True, help="Go on, as a daemon, until SIGTERM or Ctrl-C.")
@click.option(
    "--notify",
    metavar="'COMMAND ARG…'",
    help="Run this to wake a role; no shell is involved.  {role}, {session} and {place} are "
    "replaced.  [default: tmux, in a swarm that has a socket]",
)
@click.option("--no-notify", is_flag=True, help="Wake nobody.")
@click.option(
    "--again",
    type=duration,
    default=AGAIN_SECONDS,
    metavar="DURATION",
    help="With --watch: announce mail that waits again after so long.  [default: 2 min]",
)
@click.option(
    "--interval",
    type=duration,
    metavar="DURATION",
    help="With --watch: look so often.  [default: 1 s, on S3 and the like 5 s]",
)
@click.option("--stop", is_flag=True, help="Stop the daemons of a swarm, and do nothing else.")
def deliver(
    mail: Mail,
    watch: bool,
    notify: str | None,
    no_notify: bool,
    again: float,
    interval: float | None,
    stop: bool,
) -> None:
    """Finish what anybody has queued, and wake the recipients.

    \b
    tapstore handoff deliver --watch --notify 'notify-send {role} "mail is waiting"'

    Any number of daemons may run.  A wake-up that fails is tried again; it fails no delivery.
    """  # fmt: skip
    if stop:
        _stop(mail)
        return
    if notify is not None and no_notify:
        raise click.UsageError("--notify and --no-notify: give one of them")
    from tapstore.handoffs.wakeups.notifiers import Ending

    ending = Ending()
    notifier = None if no_notify else mail.place.notifier(_command(notify), ending)
    teller = Teller(mail)
    mailbox = _any_mailbox(mail)
    if watch:
        from tapstore.cli.handoff.watching import Watch

        Watch(mail, mailbox, teller, notifier, ending, again_seconds=again, interval=interval).run()
        return
    woken = dict.fromkeys(role for delivery in mailbox.deliver() for role in teller.tell(delivery))
    if woken:
        mail.place.ring()
    if notifier is not None:
        for role in woken:
            _wake(mail, notifier, role)


def _command(text: str | None) -> list[str] | None:
    if text is None:
        return None
    from tapstore.cli.running import check  # as slow as all other imports together

    try:
        argv = shlex.split(text)
    except ValueError as exc:
        raise click.UsageError(f"--notify {text!r} can't be split into arguments: {exc}") from exc
    if not argv:
        raise click.UsageError("--notify is empty: name a command")
    if "{" not in argv[0]:
        check(argv)
    return argv


def _any_mailbox(mail: Mail) -> Mailbox:
    """Through it all is delivered, whosever it is."""
    missing = NotFoundError(f"{mail.place.name} has no roles, so there is nothing to deliver")
    for role in mail.place.roles():
        try:
            return mail.place.mailbox(role)
        except NotFoundError as exc:  # its worktree is away
            missing = exc
    raise missing


def _wake(mail: Mail, notify: Notifier, role: str) -> None:
    from tapstore.handoffs.wakeups.notifiers import WakeUpError

    try:
        notify(role)
    except WakeUpError as exc:
        warn_about_wake_up(mail, role, exc)


def _stop(mail: Mail) -> None:
    from tapstore.handoffs.swarm.finding import main_project
    from tapstore.handoffs.wakeups.daemon import DaemonFiles

    place = mail.place
    if not isinstance(place, SwarmPlace):
        raise click.UsageError("--stop is for a swarm; end the daemons of a session with SIGTERM")
    was_running = DaemonFiles(main_project(place.project)).stop()
    mail.invocation.answer(
        {"was_running": was_running}, "stopped" if was_running else "no daemon was running"
    )
