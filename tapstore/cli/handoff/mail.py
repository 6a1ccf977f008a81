"""Whose hand-offs a command is about, and where they lie.

`--swarm`, else a session that is named (`-w`, `TAPSTORE_URL`), else the folder with
`.swarmforge/roles.tsv` that the original scripts would find from here, else the session that other
commands find.  The role: `--role`, else `TAPSTORE_ROLE`, else `SWARMFORGE_ROLE`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tapstore.cli.handoff.places import Place, RoleError, SessionPlace, SwarmPlace
from tapstore.cli.handoff.words import refusals
from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.errors import NotFoundError, TapstoreError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Mailbox, Mode
    from tapstore.handoffs.queue.opening import QueueMailbox
    from tapstore.sessions.waiting import Waiter

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Mail:
    """The hand-offs that one call is about."""

    def __init__(self, invocation: Invocation, swarm: str | None, role: str | None) -> None:
        self.invocation = invocation
        self._swarm = swarm
        self._role = role

    @cached_property
    def place(self) -> Place:
        """Raises `NotFoundError` if there is neither a swarm nor a session."""
        project = self._project()
        if project is not None:
            return SwarmPlace(project)
        return SessionPlace(self.invocation.open(), self.invocation.agent)

    def _project(self) -> Path | None:
        """The folder of the swarm that is meant; None: a session is."""
        if self._swarm is not None and self.invocation.url:
            raise click.UsageError("-w names a session and --swarm a folder: give one of them")
        if self._swarm is None and (
            self.invocation.url or self.invocation.settings.from_environment("url")
        ):
            return None
        from tapstore.handoffs.swarm import finding

        project = finding.find_project(Path(self._swarm or os.curdir))
        if project is None and self._swarm is not None:
            raise NotFoundError(
                f"no swarm at {self._swarm!r}: there is no .swarmforge/roles.tsv in it, nor in "
                "its git repository"
            )
        return project

    @property
    def given_role(self) -> str | None:
        """The role that was named, if one was."""
        return (
            self._role
            or os.environ.get("TAPSTORE_ROLE")
            or os.environ.get("SWARMFORGE_ROLE")
            or None
        )

    @property
    def role(self) -> str:
        """The role that is meant.  Raises an error if none is named."""
        role = self.given_role
        if role is None:
            in_swarm = isinstance(self.place, SwarmPlace)
            reason = (
                f"whose hand-offs? Set {'SWARMFORGE' if in_swarm else 'TAPSTORE'}_ROLE, or give "
                f"--role: {self.place.name} has {', '.join(self.place.roles()) or 'no roles'}"
            )
            raise RoleError(reason) if in_swarm else click.UsageError(reason)
        return role

    def mailbox(self, *, mode: Mode | None = None, lease_seconds: float | None = None) -> Mailbox:
        """Of the role that is meant."""
        return self.place.mailbox(self.role, mode=mode, lease_seconds=lease_seconds)

    def queue(self, what: str, *, lease_seconds: float | None = None) -> QueueMailbox:
        """The same, for a command that sessions alone have."""
        place = self.place
        if not isinstance(place, SessionPlace):
            raise click.UsageError(
                f"{what} is for sessions: in a folder of the original layout what was accepted "
                "has no lease, and stays with its role"
            )
        return place.mailbox(self.role, lease_seconds=lease_seconds)

    def of_each(self, ask: Callable[[Mailbox], Iterable[T]]) -> Iterator[T]:
        """What the mailbox of the role that is named answers, else those of all.

        Of all, one that can't be looked into is left out with a warning, unless none can.
        """
        if self.given_role is not None:
            yield from ask(self.mailbox())
            return
        failed: OSError | None = None
        asked = 0
        for role in self.place.roles():
            try:
                yield from ask(self.place.mailbox(role))
                asked += 1
            except OSError as exc:
                if isinstance(exc, TapstoreError) and not isinstance(exc, NotFoundError):
                    raise
                failed = exc
                self.invocation.warn("RoleLeftOut", f"{role} is left out: {exc}")
        if failed is not None and not asked:
            raise failed

    @contextmanager
    def waiting(self, timeout: float | None) -> Iterator[Waiter]:
        with closing(self.place.waiter(self.role, timeout)) as waiter:
            yield waiter


def mail_command(command: F) -> F:
    """A command whose first argument is the `Mail` that it is about, with the options for that."""

    @wraps(command)
    def with_mail(
        invocation: Invocation, /, *args: Any, swarm: str | None, role: str | None, **options: Any
    ) -> Any:
        with refusals(invocation):
            return command(Mail(invocation, swarm, role), *args, **options)

    return cast("F", _role(_swarm(agent_option(common_options(click.pass_obj(with_mail))))))


_role = click.option(
    "--role", metavar="ROLE",
    help="Whose hand-offs.  [default: $TAPSTORE_ROLE, else $SWARMFORGE_ROLE]",
)  # fmt: skip

_swarm = click.option(
    "--swarm", metavar="DIR",
    help="A folder of the original layout.  [default: if no session is named, the one here]",
)  # fmt: skip
