"""How hand-offs are printed: in the words of the original scripts, at the beginnings of lines.

Agents look for these words, so that no `error: ` stands before them, and lines that follow are not
indented.  What a terminal could take for a command is escaped as everywhere; a tab, which the
original scripts let through, stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation
from tapstore.errors import TapstoreError


def say(*lines: str) -> None:
    """Print lines on standard output."""
    sys.stdout.write("".join(f"{_clean(line)}\n" for line in lines))
    sys.stdout.flush()


@contextmanager
def refusals(invocation: Invocation) -> Iterator[None]:
    """Print what hand-offs refuse as the original scripts do, and exit as they do."""
    from tapstore.handoffs.draft import DraftError
    from tapstore.handoffs.mailbox import MailboxStateError
    from tapstore.handoffs.report import refusal_value

    try:
        yield
    except (MailboxStateError, DraftError) as exc:
        value = {
            "type": type(exc).__name__,
            "message": str(exc),
            "exit_code": exc.exit_code,
            **refusal_value(exc),
        }
        _complain(invocation, value, exc)
        raise click.exceptions.Exit(exc.exit_code) from exc


def _complain(invocation: Invocation, value: object, error: TapstoreError) -> None:
    # Where it can't be said the exit code still tells it.
    with suppress(OSError):
        if invocation.as_json:
            sys.stderr.write(console.json_line({"error": value}))
        else:
            sys.stderr.write("".join(f"{_clean(line)}\n" for line in str(error).split("\n")))
        sys.stderr.flush()


def _clean(line: str) -> str:
    return "\t".join(map(console.clean, line.split("\t")))
