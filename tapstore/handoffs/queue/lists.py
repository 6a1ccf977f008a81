"""What is where: the lists of a mailbox, one message by its name or id, and what became of it.

Reads only.  Everything moves forward while it is looked at, so a place is looked at before those
that come after it, and the end once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tapstore.abc import Store
from tapstore.errors import FormatError, NotFoundError, StoreError
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.mailbox import Entry, Item, Receipt, Standing
from tapstore.handoffs.message import Message
from tapstore.handoffs.queue import records, refusal
from tapstore.handoffs.queue.attempts import Attempts
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.patience import LISTED_FROM, Patience
from tapstore.handoffs.queue.places import Places, file_name, split_attempt
from tapstore.handoffs.queue.settings import Settings
from tapstore.types import ObjectInfo


class Lists:
    """Looks into the mailboxes of one session."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def entries(self, places: Places) -> Iterator[Entry]:
        """What is queued, waits, is in process, failed or dead in one mailbox."""
        yield from self._outgoing(places)
        attempts = self._attempts(places)
        seen = attempts.look()
        for info in self._store.list(places.new):
            name = file_name(info.key)
            if not names.is_name(name):
                continue
            latest = seen.latest(name)
            if latest is None:
                yield _entry(places, info, name, "delivered")
                continue
            number, held = latest
            attempt = attempts.read(name, number, held)
            if attempt is None:
                yield _entry(places, info, name, "delivered", attempt=number)
            elif attempt.released:
                yield _entry(
                    places, held, name, "delivered", attempt=number, reason=attempt.released
                )
            else:
                yield _entry(places, held, name, "accepted", attempt=number, agent=attempt.agent)
        for info in self._store.list(places.dead):
            name = file_name(info.key)
            yield _entry(places, info, name, "dead", reason=self._first_line(info.key))
        for info in self._store.list(places.failed):
            name, _ = split_attempt(file_name(info.key))
            if not name.endswith(refusal.ERROR):
                reason = self._first_line(info.key + refusal.ERROR)
                yield _entry(places, info, name, "failed", reason=reason)

    def _outgoing(self, places: Places) -> Iterator[Entry]:
        patience = Patience(self._store)
        for info in self._store.list(places.outbox):
            name, _ = split_attempt(file_name(info.key))
            if names.is_name(name):
                note = patience.read(info.key)
                told = note is not None and note.tries >= LISTED_FROM
                yield _entry(
                    places,
                    info,
                    name,
                    "queued",
                    attempt=note.tries if note is not None else 0,
                    reason=note.reason if note is not None and told else "",
                )

    def _first_line(self, key: str) -> str:
        try:
            found = records.fetch(self._store, key)
        except StoreError as exc:
            if not records.is_its_own(exc):
                raise
            return f"why can't be read: {exc}"
        text = found.data[:2000].decode(errors="replace") if found is not None else ""
        return records.one_line(text) if text.strip() else ""

    def find(self, places: Places, wanted: str, roles: Iterable[str]) -> Item:
        """A message of this role, sent or received, where it is now.

        Raises `NotFoundError`, or `InvalidKeyError` for what is neither a name nor an id.
        """
        name = self.name_of(places, wanted, roles)
        for key in (*self._received(places, name), *self._sent(name)):
            found = records.fetch(self._store, key)
            if found is not None:
                try:
                    message = messages.parse(found.data, name=key)
                except FormatError:
                    continue
                return Item(key, message, records.number_of(message) or 1)
        raise NotFoundError(
            f"hand-off {wanted} is nowhere in the mailbox of {places.role!r}; "
            "`tapstore handoff list` shows what is there"
        )

    def name_of(self, places: Places, wanted: str, roles: Iterable[str]) -> str:
        """The file name of a message, given that or its id.  Raises as `find` does."""
        if names.is_name(wanted):
            return str(names.parse(wanted))
        stamp, sender = names.parse_id(wanted)
        mark = f"_{names.render_id(stamp, sender)}_to_"
        text = str(stamp)
        hour = text[:11]
        own = Places(sender) if sender in roles else None
        for prefix in (
            places.in_process,
            f"{places.completed_prefix}{hour}/",
            *([f"{own.sent_prefix}{hour}/", own.outbox, own.failed] if own else []),
            places.failed,
            *self._waiting(places, text),
            # Dropped by hand into another folder.
            places.new,
        ):
            for info in self._store.list(prefix):
                name, _ = split_attempt(file_name(info.key))
                if mark in name and names.is_name(name):
                    return name
        raise NotFoundError(
            f"no hand-off {wanted} was found from {places.role!r}; `tapstore handoff list` shows "
            "what is there"
        )

    def _waiting(self, places: Places, stamp: str) -> Iterator[str]:
        """Where what has this stamp waits, for each of the priorities of which something waits."""
        for folder in self._store.children(places.new):
            priority = folder[:2]
            if folder == f"{priority}_{stamp[:11]}/":
                yield places.waiting(f"{priority}_{stamp}_from_").rpartition("/")[0] + "/"

    def _received(self, places: Places, name: str) -> Iterator[str]:
        yield places.completed(name)
        latest = self._attempts(places).look(name).latest(name)
        if latest is not None:
            yield latest[1].key
        yield places.waiting(name)
        yield places.completed(name)
        yield f"{places.failed}{name}"

    def _sent(self, name: str) -> Iterator[str]:
        own = Places(names.parse(name).sender)
        yield own.sent(name)
        yield f"{own.outbox}{name}"
        yield f"{own.failed}{name}"

    def receipts(self, sender: Places, name: str) -> tuple[Receipt, ...]:
        """What became of each copy of a message that this role sent."""
        message, standing, reason = self._sent_message(sender, name)
        parsed = names.parse(name)
        recipients = message.recipients if message is not None else parsed.recipients
        return tuple(self._receipt(Places(role), name, standing, reason) for role in recipients)

    def _sent_message(self, sender: Places, name: str) -> tuple[Message | None, str, str]:
        for key, standing in (
            (f"{sender.outbox}{name}", "queued"),
            (sender.sent(name), "sent"),
            (f"{sender.failed}{name}", "failed"),
        ):
            found = records.fetch(self._store, key)
            if found is not None:
                reason = self._first_line(key + refusal.ERROR) if standing == "failed" else ""
                try:
                    return messages.parse(found.data, name=key), standing, reason
                except FormatError:
                    return None, standing, reason
        return None, "", ""

    def _receipt(self, places: Places, name: str, sent: str, reason: str) -> Receipt:
        role = places.role
        waiting = self._since(places.waiting(name))
        attempts = self._attempts(places)
        latest = attempts.look(name).latest(name)
        attempt = attempts.read(name, *latest) if latest is not None else None
        record = Endings(self._store, places).record(name)
        if record is not None:
            return Receipt(
                role,
                "dead" if records.is_dead(record) else "completed",
                records.ended_at(record),
                agent=record.headers.get(records.AGENT, ""),
                attempt=records.number_of(record),
                reason=record.headers.get(records.REASON, ""),
            )
        if attempt is not None and not attempt.released:
            return Receipt(
                role,
                "accepted",
                attempt.message.time("dequeued_at"),
                agent=attempt.agent,
                attempt=attempt.number,
            )
        if waiting is not None:
            return Receipt(
                role,
                "delivered",
                waiting,
                attempt=attempt.number if attempt is not None else 0,
                reason=attempt.released if attempt is not None else "",
            )
        if sent == "failed":
            return Receipt(role, "failed", reason=reason)
        if sent == "queued":
            note = Patience(self._store).read(f"{Places(names.parse(name).sender).outbox}{name}")
            return Receipt(role, "queued", reason=note.reason if note is not None else "")
        if sent == "sent":
            return Receipt(role, "completed", reason="no record is left: it was pruned")
        raise NotFoundError(f"hand-off {name} was not sent, or nothing is left of it")

    def _since(self, key: str) -> float | None:
        try:
            return self._store.head(key).modified
        except NotFoundError:
            return None

    def _attempts(self, places: Places) -> Attempts:
        return Attempts(self._store, places, lease_seconds=self._settings.lease_seconds)


def _entry(
    places: Places,
    info: ObjectInfo,
    name: str,
    standing: Standing,
    *,
    agent: str = "",
    attempt: int = 0,
    reason: str = "",
) -> Entry:
    return Entry(
        name=name,
        standing=standing,
        place=info.key,
        role=places.role,
        since=info.modified,
        agent=agent,
        attempt=attempt,
        reason=reason,
    )
