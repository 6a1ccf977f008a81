"""Brings what lies in the outboxes of a swarm to its recipients, by whoever is there.

Headers, recipients and targets are looked at before any copy is written: what can never be
delivered goes to `failed/` with nobody having got it.  What may be possible later stays, and is
tried again after growing pauses.  Several who deliver at once, and the original daemon beside them,
change nothing but who does it; one that dies leaves what the next finishes.

Not promised: that nobody got a message that failed, where the original daemon was at it first, or
the roles changed while it was delivered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tapstore.abc import Clock
from tapstore.errors import TapstoreError
from tapstore.handoffs.mailbox import Delivery
from tapstore.handoffs.message import Message
from tapstore.handoffs.swarm import copies, files, folder, letters, outbox, sequence
from tapstore.handoffs.swarm import roles as rosters
from tapstore.handoffs.swarm.copies import CopyConflictError, Target
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.letters import Letter
from tapstore.handoffs.swarm.outbox import Tries
from tapstore.handoffs.swarm.roles import Roster

SETTLED_SECONDS = 5.0
"""`roles.tsv` is written in place: who is missing in one that is younger may still be written."""


def everything(project: str | os.PathLike[str], clock: Clock, also: Folder) -> Iterator[Delivery]:
    """Deliver what lies in all outboxes and `also`, and is due; not what somebody else took.

    A worktree that is away or broken does not keep the others waiting.  Raises as `roles.read`.
    """
    roster = rosters.read(project)
    seen = set()
    for where in (*(Folder(role.worktree) for role in roster), also):
        try:
            if where.identity in seen:
                continue
            seen.add(where.identity)
            found = list(folder.listed(where.outbox))
            if found or files.exists(sequence.lock_path(where)):
                where.make()
                sequence.free_for_others(where, clock)
        except OSError:
            # Its own agents are told when they send; nobody else can do anything about it.
            continue
        for name in found:
            delivery = one(roster, where, name, clock)
            if delivery is not None:
                yield delivery


def one(
    roster: Roster, where: Folder, name: str, clock: Clock, *, now: bool = False
) -> Delivery | None:
    """Deliver one message of an outbox as far as possible; None if it is gone.

    With `now`, pauses between tries are not kept to.
    """
    noted = outbox.tries(where, name)
    try:
        letter = letters.read(f"{where.outbox}/{name}")
        if letter is None:
            return None
        sender = letter.message.sender if letter.message else ""
        if not now and not noted.is_due(clock.time()):
            return _waiting(name, sender, noted)
        if letter.is_being_written(lambda: files.now(where.outbox_temp)):
            return Delivery(name, sender, reason=f"{letter.path} is still being written")
        if letter.message is None:
            return _failed(where, letter, letter.fault)
        return _Delivering(roster, where, letter, letter.message, noted, clock).run()
    except FileNotFoundError:
        return None
    except OSError as exc:
        # Of the outbox itself; what keeps a recipient waiting does not come here.
        noted = noted.again(clock.time(), _described(exc))
        outbox.note_tries(where, name, noted)
        return _waiting(name, "", noted)


class _Delivering:
    def __init__(
        self,
        roster: Roster,
        where: Folder,
        letter: Letter,
        message: Message,
        noted: Tries,
        clock: Clock,
    ) -> None:
        self._roster = roster
        self._where = where
        self._letter = letter
        self._message = message
        self._noted = noted
        self._clock = clock
        self._reasons: dict[str, str] = {}
        """Recipients who can't get their copy yet, and why."""

    def run(self) -> Delivery:
        unknown = [name for name in self._message.recipients if name not in self._roster.roles]
        if unknown:
            return self._unknown(unknown)
        try:
            targets = self._planned()
        except CopyConflictError as exc:
            return _failed(self._where, self._letter, str(exc))
        delivered = []
        for target in targets:
            if target.have or target.role.name in self._reasons:
                continue
            try:
                if copies.give(target, self._letter.name, self._message, self._clock):
                    delivered.append(target.role.name)
            except CopyConflictError as exc:
                # It was not there when we looked: whoever has a copy by now keeps it.
                failed = _failed(self._where, self._letter, str(exc))
                return Delivery(
                    failed.name, failed.sender, delivered=tuple(delivered), failed=failed.failed
                )
            except (OSError, TapstoreError) as exc:
                self._reasons[target.role.name] = _described(exc)
        if self._reasons:
            return self._later(tuple(delivered))
        try:
            outbox.close(self._where, self._letter.name)
        except FileNotFoundError:
            pass  # somebody else delivered it too
        return Delivery(self._letter.name, self._message.sender, delivered=tuple(delivered))

    def _unknown(self, names: list[str]) -> Delivery:
        listed = ", ".join(repr(name) for name in names)
        reason = f"unknown recipient {listed}; nobody got it. Add the role, or send it to others"
        path = self._where.outbox_temp
        if files.now(path) - self._roster.modified < SETTLED_SECONDS:
            for name in names:
                self._reasons[name] = reason
            return self._later(())
        return _failed(self._where, self._letter, reason)

    def _planned(self) -> list[Target]:
        targets = []
        for name in self._message.recipients:
            role = self._roster.roles[name]
            where = Folder(role.worktree)
            try:
                where.make()
                target = copies.plan(role, where, self._letter.name, self._message)
            except CopyConflictError:
                raise
            except (OSError, TapstoreError) as exc:
                self._reasons[name] = _described(exc)
                continue
            if target.wait:
                self._reasons[name] = target.wait
            targets.append(target)
        return targets

    def _later(self, delivered: tuple[str, ...]) -> Delivery:
        reason = "; ".join(f"{name}: {why}" for name, why in self._reasons.items())
        noted = self._noted.again(self._clock.time(), reason, tuple(self._reasons))
        outbox.note_tries(self._where, self._letter.name, noted)
        return _waiting(self._letter.name, self._message.sender, noted, delivered)


def _waiting(name: str, sender: str, noted: Tries, delivered: tuple[str, ...] = ()) -> Delivery:
    return Delivery(
        name,
        sender,
        delivered=delivered,
        waiting=noted.waiting,
        attempts=noted.count,
        reason=noted.reason,
    )


def _failed(where: Folder, letter: Letter, reason: str) -> Delivery:
    sender = letter.message.sender if letter.message else ""
    outbox.fail(where, letter.name, reason)
    return Delivery(letter.name, sender, failed=reason)


def _described(exc: Exception) -> str:
    if isinstance(exc, OSError) and not isinstance(exc, TapstoreError) and exc.strerror:
        return f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror
    return str(exc) or type(exc).__name__
