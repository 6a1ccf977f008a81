"""Several machines that examine one place at the same time find each other, and race.

Each writes a card, below one prefix, and renews it; a card that changes while one looks is of a
peer that is alive.  The peer with the lowest name fixes who takes part; all then create the same
keys and raise the same counter as fast as they can, write down what they believe to have done, and
each judges all the results by itself: they cannot come to different verdicts from the same bytes.

Clocks are compared through the store: each writes down how far it is ahead of it.  Waits are
bounded; a peer that stays away is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from tapstore.abc import Store
from tapstore.doctor import clocks, contest
from tapstore.doctor.contest import Result
from tapstore.doctor.subject import Subject
from tapstore.doctor.workplace import CARD, FOLDER, PEERS, Who
from tapstore.errors import NotFoundError, TapstoreError
from tapstore.types import OVERWRITE, Finding

PROBE = "peers"
CLOCKS = "peer-clocks"

ASSEMBLE_SECONDS = 3.0
"""For so long, after a first peer is there, others may still come."""

STEP_SECONDS = 30.0
"""For a step that all have to take."""

RACE_SECONDS = 20.0

KEYS = 30
ADDITIONS = 30

_PAUSE_SECONDS = 0.1

T = TypeVar("T")


class Card(Who, frozen=True, kw_only=True):
    """What a peer says of itself, renewed again and again."""

    name: str
    beat: int
    """Changes with each renewal."""

    ahead_seconds: float
    """How far its clock is ahead of the store's."""

    run: str = ""
    """The race that it takes part in."""

    step: int = 0
    """How far it has come there: 1 ready, 2 has raced, 3 has judged."""

    result: Result | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Who races with whom."""

    run: str
    names: tuple[str, ...]


class PeerLostError(Exception):
    """A peer did not come as far as it should have."""


def meet(subject: Subject, wait_seconds: float) -> Iterator[Finding]:
    """Wait for peers and race with them."""
    meeting = Meeting(subject)
    try:
        yield from meeting.findings(wait_seconds)
    finally:
        meeting.leave()


class Meeting:
    """One peer's part."""

    def __init__(self, subject: Subject) -> None:
        self._store: Store = subject.store
        self._clock = subject.clock
        self._folder = f"{FOLDER}/{PEERS}/"
        self._card = Card(
            name=subject.work.name,
            beat=0,
            ahead_seconds=round(clocks.offset(subject), 3),
        )
        self._mine: set[str] = set()
        self._beats: dict[str, int] = {}
        """The first beat that was seen of each card: one that stays is of a peer that is gone."""

    def findings(self, wait_seconds: float) -> Iterator[Finding]:
        peers = self._find(wait_seconds)
        if not peers:
            yield Finding(
                PROBE,
                "warning",
                f"nobody came within {wait_seconds:g} s",
                "nothing was shown about several machines",
                "run the same command on another machine at the same time",
                {"peers": 0},
            )
            return
        try:
            cards, wrong = self._race(peers)
        except PeerLostError as exc:
            yield Finding(PROBE, "warning", str(exc), "nothing was shown about several machines",
                          "repeat it on all of them", {"peers": len(peers)})  # fmt: skip
            return
        yield self._judged(cards, wrong)
        yield self._clocks(cards)

    def leave(self) -> None:
        """Remove what this peer wrote, and what it made together with others."""
        # The card first: to whoever still judges the keys, it says that they are no longer whole.
        for key in sorted(self._mine, key=lambda key: (not key.endswith(self._card.name), key)):
            try:
                self._store.delete(key)
            except TapstoreError:
                continue

    # Finding each other

    def _find(self, wait_seconds: float) -> list[str]:
        """The names of all who are there, without this one; empty if nobody came."""
        until = self._clock.monotonic() + wait_seconds
        found: set[str] = set()
        complete = until
        while self._clock.monotonic() < min(until, complete):
            self._renew()
            alive = self._alive()
            if alive - found:
                complete = self._clock.monotonic() + ASSEMBLE_SECONDS
            found |= alive
            self._clock.sleep(_PAUSE_SECONDS)
        return sorted(found)

    def _alive(self) -> set[str]:
        alive = set()
        for info in self._store.list(f"{self._folder}{CARD}"):
            name = info.key.removeprefix(f"{self._folder}{CARD}")
            card = self._read(name)
            # Who races already takes nobody in.
            if card is None or card.run or name == self._card.name:
                continue
            if self._beats.setdefault(name, card.beat) != card.beat:
                alive.add(name)
        return alive

    def _renew(self, **changes: Any) -> None:
        self._card = msgspec.structs.replace(self._card, beat=self._card.beat + 1, **changes)
        self._put(f"{CARD}{self._card.name}", msgspec.json.encode(self._card))

    def _read(self, name: str) -> Card | None:
        return self._get(f"{CARD}{name}", Card)

    # Racing

    def _race(self, peers: list[str]) -> tuple[list[Card], tuple[str, ...]]:
        start = self._start(peers)
        run = start.run
        keys = [f"{self._folder}{run}-{number:02}" for number in range(KEYS)]
        counter = f"{self._folder}{run}-counter"
        updates = self._store.capabilities.update
        self._mine |= {*keys, counter, f"{self._folder}start-{run}"}
        self._renew(run=run, step=1)
        self._all(start, lambda card: card.run == run and card.step >= 1)
        result = contest.create(self._store, keys, self._card.name)
        if updates:
            until = self._clock.monotonic() + RACE_SECONDS
            added = contest.add(
                self._store, counter, self._card.name, ADDITIONS, until, self._clock
            )
            result = msgspec.structs.replace(result, added=added.added, doubtful=added.doubtful)
        self._renew(step=2, result=result)
        cards = self._all(start, lambda card: card.run == run and card.step >= 2)
        results = [card.result for card in cards if card.result is not None]
        total = contest.count_at(self._store, counter) if updates else None
        wrong = contest.judge(results, contest.contents(self._store, keys), total)
        if wrong:
            # Whoever was cut short removes its keys.
            self._all(start, lambda card: card.run == run and card.step >= 2)
        # Else nobody removes a key before all have looked.
        self._renew(step=3)
        self._all(start, lambda card: card.run != run or card.step >= 3, gone=True)
        return cards, wrong

    def _start(self, peers: list[str]) -> Start:
        """Who takes part: as the one with the lowest name sees it."""
        names = tuple(sorted((self._card.name, *peers)))
        run = names[0]
        if run == self._card.name:
            counter = f"{self._folder}{run}-counter"
            self._mine.add(counter)
            self._store.put(counter, contest.counter(0), OVERWRITE)
            start = Start(run=run, names=names)
            self._put(f"start-{run}", msgspec.json.encode(start))
            return start

        def given() -> Start | None:
            # Who came late may know another one with a lower name.
            for name in names:
                found = self._get(f"start-{name}", Start)
                if found is not None and self._card.name in found.names:
                    return found
            return None

        return self._until(given, lambda: f"peer {run[:6]} did not begin the race")

    def _all(
        self, start: Start, arrived: Callable[[Card], bool], *, gone: bool = False
    ) -> list[Card]:
        """The cards of all who take part, as soon as each has come so far.

        With `gone`, whoever has removed its card has come far enough.
        """
        there: dict[str, Card] = {self._card.name: self._card}
        left: set[str] = set()

        def look() -> list[Card] | None:
            for name in start.names:
                if name in there or name in left:
                    continue
                card = self._read(name)
                if card is None and gone:
                    left.add(name)
                elif card is not None and arrived(card):
                    there[name] = card
            complete = len(there) + len(left) == len(start.names)
            return [there[name] for name in start.names if name in there] if complete else None

        def missing() -> str:
            names = [name[:6] for name in start.names if name not in there]
            return f"peer {', '.join(names)} did not go on"

        return self._until(look, missing)

    def _until(self, look: Callable[[], T | None], missing: Callable[[], str]) -> T:
        until = self._clock.monotonic() + STEP_SECONDS
        while True:
            found = look()
            if found is not None:
                return found
            if self._clock.monotonic() > until:
                raise PeerLostError(f"{missing()} within {STEP_SECONDS:g} s")
            self._clock.sleep(_PAUSE_SECONDS / 4)

    # What is said

    def _judged(self, cards: list[Card], wrong: tuple[str, ...]) -> Finding:
        added = sum(card.result.added for card in cards if card.result is not None)
        hosts = sorted(f"{card.host} ({card.name[:6]})" for card in cards)
        values = {"peers": len(cards) - 1, "creations": KEYS, "updates": added}
        if wrong:
            return Finding(
                PROBE,
                "fatal",
                f"{', '.join(hosts)}: {wrong[0]}",
                "writers on several machines are not kept apart",
                "take a place that compares and writes in one step for all of its clients",
                values,
            )
        updates = f", {added} updates all counted" if added else ""
        return Finding(
            PROBE,
            "ok",
            f"{', '.join(hosts)}: {KEYS} creations, one winner each{updates}",
            values=values,
        )

    def _clocks(self, cards: list[Card]) -> Finding:
        ahead = {card.name: card.ahead_seconds for card in cards}
        apart = max(ahead.values()) - min(ahead.values())
        values = {"apart_seconds": round(apart, 3)}
        if apart < clocks.NOTE_SECONDS:
            return Finding(CLOCKS, "ok", "the machines agree on the time", values=values)
        return Finding(
            CLOCKS,
            "note" if apart < clocks.WARNING_SECONDS else "warning",
            f"the machines' clocks are {apart:,.1f} s apart",
            "no commit goes by them; logs of their programs are hard to compare",
            "set them (NTP)",
            values,
        )

    # Keys

    def _put(self, name: str, data: bytes) -> None:
        self._mine.add(self._folder + name)
        self._store.put(self._folder + name, data, OVERWRITE)

    def _get(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(self._store.get(self._folder + name).data, type=kind)
        except (NotFoundError, msgspec.DecodeError):
            return None
