"""Hand-offs in a session where requests are lost, names come twice, and clocks are wrong."""

import pytest
from msgspec.structs import replace
from queue_world import World, taken

from tapstore.errors import OutcomeUnknownError
from tapstore.handoffs.message import MAX_BYTES
from tapstore.handoffs.queue import inbox as inbox_module
from tapstore.handoffs.queue.inbox import Inbox
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.handoffs.queue.settings import Settings
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, lost
from tapstore.types import CREATE


class NothingListed(WrapperStore):
    """Its listings are from before anything was written."""

    def list(self, *_, **__):
        return iter(())


# Ids


def test_two_who_reserve_at_once_never_draw_the_same_id_although_writes_are_read_back():
    """Bytes that are equal to ours are taken for ours when a create is refused."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    drawn = []
    for _ in range(3):
        place = ReadBackStore(NothingListed(store), clock=clock)
        drawn.append(Sequence(place, Places("coder"), clock).draw())
    assert len(set(drawn)) == 3


# Requests that are lost


def inbox(store, world, agent="a1", mode="task"):
    return Inbox(
        store, Places("reviewer"), Settings(lease_seconds=60),
        agent=agent, mode=mode, lease_seconds=60, clock=world.clock,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["task", "batch"])
def test_what_was_accepted_although_the_reply_was_lost_is_given_again(mode):
    world = World()
    world.send()
    store = FaultyStore(world.store, Fault("put", "*in_process/*.handoff~1", after=lost))
    box = inbox(store, world, mode=mode)
    with pytest.raises(OutcomeUnknownError):
        box.next()
    assert box.next().items[0].attempt == 1
    assert len(box.done().items) == 1


def test_what_was_accepted_before_the_look_at_the_record_failed_is_given_again():
    world = World()
    world.send()
    store = FaultyStore(world.store, Fault("get", "*completed/*", before=lost))
    box = inbox(store, world)
    with pytest.raises(OutcomeUnknownError):
        box.next()
    assert taken(box) == "m"


def test_what_fails_while_it_is_sent_is_not_called_sent():
    world = World()
    box = world.box("coder")
    # QA was known when the draft was checked.
    box._outbox._roles = lambda: {"coder", "reviewer"}
    queued = box.send(b"type: note\nto: reviewer,QA\npriority: 50\nmessage: m\n")
    assert "no role QA" in queued.failed
    assert queued.waiting == ("reviewer", "QA")
    assert world.keys("failed")[0] == queued.place


# Giving back


def test_what_an_agent_gave_back_of_a_batch_it_does_not_take_again_with_the_same_batch():
    world = World()
    names = [world.send(message=str(number)) for number in range(3)]
    box = world.box("reviewer", mode="batch")
    batch = box.next()
    box.release("it breaks the build", only=[batch.items[1].place])
    world.clock.advance(5)
    for again in (box, world.box("reviewer", mode="batch")):
        kept = again.next()
        assert [item.message.headers["message"] for item in kept.items] == ["0", "2"]
    box.done()
    assert [item.attempt for item in box.next().items] == [2]
    assert names[1] in box.next().items[0].place


def test_a_batch_does_not_grow_by_what_others_give_back_of_theirs():
    world = World()
    names = [world.send(message=str(number)) for number in range(4)]

    class Racing(WrapperStore):
        """Another agent takes two of them in between."""

        def put(self, key, data, mode=CREATE):
            if "/batch_" in key and not other:
                other.append(inbox(world.store, world, "a2", mode="batch"))
                for name in names[1::2]:
                    attempt = other[0]._take(name, Places("reviewer").waiting(name), 1, "batch_x")
                    other[0]._held += (attempt,)
            return self.inner.put(key, data, mode)

    other = []
    box = inbox(Racing(world.store), world, mode="batch")
    batch = box.next()
    assert [item.message.headers["message"] for item in batch.items] == ["0", "2"]
    other[0].release("not these")
    world.clock.advance(5)
    assert box.next().items == batch.items


def test_a_batch_takes_its_head_from_wherever_it_was_dropped():
    world = World()
    name = world.send(message="dropped")
    waiting = Places("reviewer").waiting(name)
    data = world.store.get(waiting).data
    world.store.delete(waiting)
    world.store.put(f"{Places('reviewer').new}by-hand/{name}", data)
    world.send(message="other")
    world.send(message="urgent", priority=10)
    box = world.box("reviewer", mode="batch")
    found = []
    while (batch := box.next()) is not None:
        found.append({item.message.headers["message"] for item in batch.items})
        box.done()
    assert {"urgent"} in found
    assert set.union(*found) == {"dropped", "other", "urgent"}
    assert world.keys("/new/") == world.keys("in_process") == []


def test_what_was_given_back_is_the_next_ones_after_a_second():
    world = World()
    world.send()
    box = world.box("reviewer", "a1")
    box.next()
    box.release("not mine")
    assert world.box("reviewer", "a2").next() is None
    world.clock.advance(1)
    assert world.box("reviewer", "a2").next().items[0].attempt == 2


# Looking at what is in process


@pytest.mark.parametrize("mode", ["task", "batch"])
def test_what_is_current_is_what_this_agent_has_and_nothing_is_taken_or_listed_for_it(mode):
    world = World()
    for number in range(4):
        world.send(message=str(number), priority=50 + number // 2)
    box = world.box("reviewer", "a1", mode=mode)
    assert box.current() == ()
    accepted = box.next()
    world.box("reviewer", "a2", mode=mode).next()
    again = world.box("reviewer", "a1", mode=mode)
    store = FaultyStore(world.store, Fault("list", "*/new/*", before=lost, times=99))
    again._inbox._attempts._store = store
    assert again.current() == accepted.items
    box.done()
    assert world.box("reviewer", "a1").current() == ()


def test_renewing_and_giving_back_a_batch_lists_what_is_in_process_once():
    world = World()
    for number in range(20):
        world.send(message=str(number))
    calls = []
    store = FaultyStore(world.store, Fault("list", "*", before=calls.append, times=10**6))
    box = inbox(store, world, mode="batch")
    assert len(box.next().items) == 20
    calls.clear()
    box.renew()
    assert len(calls) == 1
    box.release("all of it")
    assert len(calls) == 2


def test_a_message_that_waits_is_found_by_its_id_without_a_list_of_all_that_waits():
    world = World()
    names = [world.send(message=str(number), priority=number) for number in range(3)]
    box = world.box("reviewer")
    seen = []
    store = FaultyStore(world.store, Fault("list", "*", before=seen.append, times=99))
    box._lists._store = store
    message = box.find(names[1]).message
    assert box.find(message.id).message == message
    assert Places("reviewer").new not in seen
    data = world.store.get(Places("reviewer").waiting(names[2])).data
    world.store.delete(Places("reviewer").waiting(names[2]))
    world.store.put(f"{Places('reviewer').new}{names[2]}", data)
    assert box._lists.name_of(Places("reviewer"), names[2][3:].partition("_to_")[0], ()) == names[2]


def test_a_batch_has_no_more_bytes_than_an_agent_can_hold(monkeypatch):
    world = World()
    name = world.send()
    size = world.store.head(Places("reviewer").waiting(name)).size
    monkeypatch.setattr(inbox_module, "MAX_BATCH_BYTES", MAX_BYTES + size + 10)
    for _ in range(4):
        world.send()
    box = world.box("reviewer", mode="batch")
    sizes = []
    while (batch := box.next()) is not None:
        sizes.append(len(batch.items))
        box.done()
    assert sizes == [2, 2, 1]


# Pruning


def test_what_failed_at_some_of_its_recipients_keeps_the_records_of_the_others():
    world = World()
    name = world.send(to="reviewer,QA")
    places = Places("coder")
    sent = world.store.get(places.sent(name)).data
    box = world.box("reviewer")
    box.next()
    box.done()
    world.store.delete(Places("QA").waiting(name))
    world.store.put(f"{places.failed}{name}", sent)
    world.clock.advance(7200)
    assert list(box.prune(3600)) == []
    world.box("coder").retry(name)
    assert box.next() is None
    assert taken(world.box("QA")) == "m"
    world.store.put(f"{places.failed}{name}", sent)
    world.clock.advance(7200)
    list(world.box("coder").prune(3600))
    assert world.keys("coder/failed") == []
    assert len(list(box.prune(3600))) == 1


# Time


@pytest.mark.parametrize("ahead", [30, 10**9])
def test_a_time_from_a_clock_that_was_ahead_holds_a_message_for_two_leases_at_most(ahead):
    world = World(settings="lease_seconds: 60\n")
    world.send()
    world.box("reviewer", "dead").next()
    store = Ahead(world.store, ahead)
    world.clock.advance(121)
    assert inbox(store, world, "alive").next().items[0].attempt == 2


class Ahead(WrapperStore):
    """The clock of its server was ahead when what is in process was written."""

    def __init__(self, inner, seconds):
        super().__init__(inner)
        self._seconds = seconds

    def list(self, prefix="", *, start_after=""):
        for info in self.inner.list(prefix, start_after=start_after):
            yield self._changed(info)

    def head(self, key):
        return self._changed(self.inner.head(key))

    def _changed(self, info):
        ahead = self._seconds if "in_process" in info.key else 0
        return replace(info, modified=info.modified + ahead)


class Remembering(WrapperStore):
    """Its listings tell the times of a minute ago, as NFS may."""

    def list(self, prefix="", *, start_after=""):
        for info in self.inner.list(prefix, start_after=start_after):
            yield replace(info, modified=info.modified - 61)


def test_a_lease_is_not_taken_for_over_because_a_listing_is_old():
    world = World(settings="lease_seconds: 60\n")
    world.send()
    world.box("reviewer", "slow").next()
    world.clock.advance(50)
    box = inbox(Remembering(world.store), world, "other")
    assert box.next() is None
    world.clock.advance(11)
    assert box.next().items[0].attempt == 2
