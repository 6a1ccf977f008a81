"""The mailbox of a role in a session."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from tapstore.errors import AlreadyExistsError, NotAllowedError
from tapstore.handoffs import draft as drafts
from tapstore.handoffs import names, references
from tapstore.handoffs.draft import Resolve
from tapstore.handoffs.gitcommit import GitCommits
from tapstore.handoffs.mailbox import (
    Accepted,
    Completed,
    Delivery,
    Entry,
    Item,
    Mailbox,
    Mode,
    Queued,
    Receipt,
)
from tapstore.handoffs.message import Message, write_time
from tapstore.handoffs.queue import pressure, pruning, records
from tapstore.handoffs.queue import settings as settings_file
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.inbox import Inbox
from tapstore.handoffs.queue.lists import Lists
from tapstore.handoffs.queue.outbox import Outbox
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.handoffs.queue.settings import MAX_LEASE_SECONDS, MIN_LEASE_SECONDS, Settings
from tapstore.keys import check_name
from tapstore.sessions.session import Session

DELIVER_SECONDS = 5.0
"""How often an agent that has nothing to do finishes what others began to send."""


def mailbox(
    session: Session,
    *,
    role: str,
    agent: str,
    mode: Mode | None = None,
    lease_seconds: float | None = None,
    resolve: Resolve | None = None,
) -> QueueMailbox:
    """The mailbox of `role`, as `agent` works on it.

    `mode`: how it receives; None: as the session's settings say.  `lease_seconds`: without a sign
    of life for so long, what it accepted may be taken over (None: as the settings say).  `resolve`
    gives the written form of commits (default: asks git, in the current folder).

    Raises `InvalidKeyError` for a role that can't take part, `NotAllowedError` if the session does
    not know it, `FormatError` for settings that can't be read.
    """
    return QueueMailbox(
        session, role=role, agent=agent, mode=mode, lease_seconds=lease_seconds, resolve=resolve
    )


open = mailbox  # as every `opening` has one


class QueueMailbox(Mailbox):
    """One role's hand-offs in a session.  Made by `tapstore.mailbox`.  For one thread at a time."""

    def __init__(
        self,
        session: Session,
        *,
        role: str,
        agent: str,
        mode: Mode | None,
        lease_seconds: float | None,
        resolve: Resolve | None,
    ) -> None:
        self.session = session
        self.role = role
        self.agent = check_name(agent, "agent id")
        self._store = session.store
        self._places = Places(role)
        if role not in self._roles_now():
            raise NotAllowedError(
                f"session {session.id} has no role {role!r}; its roles are "
                f"{', '.join(sorted(self._known)) or '(none)'}"
            )
        self.settings: Settings = settings_file.load(self._store)
        lease = self.settings.lease_seconds if lease_seconds is None else lease_seconds
        if not MIN_LEASE_SECONDS <= lease <= MAX_LEASE_SECONDS:
            raise NotAllowedError(
                f"a lease lasts {MIN_LEASE_SECONDS:g} s to {MAX_LEASE_SECONDS:g} s, not {lease:g}"
            )
        self.mode: Mode = mode or self.settings.receive.get(role, "task")
        self._resolve = resolve or GitCommits(".")
        self._sequence = Sequence(self._store, self._places, session.clock)
        self._outbox = Outbox(self._store, roles=self._roles_now)
        self._endings = Endings(self._store, self._places)
        self._lists = Lists(self._store, self.settings)
        self._inbox = Inbox(
            self._store,
            self._places,
            self.settings,
            agent=self.agent,
            mode=self.mode,
            lease_seconds=lease,
            clock=session.clock,
        )
        self._delivers_at = 0.0

    def _roles_now(self) -> frozenset[str]:
        """The roles of the session."""
        self._known = frozenset(self.session.state.peek().tapfile.roles())
        return self._known

    # Sending

    def send(self, draft: drafts.Given, *, name: str = "draft") -> Queued:
        """See `Mailbox.send`.  Raises `MailboxFullError` if too much waits for a recipient."""
        known = self._known
        try:
            checked = self._check(draft, known, name)
        except drafts.DraftError:
            if self._roles_now() == known:
                raise
            checked = self._check(draft, self._known, name)
        self._check_artifacts(checked, name)
        pressure.check(self._store, checked.recipients, self.settings.max_waiting)
        queued = self._outbox.send(checked, self._sequence)
        self.session.wake()
        return queued

    def _check(self, draft: drafts.Given, roles: Collection[str], name: str) -> drafts.Draft:
        return drafts.check(
            draft,
            sender=self.role,
            roles=roles,
            resolve=self._resolve,
            types=self.settings.types,
            name=name,
        )

    def _check_artifacts(self, draft: drafts.Draft, name: str) -> None:
        """Refuse references to artifacts that the session has not, or has with other bytes."""
        if "artifacts" not in draft.headers:
            return
        tapfile = self.session.state.peek().tapfile
        faults = []
        for reference in references.parse(draft.headers["artifacts"]):
            artifact = tapfile.artifact(reference.name, reference.phase)
            if artifact is None:
                faults.append(f"the session has no artifact {reference}")
            elif artifact.checksum != f"sha256:{reference.sha256}":
                faults.append(
                    f"the artifact {reference.name!r} has {artifact.checksum or 'no checksum'}, "
                    f"not sha256:{reference.sha256}"
                )
        if faults:
            raise drafts.DraftError(
                name,
                tuple(drafts.Fault(None, f"header 'artifacts': {fault}.") for fault in faults),
                "`tapstore artifacts` lists what is registered; publish before you send.",
            )

    def deliver(self) -> Iterator[Delivery]:
        return self._outbox.deliver()

    def retry(self, wanted: str) -> Queued:
        name = self._lists.name_of(self._places, wanted, self._known)
        record = self._endings.record(name)
        if record is not None and records.is_dead(record):
            queued = self._revive(name, record)
        else:
            queued = self._outbox.retry_failed(self._places, name)
        self.session.wake()
        return queued

    def _revive(self, name: str, record: Message) -> Queued:
        """Send a dead letter anew: what has ended does not begin again under its name.

        The new name is written down first, so whoever comes after a crash sends the same again.
        """
        sender = names.parse(name).sender
        sequence = (
            self._sequence
            if sender == self.role
            else Sequence(self._store, Places(sender), self.session.clock)
        )
        drawn = names.name_for(record.priority, sequence.draw(), sender, (self.role,))
        fresh = names.parse(self._endings.revived_as(name, str(drawn)))
        now = self._store.now()
        headers = {
            **records.without_own(record.headers),
            "id": fresh.id,
            "to": self.role,
            "created_at": write_time(now),
            records.RETRY_OF: record.id,
        }
        for header in ("recipient", "enqueued_at", "dequeued_at", "completed_at"):
            headers.pop(header, None)
        message = Message(headers, record.body)
        queued = Queued(fresh, self._places.waiting(str(fresh)), message)
        if not self._endings.has_ended(str(fresh)):
            with suppress(AlreadyExistsError):
                queued = self._outbox.post(str(fresh), message, at=now)
        self._store.delete(f"{self._places.dead}{name}")
        return queued

    # Receiving

    def next(self) -> Accepted | None:
        accepted = self._inbox.next()
        now = self.session.clock.monotonic()
        if accepted is not None or now < self._delivers_at:
            return accepted
        self._delivers_at = now + DELIVER_SECONDS
        if any(self.role in delivery.delivered for delivery in list(self.deliver())):
            return self._inbox.next()
        return None

    def done(self) -> Completed:
        return self._inbox.done()

    def renew(self) -> None:
        """Begin the lease of what is held again.  Raises `LeaseLostError` if it is lost."""
        self._inbox.renew()

    def release(self, reason: str = "", *, only: Collection[str] = ()) -> tuple[Item, ...]:
        """Give back what is in process; it counts as an attempt, and is had again a second later.

        `only`: places of some items of a batch; the others stay.  Raises as `done` does.
        """
        return self._inbox.release(reason, only=only)

    def close(self) -> None:
        """Leave no empty folders behind.  What is held stays held until its lease passes."""
        self._inbox.close()

    # Looking

    def current(self) -> tuple[Item, ...]:
        """What this agent has in process; nothing is taken, and what waits is not looked at."""
        return self._inbox.current()

    def entries(self) -> Iterator[Entry]:
        return self._lists.entries(self._places)

    def find(self, wanted: str) -> Item:
        return self._lists.find(self._places, wanted, self._known)

    def receipts(self, wanted: str) -> tuple[Receipt, ...]:
        name = self._lists.name_of(self._places, wanted, self._known)
        return self._lists.receipts(Places(names.parse(name).sender), name)

    def prune(self, older_than_seconds: float, *, dry_run: bool = False) -> Iterator[str]:
        return pruning.prune(self._store, self._places, older_than_seconds, dry_run=dry_run)
