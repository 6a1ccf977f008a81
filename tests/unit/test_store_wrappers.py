"""The wrappers are stores like any other, and do what they are for."""

from __future__ import annotations

import errno
import functools
import itertools
import random

import pytest
from store_places import LocalPlace, MemoryPlace, WrappedPlace

from tapstore.abc import Clock
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.stores.memory import MemoryStore
from tapstore.stores.prefix import PrefixStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore
from tapstore.testing.faults import Fault, FaultyStore, lost, refuse
from tapstore.testing.place import race
from tapstore.testing.stores import StoreTests
from tapstore.types import CREATE, OVERWRITE, Capabilities, Update

MEMORY = Capabilities(create=True, update=True, conditional_delete=True, files=False)
LOCAL = Capabilities(create=True, update=False, conditional_delete=False, files=True)


class TestPrefixOfMemory(StoreTests):
    capabilities = MEMORY

    @pytest.fixture
    def place(self):
        return WrappedPlace(MemoryPlace(), lambda store: PrefixStore(store, "team/a"), "team/a/")


class TestPrefixOfDisk(StoreTests):
    capabilities = LOCAL

    @pytest.fixture
    def place(self, tmp_path):
        inner = LocalPlace(tmp_path, durability="none")
        return WrappedPlace(inner, lambda store: PrefixStore(store, "a"), "a/")


class TestRetry(StoreTests):
    capabilities = MEMORY

    @pytest.fixture
    def place(self):
        return WrappedPlace(MemoryPlace(), RetryStore)


class TestReadBack(StoreTests):
    capabilities = MEMORY

    @pytest.fixture
    def place(self):
        return WrappedPlace(MemoryPlace(), ReadBackStore)


def every_third(action):
    calls = itertools.count()
    return lambda key: action(key) if next(calls) % 3 == 0 else None


class TestRetryOfAPlaceThatOftenRefuses(StoreTests):
    capabilities = MEMORY

    @pytest.fixture
    def place(self):
        def wrap(store):
            faults = [
                Fault(verb, times=9**9, before=every_third(refuse(errno.EAGAIN)))
                for verb in ("get", "head", "put", "delete", "list", "children", "open", "now")
            ]
            return RetryStore(FaultyStore(store, *faults), first_pause_seconds=0)

        return WrappedPlace(MemoryPlace(), wrap)


class TestFaultyWithoutFaults(StoreTests):
    capabilities = MEMORY

    @pytest.fixture
    def place(self):
        return WrappedPlace(MemoryPlace(), FaultyStore)


class HandClock(Clock):
    """Time passes by sleeping only; `slept` has how long."""

    def __init__(self):
        self.slept = []

    def time(self):
        return 0.0

    def monotonic(self):
        return sum(self.slept)

    def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def clock():
    return HandClock()


# PrefixStore


def test_a_prefix_is_a_part_of_the_inner_store(memory):
    PrefixStore(memory, "a/b").put("c", b"data")
    assert memory.get("a/b/c").data == b"data"


def test_a_prefix_does_not_show_its_neighbours(memory):
    memory.put("ab", b"")
    memory.put("a.b/c", b"")
    assert list(PrefixStore(memory, "a").list()) == []


@pytest.mark.parametrize("prefix", ["", "/", "../x"])
def test_a_prefix_that_is_no_key_is_refused(memory, prefix):
    with pytest.raises(InvalidKeyError):
        PrefixStore(memory, prefix)


def test_the_url_of_a_prefix_names_it():
    assert PrefixStore(MemoryStore("memory://team"), "a/b").url == "memory://team/a/b"


# RetryStore


def retry(memory, clock, *faults, **options):
    return RetryStore(FaultyStore(memory, *faults), clock=clock, draw=lambda: 1.0, **options)


SLOW_DOWN = refuse(errno.EAGAIN)

