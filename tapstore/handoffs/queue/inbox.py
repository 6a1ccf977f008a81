"""Takes the next message of a role for one agent, keeps it alive, completes it.

Forward only: an attempt is created, then the record of the end is looked at, so whoever slept
between two steps finds out; a message ends by the creation of one name; only then is what came
before removed.  A message may be worked on twice if its worker outlives its lease.  It is never
completed twice, and never lost.

Exclusive between agents.  One agent id at work in two processes at once has one piece of work.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator

from tapstore.abc import Clock, Store
from tapstore.errors import AlreadyExistsError, FormatError, StoreError
from tapstore.handoffs import message as messages
from tapstore.handoffs.mailbox import (
    Accepted,
    Completed,
    HandoffWarning,
    Item,
    Mode,
)
from tapstore.handoffs.message import MAX_BYTES, Message
from tapstore.handoffs.queue import records, refusal
from tapstore.handoffs.queue.attempts import Attempts, InProcess
from tapstore.handoffs.queue.batches import Batches
from tapstore.handoffs.queue.belongings import Belongings
from tapstore.handoffs.queue.endings import Endings, exists, is_of
from tapstore.handoffs.queue.line import Line
from tapstore.handoffs.queue.places import Places, file_name
from tapstore.handoffs.queue.records import Attempt
from tapstore.handoffs.queue.settings import Settings
from tapstore.sessions.config import new_id
from tapstore.types import CREATE, OVERWRITE

MAX_BATCH = 1000
MAX_BATCH_BYTES = 64 << 20
"""What waits beyond these is left for the next batch: an agent holds all of one in memory."""

LEFTOVER_SECONDS = 86_400.0
"""An attempt that holds nothing tells its agent that it lost; after so long nobody asks."""

LEFTOVER_BATCH_SECONDS = 14 * 86_400.0
"""Twice what a lease may last."""

MAX_PASSED_OVER = 100
"""If so many messages can't be read, it is the place that is broken."""


