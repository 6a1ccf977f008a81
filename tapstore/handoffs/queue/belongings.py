"""What one agent has in process, what became of it, and the errors that say so.

An agent is known by its id alone: what it accepted in an earlier life is its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapstore.abc import Store
from tapstore.errors import LeaseLostError
from tapstore.handoffs.mailbox import MailboxStateError, Mode
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.attempts import Attempts, InProcess
from tapstore.handoffs.queue.endings import Endings, exists, is_of
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.records import Attempt


@dataclass(frozen=True, slots=True)
class Own:
    """The attempts of one agent."""

    live: tuple[Attempt, ...] = ()
    ended: tuple[Attempt, ...] = ()
    """Completed by itself; a crash left the rest."""

    lost: tuple[Attempt, ...] = ()
    """Ended by somebody else."""

    overtaken: tuple[Attempt, ...] = ()
    """Accepted anew since."""


class Belongings:
    """The attempts of one agent in one mailbox."""

    def __init__(
        self,
        store: Store,
        places: Places,
        attempts: Attempts,
        endings: Endings,
        *,
        agent: str,
        mode: Mode,
    ) -> None:
        self._store = store
        self._places = places
        self._attempts = attempts
        self._endings = endings
        self._agent = agent
        self._mode = mode

    def look(self, seen: InProcess) -> Own:
        """All of it.  What is left of messages of which nothing else is left is removed."""
        live: list[Attempt] = []
        ended: list[Attempt] = []
        lost: list[Attempt] = []
        overtaken: list[Attempt] = []
        for name, number, info in seen.each():
            attempt = self._attempts.read(name, number, info)
            if attempt is None or attempt.agent != self._agent or attempt.released:
                continue
            record = self._endings.record(name)
            if record is None and not exists(self._store, self._places.waiting(name)):
                # It ended between these two looks, or so long ago that its record is pruned.
                record = self._endings.record(name)
                if record is None:
                    self._store.delete(attempt.key)
                    continue
            if record is not None:
                (ended if is_of(record, attempt) else lost).append(attempt)
            elif number == max(seen.attempts[name]):
                live.append(attempt)
            else:
                overtaken.append(attempt)
        return Own(tuple(live), tuple(ended), tuple(lost), tuple(overtaken))

    def holding(self, seen: InProcess) -> tuple[Attempt, ...]:
        """What it holds, as far as that has not ended.  Nothing is changed."""
        found = []
        for name in sorted(seen.attempts):
            latest = seen.latest(name)
            attempt = self._attempts.read(name, *latest) if latest is not None else None
            if (
                attempt is not None
                and attempt.agent == self._agent
                and not attempt.released
                and not self._endings.has_ended(name)
            ):
                found.append(attempt)
        return tuple(found)

    def live(self, own: Own) -> tuple[Attempt, ...]:
        """What it holds.  Raises `LeaseLostError`, or `MailboxStateError`, if that is nothing."""
        if own.live:
            return own.live
        if own.lost or own.overtaken:
            raise self.too_late(own.lost or own.overtaken)
        raise self.nothing()

    def nothing(self) -> MailboxStateError:
        """Says that nothing is in process."""
        keyword = "NO_CURRENT_BATCH" if self._mode == "batch" else "NO_CURRENT_TASK"
        return MailboxStateError(keyword, "", exit_code=1)

    def shape(
        self, live: tuple[Attempt, ...], is_batch: str, is_single: str
    ) -> tuple[Attempt, ...]:
        """`live` if it is what an agent that receives so can have in process."""
        batches = {attempt.batch for attempt in live}
        places = [
            f"{self._places.in_process}{batch}" if batch else attempt.key
            for attempt in live
            for batch in [attempt.batch]
        ]
        way_out = "use next and done as this role receives, or release"
        if self._mode == "task" and any(batches):
            raise MailboxStateError(is_batch, way_out, places=dict.fromkeys(places))
        if self._mode == "batch" and "" in batches:
            raise MailboxStateError(is_single, way_out, places=dict.fromkeys(places))
        if len(batches) > 1 or (len(live) > 1 and batches == {""}):
            raise MailboxStateError(
                "AMBIGUOUS_TASK_STATE",
                f"agent {self._agent} has more than one thing in process; give back what it does "
                "not work on",
                places=dict.fromkeys(places),
            )
        return live

    def too_late(self, lost: tuple[Attempt, ...], *, completed: int = 0) -> LeaseLostError:
        """Says who was faster, once: the attempts are removed."""
        said = []
        for attempt in lost:
            record = self._endings.record(attempt.name)
            if record is None:
                said.append(f"{attempt.name} is in somebody else's hands by now")
                continue
            by = record.headers.get(records.AGENT, "?")
            how = "dead" if records.is_dead(record) else f"completed by {by}"
            said.append(f"{attempt.name} is {how}, attempt {records.number_of(record)}")
            self._store.delete(attempt.key)
        also = f"; {completed} others of the batch are completed" if completed else ""
        return LeaseLostError(
            f"too late: {'; '.join(said)}.  This was attempt {lost[0].number} of "
            f"{self._agent}: nothing of it was recorded{also}.  `tapstore handoff next` goes on"
        )