CALLS = {
    "get": lambda store: store.get("a").data,
    "head": lambda store: store.head("a").size,
    "open": lambda store: store.open("a").__enter__().read(),
    "list": lambda store: [info.key for info in store.list()],
    "children": lambda store: list(store.children()),
    "now": lambda store: store.now() > 0,
    "put": lambda store: store.put("b", b"x", CREATE).version,
    "delete": lambda store: store.delete("a"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_what_may_pass_by_itself_is_repeated(memory, clock, verb):
    memory.put("a", b"data")
    store = retry(memory, clock, Fault(verb, times=3, before=SLOW_DOWN))
    CALLS[verb](store)
    assert clock.slept == [0.05, 0.1, 0.2]


@pytest.mark.parametrize("verb", CALLS)
def test_what_will_not_pass_by_itself_is_not_repeated(memory, clock, verb):
    memory.put("a", b"data")
    store = retry(memory, clock, Fault(verb, before=refuse(errno.ENOSPC)))
    with pytest.raises(StoreError):
        CALLS[verb](store)
    assert clock.slept == []


@pytest.mark.parametrize("verb", CALLS)
def test_the_deadline_ends_it_with_the_last_error(memory, clock, verb):
    memory.put("a", b"data")
    store = retry(memory, clock, Fault(verb, times=9**9, before=SLOW_DOWN), deadline_seconds=3)
    with pytest.raises(StoreError) as info:
        CALLS[verb](store)
    assert info.value.errno == errno.EAGAIN
    assert 1.5 < sum(clock.slept) <= 3


def test_pauses_grow_up_to_a_bound_and_are_drawn_below_it(memory, clock):
    store = RetryStore(
        FaultyStore(memory, Fault("head", times=6, before=SLOW_DOWN)),
        first_pause_seconds=1,
        longest_pause_seconds=4,
        clock=clock,
        draw=lambda: 0.5,
    )
    with pytest.raises(NotFoundError):
        store.head("a")
    assert clock.slept == [0.5, 1.0, 2.0, 2.0, 2.0, 2.0]


def asks_to_wait(seconds):
    def action(key):
        error = StoreError(f"slow down: {key}")
        error.errno = errno.EAGAIN
        error.retry_after_seconds = seconds
        raise error

    return action


def test_a_pause_is_as_long_as_the_place_asks_for(memory, clock):
    store = RetryStore(
        FaultyStore(memory, Fault("head", times=2, before=asks_to_wait(7.0))), clock=clock
    )
    with pytest.raises(NotFoundError):
        store.head("a")
    assert clock.slept == [7.0, 7.0]


def test_who_is_asked_to_wait_past_the_deadline_gives_up_at_once(memory, clock):
    store = RetryStore(
        FaultyStore(memory, Fault("head", times=9**9, before=asks_to_wait(31.0))), clock=clock
    )
    with pytest.raises(StoreError, match="slow down"):
        store.head("a")
    assert clock.slept == []


@pytest.mark.parametrize("action", ["put", "delete"])
def test_what_is_safe_to_repeat_is_repeated_though_the_outcome_is_unknown(memory, clock, action):
    memory.put("a", b"old")
    store = retry(memory, clock, Fault(action, after=lost))
    if action == "put":
        store.put("a", b"new", OVERWRITE)
        assert memory.get("a").data == b"new"
    else:
        store.delete("a")
        assert list(memory.list()) == []


def test_a_conditional_write_is_not_repeated_if_its_outcome_is_unknown(memory, clock):
    version = memory.put("a", b"x").version
    calls = [
        lambda store: store.put("b", b"x", CREATE),
        lambda store: store.put("a", b"y", Update(version)),
        lambda store: store.delete("a", version=version),
    ]
    for call in calls:
        with pytest.raises(OutcomeUnknownError):
            call(retry(memory, clock, Fault("*", before=lost)))
    assert clock.slept == []


def test_a_doubt_is_not_forgotten_over_a_later_refusal(memory, clock):
    store = retry(
        memory, clock, Fault("put", before=lost), Fault("put", nth=2, before=refuse(errno.ENOSPC))
    )
    with pytest.raises(OutcomeUnknownError):
        store.put("a", b"x", OVERWRITE)


class Breaking(FaultyStore):
    """Each listing breaks after two items; `begun` counts them."""

    begun = 0

    def _break(self, items):
        self.begun += 1
        for number, item in enumerate(items):
            if number == 2:
                SLOW_DOWN("a listing")
            yield item

    def list(self, prefix="", *, start_after=""):
        return self._break(super().list(prefix, start_after=start_after))

    def children(self, prefix=""):
        # Beyond what was seen already, which comes again each time.
        return self._break(super().children(prefix)) if not self.begun else super().children(prefix)


def test_a_listing_that_breaks_goes_on_behind_what_it_has_shown(memory, clock):
    for name in "abcdefg":
        memory.put(name, b"")
    store = RetryStore(Breaking(memory), clock=clock, draw=lambda: 1.0)
    assert [info.key for info in store.list()] == list("abcdefg")
    # Each time it got on, so each pause is a first one.
    assert clock.slept == [0.05, 0.05, 0.05]


def test_names_that_break_go_on_behind_what_was_shown(memory, clock):
    for name in "abcdefg":
        memory.put(name, b"")
    assert list(RetryStore(Breaking(memory), clock=clock).children()) == list("abcdefg")


# ReadBackStore


def read_back(memory, clock, *faults):
    return ReadBackStore(FaultyStore(memory, *faults), clock=clock)


def overwritten_by_another(memory):
    """After this call somebody else writes, and the reply is lost."""

    def action(key):
        memory.put(key, b"another's", OVERWRITE)
        lost(key)

    return action


def test_a_create_whose_reply_was_lost_succeeded(memory, clock):
    store = read_back(memory, clock, Fault("put", after=lost))
    assert store.put("a", b"ours").version == memory.head("a").version
    assert memory.get("a").data == b"ours"


def test_a_create_whose_request_was_lost_is_repeated(memory, clock):
    store = read_back(memory, clock, Fault("put", times=2, before=lost))
    store.put("a", b"ours")
    assert memory.get("a").data == b"ours"


def test_a_create_that_meets_itself_succeeded(memory, clock):
    """The library below repeats silently: the first attempt landed, the second meets it."""
    store = read_back(memory, clock, Fault("put", before=lambda key: memory.put(key, b"ours")))
    store.put("a", b"ours")
    assert memory.get("a").data == b"ours"


def test_a_create_that_meets_another_lost(memory, clock):
    memory.put("a", b"another's")
    with pytest.raises(AlreadyExistsError):
        read_back(memory, clock).put("a", b"ours")


def test_a_doubtful_create_that_meets_another_is_unknown(memory, clock):
    store = read_back(memory, clock, Fault("put", after=overwritten_by_another(memory)))
    with pytest.raises(OutcomeUnknownError):
        store.put("a", b"ours")


def test_an_update_whose_reply_was_lost_succeeded(memory, clock):
    version = memory.put("a", b"old").version
    store = read_back(memory, clock, Fault("put", after=lost))
    assert store.put("a", b"ours", Update(version)).version == memory.head("a").version
    assert memory.get("a").data == b"ours"


def test_an_update_whose_request_was_lost_is_repeated(memory, clock):
    version = memory.put("a", b"old").version
    store = read_back(memory, clock, Fault("put", times=2, before=lost))
    store.put("a", b"ours", Update(version))
    assert memory.get("a").data == b"ours"


def test_an_update_that_meets_itself_succeeded(memory, clock):
    version = memory.put("a", b"old").version
    store = read_back(
        memory, clock, Fault("put", before=lambda key: memory.put(key, b"ours", OVERWRITE))
    )
    store.put("a", b"ours", Update(version))
    assert memory.get("a").data == b"ours"


def test_an_update_that_meets_another_is_a_conflict(memory, clock):
    version = memory.put("a", b"old").version
    memory.put("a", b"another's", OVERWRITE)
    with pytest.raises(ConflictError):
        read_back(memory, clock).put("a", b"ours", Update(version))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_doubtful_update_that_meets_another_is_unknown(memory, clock, when):
    version = memory.put("a", b"old").version
    store = read_back(memory, clock, Fault("put", **{when: overwritten_by_another(memory)}))
    with pytest.raises(OutcomeUnknownError, match="'a'"):
        store.put("a", b"ours", Update(version))
    # Sent once: sending it again could land on a state that nobody decided on.
    assert clock.slept == []


def test_a_doubtful_update_of_what_is_gone_is_unknown(memory, clock):
    version = memory.put("a", b"old").version

    def removed(key):
        memory.delete(key)
        lost(key)

    with pytest.raises(OutcomeUnknownError):
        read_back(memory, clock, Fault("put", after=removed)).put("a", b"ours", Update(version))


def test_a_request_that_is_lost_again_and_again_ends_unknown(memory, clock):
    store = read_back(memory, clock, Fault("put", times=9**9, before=lost))
    with pytest.raises(OutcomeUnknownError, match="read the key to find out"):
        store.put("a", b"ours")
    assert clock.slept == pytest.approx([0.1, 0.2, 0.4])


def test_what_cannot_be_read_back_is_unknown_and_no_conflict(memory, clock):
    memory.put("a", b"another's")
    store = read_back(memory, clock, Fault("get", before=refuse(errno.EIO)))
    with pytest.raises(OutcomeUnknownError):
        store.put("a", b"ours")


def test_a_doubt_that_cannot_be_read_back_stays_a_doubt(memory, clock):
    store = read_back(
        memory, clock, Fault("put", after=lost), Fault("get", before=refuse(errno.EIO))
    )
    with pytest.raises(OutcomeUnknownError):
        store.put("a", b"ours")


def test_a_refusal_after_a_doubt_does_not_end_it(memory, clock):
    store = read_back(
        memory, clock, Fault("put", before=lost), Fault("put", nth=2, before=refuse(errno.EAGAIN))
    )
    store.put("a", b"ours")
    assert memory.get("a").data == b"ours"


def test_a_plain_refusal_passes_through(memory, clock):
    store = read_back(memory, clock, Fault("put", before=refuse(errno.ENOSPC)))
    with pytest.raises(StoreError) as info:
        store.put("a", b"ours")
    assert info.value.errno == errno.ENOSPC


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_doubtful_delete_of_a_version_is_repeated(memory, clock, when):
    version = memory.put("a", b"x").version
    read_back(memory, clock, Fault("delete", **{when: lost})).delete("a", version=version)
    assert list(memory.list()) == []


def test_a_doubtful_delete_that_meets_another_is_unknown(memory, clock):
    version = memory.put("a", b"x").version
    store = read_back(memory, clock, Fault("delete", after=overwritten_by_another(memory)))
    with pytest.raises(OutcomeUnknownError):
        store.delete("a", version=version)
    assert memory.get("a").data == b"another's"


def test_a_delete_that_meets_another_is_a_conflict(memory, clock):
    version = memory.put("a", b"x").version
    memory.put("a", b"another's", OVERWRITE)
    with pytest.raises(ConflictError):
        read_back(memory, clock).delete("a", version=version)


def test_under_lost_requests_and_replies_each_answer_is_true(memory):
    """Eight writers add their ids to one document; every attempt is checked against it."""
    chance = random.Random(4711)
    sometimes = lambda action: lambda key: action(key) if chance.random() < 0.2 else None  # noqa: E731
    memory.put("ids", b"")

    def write(writer):
        faults = Fault("put", times=9**9, before=sometimes(lost), after=sometimes(lost))
        store = ReadBackStore(FaultyStore(memory, faults), pause_seconds=0)
        answers = {"yes": [], "no": [], "unknown": []}
        for number in range(60):
            found = memory.get("ids")
            mine = b"%d-%d;" % (writer, number)
            try:
                store.put("ids", found.data + mine, Update(found.info.version))
                answers["yes"].append(mine)
            except ConflictError:
                answers["no"].append(mine)
            except OutcomeUnknownError:
                answers["unknown"].append(mine)
        return answers

    results = race([functools.partial(write, writer) for writer in range(8)])
    landed = memory.get("ids").data
    for answers in results:
        assert all(landed.count(mine) == 1 for mine in answers["yes"])
        assert not any(mine in landed for mine in answers["no"])
    assert sum(len(answers["yes"]) for answers in results) > 30
