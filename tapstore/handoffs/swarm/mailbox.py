"""The hand-offs of one role in a folder of the original layout, for one agent.

Original scripts and the original daemon may work on the same folders at the same time.  Roles are
read anew for each command: who may be written to and how this role receives from `project`, as the
scripts do; where others work from beside the repository, as the daemon does (`finding`).

There are no leases in this layout: `done` is for whoever asks, and what an agent that died had
accepted is what the role's next agent gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tapstore.abc import Clock
from tapstore.errors import AlreadyExistsError
from tapstore.handoffs import draft as drafts
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
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import HandoffName, name_for, parse_id
from tapstore.handoffs.swarm import delivery, lists, outbox, upkeep
from tapstore.handoffs.swarm import roles as rosters
from tapstore.handoffs.swarm.batches import Batches
from tapstore.handoffs.swarm.finding import main_project
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.inbox import Tasks
from tapstore.handoffs.swarm.roles import Role, Roster


class SwarmMailbox(Mailbox):
    """The mailbox of `role`; `opening.open` makes it."""

    def __init__(
        self, project: str, role: str, worktree: str, clock: Clock, mode: Mode | None = None
    ) -> None:
        self.role = role
        self.project = project
        self._folder = Folder(worktree)
        self._clock = clock
        self._mode = mode

    def send(self, draft: drafts.Given, *, name: str = "draft") -> Queued:
        """Check a draft, queue it and deliver it as far as possible now.

        Raises `DraftError` with all its faults; then nothing was written.  `place` is where it was
        queued; once all recipients have it, it is in `sent/` under the same name.
        """
        known = rosters.read(self.project)
        roster = self._everybody()
        checked = drafts.check(
            draft,
            sender=self.role,
            roles=tuple(known.roles),
            resolve=GitCommits(self._folder.worktree),
            name=name,
        )
        self._folder.make()
        queued, message = outbox.queue(self._folder, checked, self._clock)
        return self._delivered(roster, str(queued), queued, message)

    def next(self) -> Accepted | None:
        """What is in process, again, or the next that waits; None if nothing does.

        Delivers first what is due in the outboxes of all.  Raises `MailboxStateError`.
        """
        inbox = self._inbox()
        for _ in self.deliver():
            pass
        return inbox.next()

    def done(self) -> Completed:
        return self._inbox().done()

    def current(self) -> tuple[Item, ...]:
        return tuple(lists.current(self._role(), self._folder))

    def entries(self) -> Iterator[Entry]:
        return lists.entries(self._role(), self._folder)

    def find(self, wanted: str) -> Item:
        return lists.find(self._role(), self._folder, wanted)

    def receipts(self, wanted: str) -> tuple[Receipt, ...]:
        sent = lists.find_sent(self._role(), self._folder, wanted)
        return lists.receipts(self._everybody(), self._folder, sent)

    def deliver(self) -> Iterator[Delivery]:
        return delivery.everything(self._main, self._clock, self._folder)

    def retry(self, wanted: str) -> Queued:
        """Queue again what failed.  Raises `NotFoundError` if nothing of this name did, and
        `AlreadyExistsError` if it is queued already."""
        sent = lists.find_sent(self._role(), self._folder, wanted, failed=True)
        roster = self._everybody()
        message = sent.letter.message
        assert message is not None
        self._folder.make()
        try:
            name = outbox.queue_again(self._folder, sent.letter.name)
        except FileExistsError as exc:
            raise AlreadyExistsError(f"{exc.filename} is queued already") from exc
        stamp, sender = parse_id(message.id)
        whole = name_for(message.priority, stamp, sender, message.recipients)
        return self._delivered(roster, name, whole, message)

    def prune(self, older_than_seconds: float, *, dry_run: bool = False) -> Iterator[str]:
        role = self._role()
        self._folder.make()
        return upkeep.prune(
            self._everybody(), role, self._folder, older_than_seconds, dry_run=dry_run
        )

    @cached_property
    def _main(self) -> Path:
        return main_project(self.project)

    def _everybody(self) -> Roster:
        return rosters.read(self._main)

    def _role(self) -> Role:
        return rosters.read(self.project)[self.role]

    def _inbox(self) -> Tasks | Batches:
        role = self._role()
        mode = self._mode or role.receive_mode
        self._folder.make()
        kind = Batches if mode == "batch" else Tasks
        return kind(role, self._folder, self._clock)

    def _delivered(self, roster: Roster, file: str, name: HandoffName, message: Message) -> Queued:
        """Deliver what was just queued; whoever was faster has done it for us."""
        result = delivery.one(roster, self._folder, file, self._clock, now=True)
        place = f"{self._folder.outbox}/{file}"
        if result is None:
            return Queued(name, place, message)
        waiting = message.recipients if result.failed else result.waiting
        return Queued(name, place, message, waiting, result.reason, result.failed)
