"""Where hand-offs lie: in a folder of the original layout, or in a session.

Each opens mailboxes, waits for mail and wakes roles in its own way; commands need not know which
it is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tapstore.errors import InvalidKeyError, SessionNotFoundError, TapstoreError

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Entry, Mailbox, Mode
    from tapstore.handoffs.queue.opening import QueueMailbox
    from tapstore.handoffs.wakeups.notifiers import Ending, Notifier
    from tapstore.sessions.session import Session
    from tapstore.sessions.waiting import Waiter

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
    def notifier(self, command: list[str] | None, ending: Ending) -> Notifier | None:
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
        from tapstore.handoffs.swarm import finding, roles
        from tapstore.sessions.waiting import Waiter
        from tapstore.stores.local import LocalStore

        worktree = roles.read(self.project)[role].worktree
        store = LocalStore(os.path.join(worktree, finding.FOLDER))
        return Waiter(store, SYSTEM_CLOCK, timeout=timeout)

    def notifier(self, command: list[str] | None, ending: Ending) -> Notifier | None:
        from tapstore.handoffs.swarm import opening, roles
        from tapstore.handoffs.wakeups import notifiers

        if command is not None:
            return notifiers.command(
                command,
                place=str(self.project),
                session=lambda role: roles.read(self.project)[role].session,
                ending=ending,
            )
        if not opening.tmux_socket(self.project):
            return None
        return notifiers.tmux(self.project, ending=ending)

    def can_begin(self, entry: Entry) -> bool:
        # What has a reason can't be read: nobody could do anything about it by waking up.
        return entry.standing == "delivered" and not entry.reason

    def sent(self, roles: list[str]) -> None:
        from tapstore.handoffs.swarm import opening
        from tapstore.handoffs.swarm.finding import main_project
        from tapstore.handoffs.wakeups import notifiers
        from tapstore.handoffs.wakeups.daemon import DaemonFiles

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

    def notifier(self, command: list[str] | None, ending: Ending) -> Notifier | None:
        from tapstore.handoffs.wakeups import notifiers
        from tapstore.keys import mask_url

        if command is None:
            return None
        session = self.session
        return notifiers.command(
            command,
            place=mask_url(session.url),
            session=lambda _role: session.id,
            ending=ending,
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
        del roles  # the mailbox has rung

    def ring(self) -> None:
        self.session.wake()

    def is_ended(self, error: Exception) -> bool:
        return isinstance(error, SessionNotFoundError)


M = TypeVar("M", bound="Mailbox")


def _kept_open(mailbox: M) -> M:
    """Close it when the command ends, if it can be closed."""
    close = getattr(mailbox, "close", None)
    if close is not None:
        click.get_current_context().call_on_close(close)
    return mailbox
