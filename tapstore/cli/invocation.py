"""Which session a command is about, who asks, and how to answer.

The session: `-w`, before or after the subcommand, else `TAPSTORE_URL`, else the nearest folder
upwards that has `.tap/`, as git finds its repository, or a `tapstore.toml` that names one, else
what the user's own configuration names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tapstore.cli import console
from tapstore.cli.settings import Setting, Settings, upwards
from tapstore.errors import FormatError, SessionNotFoundError
from tapstore.keys import mask_url, same_service

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

    @cached_property
    def settings(self) -> Settings:
        """What holds without being said in this call."""
        return Settings(os.environ, os.getcwd())

    # Where

    @property
    def given_url(self) -> str | None:
        """The session that was named, if one was."""
        if self.url:
            return self.url
        setting = self.settings.get("url")
        return None if setting is None else setting.value

    def find_url(self) -> str:
        """The session that is meant.  Raises `SessionNotFoundError`."""
        return self.where().value

    def where(self) -> Setting:
        """The same, with what named it."""
        if self.url:
            return Setting(self.url, "-w")
        named = self.settings.from_environment("url")
        if named is not None:
            return named
        named = self.settings.from_files("url")
        folder = _upwards()
        if folder is not None and (named is None or _is_nearer(folder, named.source)):
            return Setting(folder, "nearest .tap/")
        if named is None:
            raise SessionNotFoundError(
                f"no session in {os.getcwd()} or a folder above it: name one with -w URL or "
                "TAPSTORE_URL, or make one here with `tapstore init --role ROLE …`"
            )
        return named

    @contextmanager
    def configured(self, url: str) -> Iterator[Mapping[str, Any]]:
        """The `storage_options` to open `url` with, in this block.

        What the store does not take of them becomes a `FormatError` that names the file.
        """
        options = self.settings.options(url)
        try:
            yield options.values
        except TypeError as exc:
            if not options.values:
                raise
            raise FormatError(f"{options.source}: tapstore.storage_options: {exc}") from exc

    def artifact_options(self, url: str) -> Mapping[str, Any]:
        """The `storage_options` that are set for a place of artifacts."""
        return self.settings.options(url).values

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

        url = self.find_url()
        with self.configured(url) as options:
            session = opening.open(
                url, storage_options=options, artifact_options=self.artifact_options
            )
        return click.get_current_context().with_resource(session)

    def open_with_locks(self, *, warn: bool = True) -> Session:
        """The same, for a command that uses the lock service, with credentials that are set.

        With `warn`, says so if a service is set that the session does not use.
        """
        session = self.open()
        setting = self.settings.get("locks")
        if setting is not None:
            session.locks.give(setting.value)
            if warn and not same_service(used := session.locks.name, setting.value):
                self.warn(
                    "LocksSettingIgnored",
                    f"session {session.id} uses the lock service {mask_url(used)}; "
                    f"{mask_url(setting.value)} ({setting.source}) is for sessions that "
                    "`tapstore init` makes; `tapstore locks switch SERVICE` changes this one's",
                )
        return session

    # Who

    @property
    def agent(self) -> str:
        """`--agent`, `TAPSTORE_AGENT`, what is configured, or user@host."""
        return self.who().value

    def who(self) -> Setting:
        """The same, with what named it."""
        if self.agent_option:
            return Setting(self.agent_option, "--agent")
        return self.settings.get("agent") or Setting(_user_at_host(), "default")

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


def _upwards() -> str | None:
    return next((f for f in upwards(os.getcwd()) if os.path.isdir(os.path.join(f, ".tap"))), None)


def _is_nearer(folder: str, file: str) -> bool:
    """Whether a folder, the present one or one above it, is nearer than a configuration file."""
    for each in upwards(os.getcwd()):
        if each == os.path.dirname(file):
            return False
        if each == folder:
            return True
    return False


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
    return _where("the nearest folder upwards with .tap/ or a tapstore.toml")(_how(command))


def options_of_init(command: F) -> F:
    """The same, for the command that makes what the others look for."""
    return _where("what is configured, else this folder")(_how(command))


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
    help="Who asks.  [default: $TAPSTORE_AGENT, else user@host; see `config`]",
)  # fmt: skip

claim_option = click.option(
    "--claim", metavar="ID", expose_value=False, callback=_keep("claim_option"),
    help="The claim, as `tapstore claim` printed it.  [default: $TAPSTORE_CLAIM]",
)  # fmt: skip

reason_option = click.option("--reason", default="", help="Why; it stands in the log.")
