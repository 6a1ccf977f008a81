"""`tapstore handoff send`: from a draft, or from options, with what is known filled in."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

import click

from tapstore.cli.handoff.mail import Mail, mail_command
from tapstore.cli.handoff.places import SessionPlace
from tapstore.cli.handoff.words import say
from tapstore.cli.params import assignment
from tapstore.errors import FormatError, NotFoundError, StoreError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Item, Mailbox, Queued

PRIORITY = "50"

CURRENT = "current"
"""Stands for the id of what the role is working on."""


class NoDraftError(click.ClickException):
    """There is no such file; exits as the original scripts do."""

    exit_code = 1


@click.command()
@mail_command
@click.argument("draft", required=False)
@click.option("--to", "recipients", multiple=True, metavar="ROLE[,ROLE]…", help="To whom.")
@click.option("--priority", metavar="NN", help=f"00 to 99, 00 comes first.  [default: {PRIORITY}]")
@click.option(
    "--type", "kind", metavar="TYPE", help="[default: note with --message, else git_handoff]"
)
@click.option(
    "--task",
    metavar="NAME",
    help="Its stable name.  [default, for git_handoff: that of what the role is working on]",
)
@click.option(
    "--commit", metavar="REV", help="Any name of a commit.  [default, for git_handoff: HEAD]"
)
@click.option("--message", metavar="TEXT", help="The line of a note.")
@click.option(
    "--set",
    "headers",
    type=assignment,
    multiple=True,
    metavar="HEADER=VALUE",
    help="A header of a type that the session declares.  Repeatable.",
)
@click.option(
    "--reply-to",
    metavar="ID",
    help=f"What it answers; '{CURRENT}' is what the role is working on.",
)
@click.option("--correlation-id", metavar="ID", help="What the messages of a thread share.")
@click.option(
    "--artifact",
    "artifacts",
    multiple=True,
    metavar="NAME",
    help="An artifact of the session that goes with it.  Repeatable.",
)
def send(
    mail: Mail,
    draft: str | None,
    recipients: tuple[str, ...],
    priority: str | None,
    kind: str | None,
    task: str | None,
    commit: str | None,
    message: str | None,
    headers: tuple[tuple[str, str], ...],
    reply_to: str | None,
    correlation_id: str | None,
    artifacts: tuple[str, ...],
) -> None:
    """Check a DRAFT ('-': standard input), queue it and deliver it; or say it in options.

    A draft has headers only; its file is removed when the message is queued.

    \b
    tapstore handoff send --to cleaner --task cave-setup
    tapstore handoff send --to architect,QA --message 'the cave is ready'
    """  # fmt: skip
    given = [
        *(("to", ",".join(recipients)) for _ in recipients[:1]),
        *_if_given("priority", priority),
        *_if_given("type", kind),
        *_if_given("task", task),
        *_if_given("commit", commit),
        *_if_given("message", message),
        *headers,
        *_if_given("reply_to", reply_to),
        *_if_given("correlation_id", correlation_id),
    ]
    if draft is not None and (given or artifacts):
        raise click.UsageError("give a DRAFT or options, not both: a draft has all headers")
    if draft is None and not given:
        raise click.UsageError(
            "what is to be sent? Name a DRAFT, or say it: `tapstore handoff send --to ROLE "
            "--task NAME`, `tapstore handoff send --to ROLE --message TEXT`"
        )
    mailbox = mail.mailbox()
    if draft is None:
        text = _Composer(mail, mailbox).draft(given, artifacts)
        queued = mailbox.send(text, name="what is given")
    else:
        queued = mailbox.send(_read(draft), name=draft)
        if draft != "-":
            _remove(mail, draft)
    queued_answer(mail, queued)


def _if_given(header: str, value: str | None) -> list[tuple[str, str]]:
    return [] if value is None else [(header, value)]


def queued_answer(mail: Mail, queued: Queued) -> None:
    """Say where it is, and who has it not yet; then wake the others."""
    from tapstore.handoffs import report

    if mail.invocation.as_json:
        mail.invocation.answer(report.queued_value(queued))
    else:
        say(*report.queued_lines(queued))
    if undelivered := report.undelivered_line(queued):
        mail.invocation.note(undelivered)
    mail.place.sent([r for r in queued.message.recipients if r not in queued.waiting])


def _read(draft: str) -> bytes:
    from tapstore.handoffs.draft import MAX_BYTES

    if draft == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        # Not opened before it is known to be a file: a pipe would wait for its writer.
        if stat.S_ISREG(os.stat(draft).st_mode):
            with open(draft, "rb") as stream:
                return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        pass
    raise NoDraftError(
        f"there is no draft {draft!r}, or it is no regular file: write one, or say it in options: "
        "`tapstore handoff send --to ROLE --task NAME`"
    )


def _remove(mail: Mail, draft: str) -> None:
    try:
        os.unlink(draft)
    except FileNotFoundError:
        pass
    except OSError as exc:
        mail.invocation.warn(
            "DraftNotRemoved",
            f"the message is queued, but {draft} could not be removed ({exc.strerror}): remove "
            "it, so that nobody sends it again",
        )


class _Composer:
    """Makes a draft of options."""

    def __init__(self, mail: Mail, mailbox: Mailbox) -> None:
        self._mail = mail
        self._mailbox = mailbox
        self._current: tuple[Item, ...] | None = None

    def draft(self, given: list[tuple[str, str]], artifacts: tuple[str, ...]) -> bytes:
        """All that is wrong with it, the check of drafts says; save what no draft could hold."""
        from tapstore.handoffs.message import header_fault

        # Doubled ones stay doubled, so that the check tells of them.
        lines = [(name, value) for name, value in given if name not in ("commit", "reply_to")]
        names = {name for name, _ in given}
        kind = dict(given).get("type", "note" if "message" in names else "git_handoff")
        if "type" not in names:
            lines.insert(0, ("type", kind))
        if "priority" not in names:
            lines.append(("priority", PRIORITY))
        if kind == "git_handoff" and "task" not in names:
            lines += self._task()
        commits = [value for name, value in given if name == "commit"]
        if not commits and kind == "git_handoff":
            commits = ["HEAD"]
        lines += [("commit", self._commit(value)) for value in commits]
        lines += [("reply_to", self._id(value)) for name, value in given if name == "reply_to"]
        if artifacts:
            lines.append(("artifacts", self._artifacts(artifacts)))
        for name, value in lines:
            fault = header_fault(name, value)
            if fault:
                raise click.UsageError(fault)
        return "".join(f"{name}: {value}\n" for name, value in lines).encode(
            "utf-8", "surrogateescape"
        )

    def _working_on(self) -> tuple[Item, ...]:
        if self._current is None:
            self._current = self._mailbox.current()
        return self._current

    def _task(self) -> list[tuple[str, str]]:
        tasks = {
            i.message.headers["task"] for i in self._working_on() if "task" in i.message.headers
        }
        return [("task", tasks.pop())] if len(tasks) == 1 else []

    def _id(self, value: str) -> str:
        if value != CURRENT:
            return value
        working_on = self._working_on()
        if len(working_on) != 1:
            raise click.UsageError(
                f"--reply-to {CURRENT}: {self._mailbox.role} is working on {len(working_on)} "
                "messages; name the id of one"
            )
        return working_on[0].message.id

    def _commit(self, revision: str) -> str:
        from tapstore.handoffs.gitcommit import GitCommits

        try:
            return GitCommits(os.getcwd()).abbreviate(revision)
        except FormatError as exc:
            raise click.UsageError(f"--commit: {exc}") from exc
        except StoreError as exc:
            raise StoreError(
                f"{exc}; a git_handoff names a commit: call this in your worktree, or send a note "
                "with --message"
            ) from exc

    def _artifacts(self, names: tuple[str, ...]) -> str:
        from tapstore.handoffs import references
        from tapstore.handoffs.references import Reference

        place = self._mail.place
        if not isinstance(place, SessionPlace):
            raise click.UsageError(
                "--artifact is for sessions: a folder of the original layout has no artifacts"
            )
        found = []
        for name in names:
            artifact = place.session.tapfile.artifact(name)
            if artifact is None:
                known = ", ".join(sorted({a.name for a in place.session.tapfile.artifacts}))
                raise NotFoundError(
                    f"{place.name} has no artifact {name!r}; it has {known or 'none'}"
                )
            sha256 = artifact.checksum.removeprefix("sha256:")
            found.append(Reference(artifact.name, sha256, artifact.phase))
        return references.render(found)
