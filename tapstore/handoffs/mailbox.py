"""What one role does with hand-offs, wherever they lie: send, take the next, be done with it.

`queue` keeps them in a session on any store; `swarm` in a folder of the original layout, together
with the original scripts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tapstore.errors import TapstoreError
from tapstore.handoffs.draft import Given
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import HandoffName

Mode = Literal["task", "batch"]
"""Whether a role takes one message at a time, or all that wait with the priority of the first."""

Standing = Literal["queued", "delivered", "accepted", "completed", "dead", "failed"]
"""`queued`: not at its recipient yet.  `dead`: given up after too many attempts.  `failed`: it can
not be delivered as it is."""


class MailboxStateError(TapstoreError):
    """What is in process does not fit what is asked; `keyword` is what the original scripts print.

    The places that stand in the way are named, with the way out.
    """

    def __init__(
        self, keyword: str, reason: str, *, places: Iterable[str] = (), exit_code: int = 2
    ) -> None:
        self.keyword = keyword
        self.reason = reason
        self.places = tuple(places)
        self.exit_code = exit_code
        head = f"{keyword}: {reason}" if reason else keyword
        super().__init__("\n".join([head, *(f"- {place}" for place in self.places)]))


class MailboxFullError(TapstoreError):
    """Too much waits for a recipient; nothing was written.  Try again when less does."""

    exit_code = 4


class HandoffWarning(UserWarning):
    """Something beside the matter did not succeed; the message says what remains to be done."""


@dataclass(frozen=True, slots=True)
class Item:
    """One message where it lies now."""

    place: str
    """Path of its file in a folder of the original layout, else its key in the session."""

    message: Message
    attempt: int = 1
    """How often it has been accepted, this time included."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a role is to work on: one message, or a batch."""

    items: tuple[Item, ...]
    batch: str = ""
    """Where the batch lies; empty if this is a single message."""

    resumed: bool = False
    """It was accepted before; this is the same work again."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What has been completed, as one."""

    items: tuple[Item, ...]
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """What `send` did."""

    name: HandoffName
    place: str
    message: Message
    waiting: tuple[str, ...] = ()
    """Recipients that it could not be delivered to yet; the next who delivers goes on."""

    reason: str = ""
    """Why they wait, if that is known."""

    failed: str = ""
    """Why it can never be delivered; then all recipients wait for a retry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in a list."""

    name: str
    standing: Standing
    place: str
    role: str
    """Whose mailbox it is in."""

    since: float
    """Since when it stands so, in seconds since the epoch."""

    agent: str = ""
    """Who has accepted it, if that is known."""

    attempt: int = 0
    reason: str = ""
    """Why it failed or is dead, or why its delivery is tried again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one recipient's copy."""

    recipient: str
    standing: Standing
    at: float | None = None
    """Since when, in seconds since the epoch."""

    agent: str = ""
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What delivering one message came to.  A recipient is in at most one of the first three."""

    name: str
    sender: str
    delivered: tuple[str, ...] = ()
    """Recipients who have it now and had it not before."""

    waiting: tuple[str, ...] = ()
    """Recipients for whom it will be tried again."""

    failed: str = ""
    """Why it was moved to the failed ones; empty if it was not."""

    attempts: int = 0
    """How often it has been tried in vain so far."""

    reason: str = ""
    """Why it waits."""


class Mailbox(ABC):
    """The hand-offs of one role, as one agent sees them.  For one thread at a time."""

    role: str

    @abstractmethod
    def send(self, draft: Given, *, name: str = "draft") -> Queued:
        """Check a draft, queue it and deliver it as far as possible now.

        `draft` is the text of a draft, or a mapping of its headers.  Raises `DraftError` with all
        its faults; then nothing was written.  `name` is for errors.
        """

    @abstractmethod
    def next(self) -> Accepted | None:
        """What is in process, again, or the next that waits; None if nothing does.

        Finishes deliveries of others that it comes across.  Raises `MailboxStateError`.
        """

    @abstractmethod
    def done(self) -> Completed:
        """Complete what is in process.  Raises `MailboxStateError` if nothing is, or it is not
        clear what, and `LeaseLostError` if somebody else has completed it already."""

    @abstractmethod
    def current(self) -> tuple[Item, ...]:
        """What is in process, in order; nothing is taken, and what waits is not looked at."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """What waits, is in process, failed or dead in this role's mailbox, and what it queued
        and is not delivered; not what is completed or sent."""

    @abstractmethod
    def find(self, wanted: str) -> Item:
        """The message of this name or id, wherever it lies, own or received.

        Raises `NotFoundError`, or `InvalidKeyError` for what is neither.
        """

    @abstractmethod
    def receipts(self, wanted: str) -> tuple[Receipt, ...]:
        """What became of each copy of a message that this role has sent."""

    @abstractmethod
    def deliver(self) -> Iterator[Delivery]:
        """Finish what anybody queued; of all roles, not of this alone."""

    @abstractmethod
    def retry(self, wanted: str) -> Queued:
        """Queue again what failed, or what is dead in this mailbox."""

    @abstractmethod
    def prune(self, older_than_seconds: float, *, dry_run: bool = False) -> Iterator[str]:
        """Remove what was completed or sent longer ago than that; yields the places."""
