"""Hand-offs in a session where requests are lost, names come twice, and clocks are wrong."""

import pytest
from queue_world import World, taken

from tapstore.errors import OutcomeUnknownError
from tapstore.handoffs.queue.inbox import Inbox
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.handoffs.queue.settings import Settings
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, lost


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
