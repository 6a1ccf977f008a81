"""Whose hand-offs a command is about, and where they lie.

`--swarm`, else a session that is named (`-w`, `TAPSTORE_URL`), else the folder with
`.swarmforge/roles.tsv` that the original scripts would find from here, else the session that other
commands find.  The role: `--role`, else `TAPSTORE_ROLE`, else `SWARMFORGE_ROLE`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tapstore.cli.handoff.words import refusals
from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.errors import InvalidKeyError, NotFoundError, SessionNotFoundError, TapstoreError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Entry, Mailbox, Mode
    from tapstore.handoffs.queue.opening import QueueMailbox
    from tapstore.handoffs.wakeups.notifiers import Notifier
    from tapstore.sessions.session import Session
    from tapstore.sessions.waiting import Waiter

F = TypeVar("F", bound=Callable[..., Any])


_SENDER_WAKES_SECONDS = 2.0
"""How long a sender waits for each step of a wake-up: it has something else to do."""


class RoleError(click.ClickException):
    """No role was named, or none that is there; exits as the original scripts do."""

    exit_code = 1


class Place(ABC):
    """Where hand-offs lie."""

    name: str
    """For people."""

    is_files = True
    """Whether looking often costs nothing."""

    @abstractmethod
    def roles(self) -> list[str]:
        """All roles, as they are now."""

    @abstractmethod
    def mailbox(
        self, role: str, *, mode: Mode | None = None, lease_seconds: float | None = None
    ) -> Mailbox:
        """The mailbox of a role; it is closed when the command ends."""

    @abstractmethod
    def waiter(self, role: str, timeout: float | None) -> Waiter:
        """Paces who looks for mail again and again."""

    @abstractmethod
    def notifier(self, command: list[str] | None) -> Notifier | None:
        """How roles are woken: by a command, or as is usual here; None: they are not."""

    @abstractmethod
    def sent(self, roles: list[str]) -> None:
        """Wake these roles, to whom something was delivered, as far as nobody else does."""

    def can_begin(self, entry: Entry) -> bool:
        """Whether this is mail that its role could begin now."""
        return entry.standing == "delivered"

    def is_held(self, entry: Entry) -> bool:
        """Whether somebody is working on it."""
        return entry.standing == "accepted"

    def ring(self) -> None:
        """Wake whoever waits in `next --wait` for mail that was delivered just now."""
        return

    def is_ended(self, error: Exception) -> bool:
        """Whether there is nothing any more that a daemon could deliver."""
        del error
        return False


class SwarmPlace(Place):
    """A folder of the original layout."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.name = f"the swarm at {project}"

    def roles(self) -> list[str]:
        from tapstore.handoffs.swarm import roles

        return sorted(roles.read(self.project).roles)

    def mailbox(
        self, role: str, *, mode: Mode | None = None, lease_seconds: float | None = None
    ) -> Mailbox:
        from tapstore.handoffs.swarm import opening

        if lease_seconds is not None:
            raise click.UsageError(
                "--lease is for sessions: in a folder of the original layout what was accepted "
                "has no lease"
            )
        try:
            return opening.open(self.project, role=role, mode=mode)
        except InvalidKeyError as exc:
            raise RoleError(str(exc)) from exc

    def waiter(self, role: str, timeout: float | None) -> Waiter:
        from tapstore.clock import SYSTEM_CLOCK
        from tapstore.handoffs.swarm import roles
        from tapstore.sessions.waiting import Waiter
        from tapstore.stores.local import LocalStore

        worktree = roles.read(self.project)[role].worktree
        store = LocalStore(os.path.join(worktree, roles.FOLDER))
        return Waiter(store, SYSTEM_CLOCK, timeout=timeout)

    def notifier(self, command: list[str] | None) -> Notifier | None:
        from tapstore.handoffs.swarm import opening, roles
        from tapstore.handoffs.wakeups import notifiers

        if command is not None:
            return notifiers.command(
                command,
                place=str(self.project),
                session=lambda role: roles.read(self.project)[role].session,
            )
        return notifiers.tmux(self.project) if opening.tmux_socket(self.project) else None

    def can_begin(self, entry: Entry) -> bool:
        # What has a reason can't be read: nobody could do anything about it by waking up.
        return entry.standing == "delivered" and not entry.reason

    def sent(self, roles: list[str]) -> None:
        from tapstore.handoffs.swarm import opening
        from tapstore.handoffs.wakeups import notifiers
        from tapstore.handoffs.wakeups.daemon import DaemonFiles, main_project

        if opening.tmux_socket(self.project) is None:
            return
        # A daemon sees the mail by itself, and an agent may not be allowed to use the socket.
        if DaemonFiles(main_project(self.project)).is_watched():
            return
        notify = notifiers.tmux(self.project, timeout_seconds=_SENDER_WAKES_SECONDS)
        for role in roles:
            with suppress(TapstoreError):
                notify(role)


