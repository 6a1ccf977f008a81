"""Which session a command is about, who asks, and how to answer.

The session: `-w`, before or after the subcommand, else `TAPSTORE_URL`, else the nearest folder
upwards that has `.tap/`, as git finds its repository.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tapstore.cli import console
from tapstore.errors import SessionNotFoundError

if TYPE_CHECKING:
    from tapstore.sessions.claim import Claim
    from tapstore.sessions.session import Session

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Invocation:
    """One call of `tapstore`; options fill it in as they are met."""

    url: str | None = None
    as_json: bool = False
    agent_option: str | None = None
    claim_option: str | None = None

    # Where

    @property
    def given_url(self) -> str | None:
        """The session that was named, if one was."""
        return self.url or os.environ.get("TAPSTORE_URL") or None

    def find_url(self) -> str:
        """The session that is meant.  Raises `SessionNotFoundError`."""
        return self.given_url or _upwards()

    def check_root(self, root: str | None) -> None:
        """Refuse `--root` beside `-w`; `TAPSTORE_URL` in the environment gives way to it."""
        if root is not None and self.url is not None:
            raise click.UsageError(
                "-w names one session and --root all below a place: give one of the two"
            )

    def absolute_url(self) -> str:
        """The same, for a command that may run in another folder."""
        url = self.find_url()
        return url if "://" in url else os.path.abspath(url)

    def open(self) -> Session:
        """Open the session; it is closed when the command ends."""
        from tapstore.sessions import opening

        return click.get_current_context().with_resource(opening.open(self.find_url()))

    # Who

    @property
    def agent(self) -> str:
        """`--agent`, `TAPSTORE_AGENT`, or user@host."""
        return self.agent_option or os.environ.get("TAPSTORE_AGENT") or _user_at_host()

    @property
    def claim_id(self) -> str | None:
        """`--claim` or `TAPSTORE_CLAIM`, if there is one."""
        return self.claim_option or os.environ.get("TAPSTORE_CLAIM") or None

    def claim(self, session: Session) -> Claim:
        """The claim that the command is about, without heartbeats."""
        if self.claim_id is None:
            raise click.UsageError(
                "no claim is named: set TAPSTORE_CLAIM, or --claim, to the id that "
                "`tapstore claim ROLE` printed"
            )
        return session.resume_claim(self.claim_id)

    # How

    def answer(self, value: Any, *lines: str) -> None:
        """Print the result: the value with `--json`, else the lines."""
        if self.as_json:
            console.emit(value)
        else:
            console.say(*lines)

    def note(self, *lines: str) -> None:
        """Explain something to a person, on standard error."""
        if not self.as_json:
            console.note(*lines)

    def warn(self, kind: str, message: str) -> None:
        """Say on standard error what went wrong but does not end the command."""
        warning = {"warning": {"type": kind, "message": message}}
        self.complain(warning, f"warning: {message}")

    def complain(self, value: Any, text: str) -> None:
        """Print an error or warning on standard error: the value with `--json`, else the text."""
        # Where it can't be said (a full disk, a reader that has gone) the exit code still tells it.
        with suppress(OSError):
            if self.as_json:
                sys.stderr.write(console.json_line(value))
                sys.stderr.flush()
            else:
                # Indented, a line that somebody put into a message can't pass for one of ours.
                first, *rest = text.split("\n")
                console.note(first, *(f"  {line}" for line in rest))


def _upwards() -> str:
    folder = start = os.getcwd()
    while not os.path.isdir(os.path.join(folder, ".tap")):
        above = os.path.dirname(folder)
        if above == folder:
            raise SessionNotFoundError(
                f"no session in {start} or a folder above it: name one with -w URL or "
                "TAPSTORE_URL, or make one here with `tapstore init --role ROLE …`"
            )
        folder = above
    return folder


def _user_at_host() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run as a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that notes an option in the invocation, wherever on the line it stood."""

    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Invocation), name, value)

    return callback


def common_options(command: F) -> F:
    """`-w` and `--json`, which are taken before and after the subcommand."""
    return _where("the nearest folder upwards with .tap/")(_how(command))


def options_of_init(command: F) -> F:
    """The same, for the command that makes what the others look for."""
    return _where("this folder")(_how(command))


def _where(otherwise: str) -> Callable[[F], F]:
    return click.option(
        "-w", "--workspace", metavar="URL", expose_value=False, callback=_keep("url"),
        help=f"The session: a folder or URL.  [default: $TAPSTORE_URL, else {otherwise}]",
    )  # fmt: skip


_how = click.option(
    "--json", is_flag=True, expose_value=False, callback=_keep("as_json"),
    help="Print JSON, one object a line; errors too.",
)  # fmt: skip

agent_option = click.option(
    "--agent", metavar="ID", expose_value=False, callback=_keep("agent_option"),
    help="Who asks.  [default: $TAPSTORE_AGENT, else user@host]",
)  # fmt: skip

claim_option = click.option(
    "--claim", metavar="ID", expose_value=False, callback=_keep("claim_option"),
    help="The claim, as `tapstore claim` printed it.  [default: $TAPSTORE_CLAIM]",
)  # fmt: skip

reason_option = click.option("--reason", default="", help="Why; it stands in the log.")