class Inbox:
    """One role's mailbox, as one agent takes work from it.  For one thread at a time."""

    def __init__(
        self,
        store: Store,
        places: Places,
        settings: Settings,
        *,
        agent: str,
        mode: Mode,
        lease_seconds: float,
        clock: Clock,
    ) -> None:
        self._store = store
        self._places = places
        self._settings = settings
        self._agent = agent
        self._mode = mode
        self._lease = lease_seconds
        self._attempts = Attempts(store, places, lease_seconds=settings.lease_seconds)
        self._endings = Endings(store, places)
        self._mine = Belongings(
            store, places, self._attempts, self._endings, agent=agent, mode=mode
        )
        self._batches = Batches(store, places, agent=agent)
        self._line = Line(store, places, ageing_seconds=settings.ageing_seconds, clock=clock)
        self._held: tuple[Attempt, ...] = ()
        self._looked = False
        """Whether what this agent may have left in process was looked for."""
        self._emptied = ""
        self._in_the_way: list[StoreError] = []
        """Why messages were passed over by the present look."""

    @property
    def held(self) -> tuple[Attempt, ...]:
        """What this object has accepted and not ended."""
        return self._held

    # Taking

    def next(self) -> Accepted | None:
        """What this agent has in process, again, or the next that waits; None if nothing does."""
        begins = not self._looked
        seen = self._attempts.look()
        resumed = self._resume(seen)
        if resumed is not None:
            return resumed
        now = self._store.now()
        self._tidy(seen, now)
        # An acceptance whose reply is lost is looked for by the next call.
        self._looked = False
        self._in_the_way = []
        held: tuple[Attempt, ...] = ()
        for name, key, number in self._startable(seen, now):
            if self._mode == "batch":
                held = self._take_batch((name, key, number), seen, now)
            else:
                attempt = self._take(name, key, number)
                held = (attempt,) if attempt is not None else ()
            if held:
                break
        if held and begins and self._yields(held):
            return self.next()
        self._held, self._looked = held, True
        if held:
            for error in self._in_the_way:
                warnings.warn(f"passed over: {error}", HandoffWarning, stacklevel=2)
            return self._accepted(held)
        if self._in_the_way:
            raise self._in_the_way[0]
        return None

    def _yields(self, held: tuple[Attempt, ...]) -> bool:
        """Whether what was just accepted is given up for what this agent has besides.

        Two processes that begin at once under one id both find nothing in process, and accept
        different messages.  Both look behind their acceptances, so one of them sees both: that one
        gives up what comes later in the queue.  Nobody was told of it yet.
        """
        keys = {attempt.key for attempt in held}
        seen = self._attempts.look()
        others = {attempt.key for attempt in self._mine.holding(seen)} - keys
        if not others or min(keys) < min(others):
            return False
        for attempt in held:
            self._store.delete(attempt.key)
        if held[0].batch:
            self._batches.drop(held[0].batch)
        return True

    def _pass_over(self, error: StoreError) -> None:
        """Go on with the next message if this is the matter of one alone; else raise it."""
        if len(self._in_the_way) == MAX_PASSED_OVER or not records.is_its_own(error):
            raise error
        self._in_the_way.append(error)

    def _resume(self, seen: InProcess) -> Accepted | None:
        if self._looked and not self._held:
            return None
        own = self._mine.look(seen)
        for attempt in own.ended:
            self._clear(attempt)
        for attempt in own.lost:
            self._store.delete(attempt.key)
        live = self._finish_closed(seen, own.live)
        live = self._mine.shape(live, "TASK_IN_PROCESS_IS_BATCH", "TASK_IN_PROCESS_IS_SINGLE")
        if self._mode == "batch":
            live = self._continue_batch(seen, live)
        self._looked = True
        self._held = live
        if not live:
            return None
        self.renew()
        return self._accepted(self._held, resumed=True)

    def _accepted(self, held: tuple[Attempt, ...], *, resumed: bool = False) -> Accepted:
        batch = held[0].batch
        return Accepted(
            items=tuple(Item(a.key, a.message, a.number) for a in held),
            batch=f"{self._places.in_process}{batch}" if batch else "",
            resumed=resumed,
        )

    def _startable(self, seen: InProcess, now: float) -> Iterator[tuple[str, str, int]]:
        """Name, key and next attempt of each message that waits and is held by nobody."""

        def is_held(name: str) -> bool:
            latest = seen.latest(name)
            try:
                return latest is not None and not self._attempts.has_ended(name, *latest, now=now)
            except StoreError as exc:
                self._pass_over(exc)
                return True

        for info in self._line.walk(is_held):
            name = file_name(info.key)
            number = self._next_number(name, seen, now)
            if number:
                yield name, info.key, number

    def _next_number(self, name: str, seen: InProcess, now: float) -> int:
        """The attempt that may be created; 0 if the message is not to be had."""
        try:
            return self._number_after(name, seen, now)
        except StoreError as exc:
            self._pass_over(exc)
            return 0

    def _number_after(self, name: str, seen: InProcess, now: float) -> int:
        latest = seen.latest(name)
        if latest is None:
            return 1
        number, info = latest
        if not self._attempts.has_ended(name, number, info, now=now):
            return 0
        last = self._attempts.read(name, number, info)
        if last is not None and last.batch:
            at = self._batches.closed_at(last.batch)
            if at is not None:
                # Its agent has completed the batch, and died before it was through with it.
                self._end(last, at=at)
                return 0
        if number >= self._settings.max_attempts:
            self._bury(name, seen)
            return 0
        return number + 1

    def _take(self, name: str, key: str, number: int, batch: str = "") -> Attempt | None:
        """Accept one message; None if it is not to be had."""
        try:
            return self._accept(name, key, number, batch)
        except StoreError as exc:
            self._pass_over(exc)
            return None

    def _accept(self, name: str, key: str, number: int, batch: str) -> Attempt | None:
        found = records.fetch(self._store, key)
        if found is None:
            return None
        try:
            message = records.check_copy(found.data, name=name, recipient=self._places.role)
        except messages.UnfinishedError as exc:
            if self._store.now() - found.info.modified > refusal.WRITING_SECONDS:
                refusal.refuse(self._store, self._places, key, str(exc))
            return None
        except FormatError as exc:
            refusal.refuse(self._store, self._places, key, str(exc))
            return None
        # Dropped by hand into another folder?  Where it waits there is only one of it.
        if key != self._places.waiting(name) and not refusal.file_again(
            self._store, self._places, key, found.data
        ):
            return None
        accepted = records.accepted(
            message,
            at=self._store.now(),
            number=number,
            agent=self._agent,
            accept_id=new_id(),
            lease_seconds=self._lease,
            batch=batch,
        )
        attempt_key = self._places.attempt(name, number)
        try:
            put = self._store.put(attempt_key, messages.render(accepted), CREATE)
        except AlreadyExistsError:
            return None
        attempt = Attempt(attempt_key, name, number, put.version, accepted)
        # Whoever slept before the line above may have created a name that was used, and removed.
        record = self._endings.record(name)
        if record is not None:
            self._endings.clear(name, record, [attempt_key])
            return None
        return attempt

    # Batches

    def _take_batch(
        self, head: tuple[str, str, int], seen: InProcess, now: float
    ) -> tuple[Attempt, ...]:
        # By hand it may have been dropped where those of its priority are not looked for.
        members = [head]
        left = MAX_BATCH_BYTES - MAX_BYTES
        for info in self._line.of_priority(head[0][:2]):
            name = file_name(info.key)
            number = self._next_number(name, seen, now) if name != head[0] else 0
            if number:
                left -= min(info.size, MAX_BYTES)
                if left < 0 or len(members) == MAX_BATCH:
                    break
                members.append((name, info.key, number))
        batch = self._batches.begin([name for name, _, _ in members])
        taken = (self._take(*member, batch=batch) for member in members)
        held = tuple(attempt for attempt in taken if attempt is not None)
        if not held:
            self._batches.drop(batch)
        return held

    def _continue_batch(self, seen: InProcess, live: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        """Accept what a crash left of a batch that was begun."""
        now = self._store.now()
        for batch, members in self._batches.begun(seen.batches):
            if live and live[0].batch != batch:
                continue
            have = {attempt.name for attempt in live}
            for name in members:
                latest = seen.latest(name)
                if name in have or (
                    # Since the batch was begun somebody has had it, or this agent gave it back.
                    latest is not None and latest[1].modified >= seen.batches[batch].modified
                ):
                    continue
                number = self._next_number(name, seen, now)
                if number:
                    attempt = self._take(name, self._places.waiting(name), number, batch)
                    live += (attempt,) if attempt is not None else ()
            if not live:
                self._batches.drop(batch)
        return tuple(sorted(live, key=lambda attempt: attempt.name))

    def _finish_closed(self, seen: InProcess, live: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        """End the batches that were completed as one before a crash; returns the others."""
        rest = []
        closed = {}
        for attempt in live:
            at = self._batches.closed_at(attempt.batch, seen.batches) if attempt.batch else None
            if at is None:
                rest.append(attempt)
            else:
                self._end(attempt, at=at)
                closed[attempt.batch] = at
        for batch in closed:
            self._batches.drop(batch)
        return tuple(rest)

    # Ending

    def done(self) -> Completed:
        """Complete what this agent has in process."""
        held = self._held
        if not held:
            own = self._mine.look(seen := self._attempts.look())
            if not own.live and own.ended:
                return self._done_before(own.ended, seen)
            held = self._mine.shape(
                self._mine.live(own), "CURRENT_WORK_IS_BATCH", "CURRENT_WORK_IS_SINGLE_TASK"
            )
            if held[0].batch:
                # Died between the ends of two of its members: those are said again, and cleared.
                again = [a for a in own.ended if a.batch == held[0].batch]
                held = tuple(sorted((*held, *again), key=lambda attempt: attempt.name))
        at = self._store.now()
        batch = held[0].batch
        if batch:
            at = self._batches.close(batch, at)
        items, lost = [], []
        for attempt in held:
            record = self._end(attempt, at=at)
            if is_of(record, attempt):
                key = self._places.completed(attempt.name)
                items.append(Item(key, record, attempt.number))
            else:
                lost.append(attempt)
        if batch:
            self._batches.drop(batch)
        self._held, self._looked = (), True
        if lost:
            raise self._mine.too_late(tuple(lost), completed=len(items))
        return Completed(tuple(items), batch)

    def _done_before(self, ended: tuple[Attempt, ...], seen: InProcess) -> Completed:
        """What was completed before a crash: it is done, and said again."""
        items = []
        for attempt in ended:
            record = self._endings.record(attempt.name)
            if record is not None:
                items.append(Item(self._places.completed(attempt.name), record, attempt.number))
            self._clear(attempt)
        batch = ended[0].batch
        if batch and batch in seen.batches:
            self._batches.drop(batch)
        return Completed(tuple(items), batch)

    def _end(self, attempt: Attempt, *, at: float) -> Message:
        """Complete one message; returns the record that stands, whoever wrote it."""
        record = self._endings.complete(attempt, at=at)
        # What others hold of it stays: it tells them that they were too late.
        self._endings.clear(attempt.name, record, [attempt.key])
        self._drop_folders(attempt.name)
        return record

    def _clear(self, attempt: Attempt) -> None:
        record = self._endings.record(attempt.name)
        if record is not None:
            self._endings.clear(attempt.name, record, [attempt.key])

    def _bury(self, name: str, seen: InProcess) -> None:
        key = self._places.waiting(name)
        found = records.fetch(self._store, key)
        if found is None:
            return
        try:
            message = records.check_copy(found.data, name=name, recipient=self._places.role)
        except FormatError as exc:
            refusal.refuse(self._store, self._places, key, str(exc))
            return
        numbers = seen.attempts[name]
        tried = [self._attempts.read(name, number, info) for number, info in numbers.items()]
        attempts = sorted((a for a in tried if a is not None), key=lambda a: a.number)
        self._endings.bury(name, message, attempts, f"given up after {max(numbers)} attempts")

    def renew(self) -> None:
        """Say that what is held is being worked on; its lease begins again.

        Raises `LeaseLostError` if it ended, or somebody else has it now; `MailboxStateError` if
        nothing is held.
        """
        if not self._looked:
            self._held, self._looked = self._mine.live(self._mine.look(self._attempts.look())), True
        kept = []
        seen = self._attempts.look()
        for attempt in self._held:
            self._check(attempt, seen)
            put = self._store.put(attempt.key, messages.render(attempt.message), OVERWRITE)
            kept.append(
                Attempt(attempt.key, attempt.name, attempt.number, put.version, attempt.message)
            )
        self._held = tuple(kept)

    def release(self, reason: str = "", *, only: Collection[str] = ()) -> tuple[Item, ...]:
        """Give back what this agent has in process; the next attempt is somebody's.

        `only`: places of some items of a batch; the others stay.  Raises as `done` does.
        """
        # Whatever it is: this is the way out for who has more than one thing in process.
        held = self._held or self._mine.live(self._mine.look(self._attempts.look()))
        given = tuple(a for a in held if a.key in only) if only else held
        if not given:
            raise self._mine.nothing()
        why = records.one_line(reason or f"given back by {self._agent}")
        seen = self._attempts.look()
        for attempt in given:
            self._check(attempt, seen)
            message = records.released(attempt.message, why)
            self._store.put(attempt.key, messages.render(message), OVERWRITE)
        self._held = tuple(a for a in held if a not in given)
        for batch in {a.batch for a in given if a.batch} - {a.batch for a in self._held}:
            self._batches.drop(batch)
        return tuple(Item(a.key, a.message, a.number) for a in given)

    def _check(self, attempt: Attempt, seen: InProcess) -> None:
        """Raise `LeaseLostError` if the attempt holds its message no longer."""
        latest = seen.latest(attempt.name)
        later = latest is not None and latest[0] > attempt.number
        if later or self._endings.has_ended(attempt.name):
            self._held = tuple(a for a in self._held if a.key != attempt.key)
            raise self._mine.too_late((attempt,))

    def current(self) -> tuple[Item, ...]:
        """What this agent has in process, as far as it has not ended.  Nothing is changed."""
        holding = self._mine.holding(self._attempts.look())
        return tuple(Item(a.key, a.message, a.number) for a in holding)

    # Tidying

    def _drop_folders(self, name: str) -> None:
        """Remove the folders in which something waited; not that of the present hundred."""
        key = self._places.waiting(name)
        folder = key.rpartition("/")[0]
        if self._emptied and self._emptied.rpartition("/")[0] != folder:
            self._store.drop_empty_folders(self._emptied, below=self._places.new)
        self._emptied = key

    def close(self) -> None:
        """Leave no empty folders behind.  What is held stays held until its lease passes."""
        if self._emptied:
            self._store.drop_empty_folders(self._emptied, below=self._places.new)

    def _tidy(self, seen: InProcess, now: float) -> None:
        for name, _, info in seen.each():
            if now - info.modified > LEFTOVER_SECONDS and not exists(
                self._store, self._places.waiting(name)
            ):
                self._store.delete(info.key)
        for info in seen.batches.values():
            if now - info.modified > LEFTOVER_BATCH_SECONDS:
                self._store.delete(info.key)