class SessionPlace(Place):
    """A session, on any store."""

    def __init__(self, session: Session, agent: str) -> None:
        self.session = session
        self._agent = agent
        self.name = f"session {session.id}"
        self.is_files = session.store.capabilities.files

    def roles(self) -> list[str]:
        return sorted(set(self.session.state.refresh().tapfile.roles()))

    def mailbox(
        self, role: str, *, mode: Mode | None = None, lease_seconds: float | None = None
    ) -> QueueMailbox:
        from tapstore.handoffs.queue import opening

        opened = opening.open(
            self.session, role=role, agent=self._agent, mode=mode, lease_seconds=lease_seconds
        )
        return _kept_open(opened)

    def waiter(self, role: str, timeout: float | None) -> Waiter:
        from tapstore.sessions.waiting import Waiter

        del role
        bell = self.session.locks.bell if "://" in self.session.config.locks else None
        session = self.session
        return Waiter(session.store, session.clock, timeout=timeout, open_bell=bell)

    def notifier(self, command: list[str] | None) -> Notifier | None:
        from tapstore.handoffs.wakeups import notifiers
        from tapstore.keys import mask_url

        if command is None:
            return None
        session = self.session
        return notifiers.command(
            command, place=mask_url(session.url), session=lambda _role: session.id
        )

    def can_begin(self, entry: Entry) -> bool:
        return entry.standing == "delivered" or self._has_lapsed(entry)

    def is_held(self, entry: Entry) -> bool:
        return entry.standing == "accepted" and not self._has_lapsed(entry)

    def _has_lapsed(self, entry: Entry) -> bool:
        """Whether who accepted it has most likely died, so that others may take it over."""
        if entry.standing != "accepted":
            return False
        return self.session.store.now() - entry.since > self._lease_seconds

    @cached_property
    def _lease_seconds(self) -> float:
        from tapstore.handoffs.queue import settings

        return settings.load(self.session.store).lease_seconds

    def sent(self, roles: list[str]) -> None:
        if roles:
            self.ring()

    def ring(self) -> None:
        if "://" not in self.session.config.locks:
            return
        # A service that can't be reached has no bell either.
        with suppress(TapstoreError):
            bell = self.session.locks.bell()
            if bell is not None:
                with closing(bell):
                    bell.ring()

    def is_ended(self, error: Exception) -> bool:
        return isinstance(error, SessionNotFoundError)


M = TypeVar("M", bound="Mailbox")


def _kept_open(mailbox: M) -> M:
    """Close it when the command ends, if it can be closed."""
    close = getattr(mailbox, "close", None)
    if close is not None:
        click.get_current_context().call_on_close(close)
    return mailbox


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
        from tapstore.handoffs.swarm import opening

        if self._swarm is not None:
            if self.invocation.url:
                raise click.UsageError("-w names a session and --swarm a folder: give one of them")
            project = opening.find_project(Path(self._swarm))
            if project is None:
                raise NotFoundError(
                    f"no swarm at {self._swarm!r}: there is no .swarmforge/roles.tsv in it, nor in "
                    "its git repository"
                )
            return project
        if self.invocation.url or self.invocation.settings.from_environment("url"):
            return None
        return opening.find_project(Path.cwd())

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
            reason = (
                f"whose hand-offs? Set TAPSTORE_ROLE, or give --role: {self.place.name} has "
                f"{', '.join(self.place.roles())}"
            )
            if isinstance(self.place, SwarmPlace):
                raise RoleError(reason)
            raise click.UsageError(reason)
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

    def mailboxes(self) -> Iterator[Mailbox]:
        """Of the role that is named, else of all."""
        role = self.given_role
        for each in self.place.roles() if role is None else [role]:
            yield self.place.mailbox(each)

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
