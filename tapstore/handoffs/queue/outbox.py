"""Sends messages, and finishes what anybody began to send.

A message to one role is sent by one step: its copy is created where it waits.  A message to many is
written down first, whole, and then delivered copy by copy, by its sender or by whoever looks next,
any number of times: a recipient gets it once, even if its first copy was already completed.

Not promised: that `sent` has a message to one role whose sender died between the two steps (its
recipient has it); that mail arrives while nobody looks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.draft import Draft
from tapstore.handoffs.mailbox import Delivery, HandoffWarning, Queued
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import is_name
from tapstore.handoffs.queue import records, refusal
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.patience import Patience
from tapstore.handoffs.queue.places import PREFIX, Places, file_name, split_attempt
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.types import CREATE


@dataclass(frozen=True, slots=True)
class _Copies:
    delivered: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    reason: str = ""
    conflict: str = ""


class Outbox:
    """What goes out of the mailboxes of a session.  For one thread at a time."""

    def __init__(self, store: Store, *, roles: Callable[[], Collection[str]]) -> None:
        """`roles` gives all roles of the session."""
        self._store = store
        self._roles = roles
        self._patience = Patience(store)

    def send(self, draft: Draft, sequence: Sequence) -> Queued:
        """Queue a message and deliver it as far as possible."""
        stamp = sequence.draw()
        now = self._store.now()
        name, message = draft.message(stamp, created_at=now)
        return self.post(str(name), message, at=now)

    def post(self, name: str, message: Message, *, at: float, retries: int = 0) -> Queued:
        """The same, for a message that has an id.  `retries`: how often it failed before.

        Raises `FormatError` if it is too large; then nothing was written.
        """
        places = Places(message.sender)
        parsed = names.parse(name)
        data = messages.render(message)
        records.check_room(message, name=name, size=len(data))
        if len(message.recipients) == 1 and not retries:
            copy = messages.deliver(message, recipient=message.recipients[0], at=at)
            key = Places(copy.recipient).waiting(name)
            self._store.put(key, messages.render(copy), CREATE)
            try:
                self._store.put(places.sent(name), data, CREATE)
            except AlreadyExistsError:
                pass
            except (StoreError, OutcomeUnknownError) as exc:
                warnings.warn(
                    f"{name} is delivered, but could not be noted in {places.sent_prefix}: {exc}",
                    HandoffWarning,
                    stacklevel=3,
                )
            return Queued(parsed, key, message)
        key = f"{places.outbox}{name}" + (f"~{retries}" if retries else "")
        try:
            self._store.put(key, data, CREATE)
        except AlreadyExistsError:
            if not retries:
                raise
            # Who brought it back before us died in between.
        delivery = self._deliver(places, key)
        if delivery is None:
            return Queued(parsed, places.sent(name), message)
        if delivery.failed:
            failed = f"{places.failed}{file_name(key)}"
            return Queued(parsed, failed, message, message.recipients, failed=delivery.failed)
        return Queued(
            parsed,
            key if delivery.waiting else places.sent(name),
            message,
            delivery.waiting,
            delivery.reason,
        )

    def deliver(self) -> Iterator[Delivery]:
        """Finish what was begun, of all roles; what is tried again later is passed over."""
        for folder in self._store.children(PREFIX):
            try:
                places = Places(folder.removesuffix("/"))
            except InvalidKeyError:
                continue
            yield from self._deliver_of(places)

    def _deliver_of(self, places: Places) -> Iterator[Delivery]:
        keys = [info.key for info in self._store.list(places.outbox)]
        self._patience.tidy(keys)
        for key in keys:
            if is_name(split_attempt(file_name(key))[0]) and self._patience.is_due(key):
                try:
                    delivery = self._deliver(places, key)
                except (StoreError, OutcomeUnknownError) as exc:
                    delivery = self._not_now(places, key, exc)
                if delivery is not None:
                    yield delivery

    def _not_now(
        self, places: Places, key: str, error: StoreError | OutcomeUnknownError
    ) -> Delivery:
        """What the place refuses of one message does not keep others from being delivered."""
        name, _ = split_attempt(file_name(key))
        tries = self._patience.note(key, str(error))
        try:
            waiting = names.parse(name).recipients
        except InvalidKeyError:
            waiting = ("?",)
        return Delivery(
            name=name, sender=places.role, waiting=waiting, attempts=tries, reason=str(error)
        )

    def _deliver(self, places: Places, key: str) -> Delivery | None:
        """Deliver one message as far as possible; None if somebody else was faster."""
        found = records.fetch(self._store, key)
        if found is None:
            return None
        name, _ = split_attempt(file_name(key))
        try:
            message = records.check_copy(found.data, name=name)
            unknown = self._unknown(message, places)
        except messages.UnfinishedError as exc:
            if self._store.now() - found.info.modified < refusal.WRITING_SECONDS:
                return None
            return self._fail(places, key, str(exc))
        except FormatError as exc:
            return self._fail(places, key, str(exc))
        if unknown:
            return self._fail(places, key, unknown)
        copies = self._copy(name, message)
        if copies.conflict:
            return replace(self._fail(places, key, copies.conflict), delivered=copies.delivered)
        if copies.waiting:
            tries = self._patience.note(key, copies.reason)
            return Delivery(
                name=name,
                sender=places.role,
                delivered=copies.delivered,
                waiting=copies.waiting,
                attempts=tries,
                reason=copies.reason,
            )
        try:
            self._store.put(places.sent(name), found.data, CREATE)
        except AlreadyExistsError:
            pass
        self._store.delete(key)
        self._patience.forget(key)
        return Delivery(name=name, sender=places.role, delivered=copies.delivered)

    def _unknown(self, message: Message, places: Places) -> str:
        """Why it can't be delivered, known before anything is written; or empty."""
        if message.sender != places.role:
            return f"it is from {message.sender!r}, but lay in the outbox of {places.role!r}"
        roles = self._roles()
        unknown = [role for role in message.recipients if role not in roles]
        if unknown:
            return f"no role {', '.join(unknown)}; the session has {', '.join(sorted(roles))}"
        return ""

    def _copy(self, name: str, message: Message) -> _Copies:
        delivered: list[str] = []
        waiting: list[str] = []
        reason = ""
        for recipient in message.recipients:
            copy = messages.deliver(message, recipient=recipient, at=self._store.now())
            try:
                fresh = self._copy_to(Places(recipient), name, copy)
            except FormatError as exc:
                return _Copies(tuple(delivered), (), "", str(exc))
            except (StoreError, OutcomeUnknownError) as exc:
                waiting.append(recipient)
                reason = reason or f"{recipient}: {exc}"
            else:
                if fresh:
                    delivered.append(recipient)
        return _Copies(tuple(delivered), tuple(waiting), reason)

    def _copy_to(self, places: Places, name: str, copy: Message) -> bool:
        """Whether it was not there before.  Raises `FormatError` if another one is in its place.

        Who sleeps between look and creation brings back what ended meanwhile: who accepts it looks
        at the record, and removes it.
        """
        endings = Endings(self._store, places)
        if endings.has_ended(name):
            return False
        key = places.waiting(name)
        try:
            self._store.put(key, messages.render(copy), CREATE)
        except AlreadyExistsError:
            self._same(key, copy)
            return False
        return True

    def _same(self, key: str, copy: Message) -> None:
        found = records.fetch(self._store, key)
        if found is None:
            return  # completed meanwhile
        there = messages.parse(found.data, name=key)
        if _core(there) != _core(copy):
            raise FormatError(f"{key} is another message of the same name; nothing was overwritten")

    def _fail(self, places: Places, key: str, reason: str) -> Delivery:
        refusal.refuse(self._store, places, key, reason)
        self._patience.forget(key)
        name, _ = split_attempt(file_name(key))
        return Delivery(name=name, sender=places.role, failed=reason)

    # Bringing back

    def retry_failed(self, places: Places, name: str) -> Queued:
        """Queue again what failed.  Raises `NotFoundError`, or what is still wrong with it."""
        copies = {}
        for info in self._store.list(f"{places.failed}{name}"):
            base, number = split_attempt(file_name(info.key))
            if base == name:
                copies[number] = info.key
        retries = max(copies, default=0)
        found = records.fetch(self._store, copies[retries]) if copies else None
        if found is None:
            raise NotFoundError(
                f"{name} is not among {places.failed}; `tapstore handoff list` shows"
            )
        message = records.check_copy(found.data, name=name)
        unknown = self._unknown(message, places)
        if unknown:
            raise FormatError(f"{name}: {unknown}")
        queued = self.post(name, message, at=self._store.now(), retries=retries + 1)
        for key in copies.values():
            self._store.delete(key + refusal.ERROR)
            self._store.delete(key)
        return queued


def _core(message: Message) -> tuple[dict[str, str], str]:
    """What all copies for one recipient share."""
    headers = records.without_own(message.headers)
    return {k: v for k, v in headers.items() if k not in messages.TIMES}, message.body
