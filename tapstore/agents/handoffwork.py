"""Hand-offs in the hands of an agent, as one piece of work: their lease is kept while it lasts.

Results are registered in one commit before the hand-offs are completed.  So whoever reads the
completion finds them; and what was registered by an agent that then lost its lease, or died, stays
until the next attempt registers the same names anew.

Not promised: that nobody else works on the same, if this agent outlives its lease unawares.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tapstore.agents.job import Job
from tapstore.agents.logs import RunLog
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.errors import LeaseLostError, TapstoreError
from tapstore.handoffs import report
from tapstore.handoffs.mailbox import Accepted, Completed, Item
from tapstore.handoffs.message import Message
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.opening import QueueMailbox
from tapstore.handoffs.queue.places import file_name, split_attempt
from tapstore.locks.guard import Renewer
from tapstore.sessions.config import new_id
from tapstore.tapfile import operations
from tapstore.tasks import work as works


class HandoffWork(Job):
    """One message, or a batch of them, that was accepted.  Made by `HandoffWorker`."""

    def __init__(
        self, mailbox: QueueMailbox, lock: threading.Lock, accepted: Accepted, *, since: float
    ) -> None:
        """`lock` guards the mailbox.  `since`: on the session's monotonic clock, before which
        nothing of this was accepted."""
        self.session = mailbox.session
        self.role = mailbox.role
        self.agent = mailbox.agent
        self.items = accepted.items
        """The messages, in order; of a batch more than one."""
        self.batch = accepted.batch.rpartition("/")[2]
        """Id of the batch; empty if this is a single message."""
        self.resumed = accepted.resumed
        """An earlier life of this agent accepted it."""
        self.inputs: tuple[Artifact, ...] = ()
        """The artifacts that the messages refer to."""
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the agent was told to stop; who works for long asks now and then."""
        self._mailbox = mailbox
        self._lock = lock
        self._results: list[Artifact] = []
        self._lease = min(_lease(item, mailbox.settings.lease_seconds) for item in self.items)
        self._renewer = Renewer(
            self._renew,
            ttl=self._lease,
            expires=since + self._lease,
            name=f"the lease of {self.what}",
            clock=self.session.clock,
        )
        self._renewer.start()

    # What it is

    @property
    def message(self) -> Message:
        """The message; of a batch the first one."""
        return self.items[0].message

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the messages."""
        return tuple(map(name_of, self.items))

    @property
    def attempt(self) -> int:
        """How often it has been accepted, this time included; of a batch the highest number."""
        return max(item.attempt for item in self.items)

    @property
    def requirement(self) -> str:
        """The bodies, with an empty line between two."""
        return "\n\n".join(item.message.body.rstrip("\n") for item in self.items)

    @property
    def output_name(self) -> str:
        """Empty: a message does not say what its result is to be called."""
        return ""

    @property
    def what(self) -> str:
        """For people."""
        return f"{self.batch} ({len(self.items)} hand-offs)" if self.batch else self.names[0]

    # Working on it

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is known to be lost; never cleared."""
        return self._renewer.lost

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is known to be lost.  No I/O."""
        self._renewer.check()

    def fetch(self, folder: str | os.PathLike[str]) -> list[tuple[Artifact, str]]:
        """Copy the inputs into a folder of this host, verified; see `Work.fetch`."""
        return works.fetch(self.session, self.inputs, folder)

    def add(
        self,
        name: str,
        source: Source,
        *,
        type: str = "",
        consumers: Iterable[str] = (),
        media_type: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Store an artifact, to be registered when the work is completed."""
        self.check()
        artifact = self.session.stage(
            name,
            source,
            type=type,
            consumers=consumers,
            producer=self.agent,
            media_type=media_type,
            metadata=metadata,
        )
        self._results.append(artifact)
        return artifact

    def _renew(self) -> float:
        with self._lock:
            started = self.session.clock.monotonic()
            self._mailbox.renew()
        return started + self._lease

    # Ending it

    def refuse(self, item: Item, reason: str) -> None:
        """Give back one message of a batch."""
        with self._lock:
            self._mailbox.release(reason, only=(item.place,))
        self.items = tuple(other for other in self.items if other.place != item.place)

    def complete(self, *, overwrite: bool = False) -> Completed:
        """Register what was added, then complete the messages.

        `overwrite`: it may replace what other roles have registered.  Raises `LeaseLostError` if
        the lease is lost; others may have completed them.
        """
        self.check()
        if self._results:
            self.session.state.commit(
                operations.Publish(
                    id=new_id(),
                    by=self.agent,
                    artifacts=tuple(self._results),
                    role=self.role,
                    overwrite=overwrite,
                )
            )
        self._renewer.stop()
        with self._lock:
            return self._mailbox.done()

    def release(self, reason: str) -> None:
        """Give it back for somebody else; it counts as an attempt.  Raises as `complete` does."""
        self._renewer.stop()
        with self._lock:
            self._mailbox.release(reason)

    def abandon(self) -> None:
        """Leave it as it is; nothing keeps its lease any more."""
        self._renewer.stop()

    def is_completed(self) -> bool:
        """Whether this agent has completed it in this attempt, by what is recorded."""
        # Without the lock, which a renewal that is stuck may hold: this only reads.
        return all(map(self._is_completed, self.items))

    def _is_completed(self, item: Item) -> bool:
        with suppress(TapstoreError):
            for receipt in self._mailbox.receipts(name_of(item)):
                if receipt.recipient == self.role:
                    return (receipt.standing, receipt.agent, receipt.attempt) == (
                        "completed", self.agent, item.attempt,
                    )  # fmt: skip
        return False

    # As a command sees it

    def loss(self) -> TapstoreError:
        try:
            self.check()
        except LeaseLostError as exc:
            return exc
        return LeaseLostError(f"the lease of {self.what} has ended")

    def was_ended_by_command(self) -> bool:
        # A place that did not answer in time would not answer this in time.
        return self._renewer.was_refused and self.is_completed()

    def describe(self) -> dict[str, Any]:
        values = [{"name": name_of(item), **report.item_value(item)} for item in self.items]
        return {
            "role": self.role,
            "slot": None,
            "agent": self.agent,
            "claim": None,
            "token": None,
            "attempt": self.attempt,
            "requirement": self.requirement,
            "task": None,
            "handoff": None if self.batch else values[0],
            "batch": self.batch or None,
            "handoffs": values,
        }

    def environment(self) -> dict[str, str]:
        return {
            "TAPSTORE_ROLE": self.role,
            "TAPSTORE_AGENT": self.agent,
            "TAPSTORE_HANDOFF": " ".join(self.names),
            "TAPSTORE_BATCH": self.batch,
            "TAPSTORE_ATTEMPT": str(self.attempt),
        }

    def log(self) -> RunLog:
        # Behind all that the same agent ran under claims, which have small numbers in this place.
        at = int(self.session.store.now() * 1000)
        return RunLog(
            self.session,
            agent=self.agent,
            run=f"{at:015d}-{new_id()}",
            title=f"{self.what} in {self.session.id}, attempt {self.attempt} for {self.role}",
        )

    def __repr__(self) -> str:
        return f"<HandoffWork on {self.what} in {self.session.id} by {self.agent}>"


def name_of(item: Item) -> str:
    """The name of a message that was accepted."""
    return split_attempt(file_name(item.place))[0]


def _lease(item: Item, default: float) -> float:
    """For how long others leave it alone: what was accepted says so itself."""
    try:
        return float(item.message.headers[records.LEASE])
    except (KeyError, ValueError):
        return default
