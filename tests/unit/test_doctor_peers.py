"""Peers find each other, race, and come to one verdict; whoever stays away is named."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tapstore.clock import SystemClock
from tapstore.doctor import peers
from tapstore.doctor.peers import Card, Meeting, Start
from tapstore.doctor.subject import Subject
from tapstore.doctor.workplace import FOLDER, PEERS, Workplace
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, OVERWRITE


class AheadClock(SystemClock):
    """The clock of a host that is wrong."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def time(self):
        return super().time() + self.seconds


def subject(store, ahead=0.0):
    return Subject(store, store, Workplace(store), AheadClock(ahead))


def meet(subjects, wait=20.0):
    """All of them at once; what each finds, by probe."""
    with ThreadPoolExecutor(len(subjects)) as pool:
        found = list(pool.map(lambda each: list(peers.meet(each, wait)), subjects))
    return [{finding.probe: finding for finding in each} for each in found]


def keys(store):
    return [info.key for info in store.list()]


@pytest.mark.parametrize("number", [2, 4])
def test_all_come_to_the_same_verdict_and_leave_nothing(number):
    store = MemoryStore()
    found = meet([subject(store) for _ in range(number)])
    for each in found:
        assert each["peers"].severity == "ok"
        assert each["peers"].values == {
            "peers": number - 1, "creations": peers.KEYS, "updates": number * peers.ADDITIONS,
        }  # fmt: skip
        assert each["peer-clocks"].severity == "ok"
    assert keys(store) == []


def test_clocks_that_are_apart_are_found_by_all():
    store = MemoryStore()
    for each in meet([subject(store), subject(store, ahead=3600)]):
        assert each["peer-clocks"].severity == "warning"
        assert each["peer-clocks"].values["apart_seconds"] == pytest.approx(3600, abs=1)


def test_creations_that_are_not_exclusive_are_fatal_to_all():
    class Ignoring(WrapperStore):
        def put(self, key, data, mode=CREATE):
            try:
                return super().put(key, data, mode)
            except AlreadyExistsError:
                return super().put(key, data, OVERWRITE)

    store = Ignoring(MemoryStore())
    for each in meet([subject(store), subject(store)]):
        assert each["peers"].severity == "fatal"
    assert keys(store) == []


def test_whoever_stays_alone_is_told_so():
    store = MemoryStore()
    [found] = meet([subject(store)], wait=0.3)
    assert found["peers"].severity == "warning"
    assert found["peers"].values == {"peers": 0}
    assert keys(store) == []


def test_a_peer_that_goes_away_in_the_middle_is_named(monkeypatch):
    monkeypatch.setattr(peers, "STEP_SECONDS", 1.0)
    monkeypatch.setattr(peers, "ASSEMBLE_SECONDS", 0.3)
    store = MemoryStore()
    here = subject(store)
    ghost = "f" * 16
    stop = threading.Event()

    def renew():
        beat = 0
        while not stop.wait(0.05):
            beat += 1
            card = Card(name=ghost, beat=beat, ahead_seconds=0.0)
            store.put(f"{FOLDER}/{PEERS}/card-{ghost}", msgspec.json.encode(card), OVERWRITE)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        [found] = meet([here], wait=10)
    finally:
        stop.set()
        thread.join()
    assert found["peers"].severity == "warning"
    assert ghost[:6] in found["peers"].seen


def test_keys_that_a_peer_took_away_when_it_was_cut_short_are_no_defect(monkeypatch):
    """Its card goes first: who judges then finds the keys gone, and the card, too."""
    monkeypatch.setattr(peers, "STEP_SECONDS", 0.5)
    store = MemoryStore()
    one, other = Meeting(subject(store)), Meeting(subject(store))
    one._renew()
    other._renew()
    real = peers.contest.contents

    def cut_short(judged, of):
        other.leave()
        for key in of:
            store.delete(key)
        return real(judged, of)

    monkeypatch.setattr(peers.contest, "contents", cut_short)
    names = tuple(sorted((one._card.name, other._card.name)))
    run = names[0]
    for each in (one, other):
        each._renew(run=run, step=2, result=peers.Result(name=each._card.name))
    start = Start(run=run, names=names)
    monkeypatch.setattr(one, "_start", lambda _: start)
    store.put(f"{FOLDER}/{PEERS}/{run}-counter", peers.contest.counter(0), OVERWRITE)
    with pytest.raises(peers.PeerLostError, match="did not go on"):
        one._race([other._card.name])


def test_a_card_that_does_not_change_is_of_nobody():
    store = MemoryStore()
    card = Card(name="f" * 16, beat=1, ahead_seconds=0.0)
    store.put(f"{FOLDER}/{PEERS}/card-{'f' * 16}", msgspec.json.encode(card))
    [found] = meet([subject(store)], wait=0.5)
    assert found["peers"].values == {"peers": 0}


def test_leaving_takes_the_card_away_first():
    order = []

    class Noting(WrapperStore):
        def delete(self, key, *, version=None):
            order.append(key.rpartition("/")[2])
            super().delete(key, version=version)

    meeting = Meeting(subject(Noting(MemoryStore())))
    meeting._renew()
    meeting._mine |= {f"{FOLDER}/{PEERS}/0-counter"}
    meeting.leave()
    assert order[0].startswith("card-")
    assert len(order) == 2


def test_what_is_gone_can_be_left_again():
    meeting = Meeting(subject(MemoryStore()))
    meeting._renew()
    meeting.leave()
    meeting.leave()
    with pytest.raises(NotFoundError):
        meeting._store.get(f"{FOLDER}/{PEERS}/card-{meeting._card.name}")
