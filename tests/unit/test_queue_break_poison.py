"""What somebody left in the folders of a session harms itself, and nothing else."""

import errno
import os
import warnings

import pytest
from queue_world import World, taken

from tapstore.errors import FormatError, TapstoreError, UnsupportedOperationError
from tapstore.handoffs import message as messages
from tapstore.handoffs.mailbox import HandoffWarning
from tapstore.handoffs.message import MAX_BYTES, MAX_HEADER_BYTES, Message
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.places import Places
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.faults import Fault, FaultyStore, refuse
from tapstore.types import CREATE, OVERWRITE
from tests.rights import as_nobody

LEASE = "lease_seconds: 60\n"


def change(world, key, edit):
    world.store.put(key, edit(world.store.get(key).data), OVERWRITE)


# Names


def test_a_name_with_no_room_for_a_note_beside_it_blocks_no_delivery_and_no_list():
    world = World()
    for folder in ("outbox", "failed"):
        world.store.put(f"handoffs/coder/{folder}/{'x' * 190}.handoff", b"anything\n\n")
    assert world.box("reviewer").next() is None
    assert world.keys("outbox") == []
    standings = [entry.standing for entry in world.box("coder").entries()]
    assert set(standings) == {"failed"}


def test_an_attempt_that_names_no_batch_but_a_way_out_blocks_nobody():
    world = World(settings=LEASE)
    world.send()
    world.box("reviewer", "dead", mode="batch").next()
    (key,) = [key for key in world.keys("in_process") if "~1" in key]
    change(world, key, lambda data: data.replace(b"tapstore-batch: batch", b"tapstore-batch: ../x"))
    world.clock.advance(61)
    assert world.box("reviewer").next().items[0].attempt == 2


# Sizes


def whole_copy(world, name, *, header_bytes=0, all_bytes=0):
    """The copy of a message as long as the format allows."""
    message = messages.parse(world.store.get(Places("reviewer").waiting(name)).data)
    if header_bytes:
        size = len(messages.render(message).split(b"\n\n")[0]) + 1
        message = Message({**message.headers, "x": "x" * (header_bytes - size - 4)}, message.body)
    if all_bytes:
        size = len(messages.render(message))
        message = Message(message.headers, message.body + "x" * (all_bytes - size))
    return messages.render(message)


@pytest.mark.parametrize(
    "sizes", [{"header_bytes": MAX_HEADER_BYTES}, {"all_bytes": MAX_BYTES}], ids=str
)
def test_a_message_with_no_room_for_what_is_noted_of_its_way_is_put_aside(sizes):
    world = World()
    name = world.send(message="large")
    data = whole_copy(world, name, **sizes)
    world.store.put(Places("reviewer").waiting(name), data, OVERWRITE)
    world.send(message="good")
    box = world.box("reviewer")
    assert taken(box) == "good"
    assert "no room" in next(e.reason for e in box.entries() if e.standing == "failed")


def test_a_message_that_just_has_room_can_be_accepted_given_back_and_given_up():
    world = World(settings=LEASE + "max_attempts: 30\n")
    name = world.send()
    data = whole_copy(world, name, header_bytes=MAX_HEADER_BYTES - records.ROOM_BYTES)
    world.store.put(Places("reviewer").waiting(name), data, OVERWRITE)
    for number in range(30):
        box = world.box("reviewer", "ä" * 110 + str(number))
        assert box.next().items[0].attempt == number + 1
        box.release("ä" * 300)
        world.clock.advance(2)
    assert world.box("reviewer").next() is None
    assert [entry.standing for entry in world.box("reviewer").entries()] == ["dead"]


def test_a_draft_that_is_too_long_to_be_delivered_is_refused_before_anything_is_written():
    roles = ["coder", *(f"role-{'x' * 50}-{n:03}" for n in range(400))]
    world = World(
        roles=roles,
        settings="types: [{name: long, headers: {text: {}}, required: [text], body: x}]\n",
    )
    for to in (roles[1], ",".join(roles[1:])):
        room = 63_000 - len(to)
        draft = {"type": "long", "to": to, "priority": "50", "text": "x" * room}
        with pytest.raises(FormatError, match="no room"):
            world.box("coder").send(draft)
        assert world.keys("outbox") == world.keys("sent") == world.keys("/new/") == []


# What lies in a folder and is no message


@pytest.fixture
def folder(tmp_path):
    return World(url=str(tmp_path / "s"), settings=LEASE)


def path(world, key):
    return world.store.local_path(key)


@pytest.mark.parametrize("state", ["in_process", "completed"])
def test_a_folder_in_the_place_of_a_state_holds_up_nothing_else(folder, state):
    name = folder.send(message="blocked")
    places = Places("reviewer")
    key = places.attempt(name, 1) if state == "in_process" else places.completed(name)
    os.makedirs(path(folder, key))
    folder.send(message="good")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HandoffWarning)
        box = folder.box("reviewer")
        assert taken(box) == "good"


def test_a_message_that_cannot_be_read_holds_up_nothing_else(folder, tmp_path):
    name = folder.send(message="secret")
    folder.send(message="good")
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == os.getuid() and place != place.parent:
            place.chmod(place.stat().st_mode | 0o055)
    for place in (tmp_path / "s", *(tmp_path / "s").rglob("*")):
        place.chmod(0o777)
    os.chmod(path(folder, Places("reviewer").waiting(name)), 0)

    def act():
        with pytest.warns(HandoffWarning, match=name):
            assert taken(folder.box("reviewer")) == "good"

    assert as_nobody(act)


def test_if_nothing_else_waits_what_stands_in_the_way_is_an_error(folder):
    name = folder.send()
    os.makedirs(path(folder, Places("reviewer").attempt(name, 1)))
    with pytest.raises(TapstoreError, match=name):
        folder.box("reviewer").next()


def test_what_cannot_be_read_in_an_outbox_stops_no_other_delivery(folder):
    name = folder.send(to="reviewer,QA", message="good")
    sent = folder.store.get(Places("coder").sent(name)).data
    for role in ("reviewer", "QA"):
        folder.store.delete(Places(role).waiting(name))
    folder.store.put(f"handoffs/coder/outbox/{name}", sent)
    first = folder.send(to="reviewer,QA", priority=10, message="blocked")
    for role in ("reviewer", "QA"):
        folder.store.delete(Places(role).waiting(first))
    sent = folder.store.get(Places("coder").sent(first)).data
    folder.store.put(f"handoffs/coder/outbox/{first}", sent)
    folder.store.delete(Places("coder").sent(first))
    os.makedirs(path(folder, Places("coder").sent(first)))
    assert taken(folder.box("reviewer", "a1")) == "blocked"
    assert taken(folder.box("reviewer", "a2")) == "good"
    assert taken(folder.box("QA", "a1")) == "blocked"
    assert taken(folder.box("QA", "a2")) == "good"


def test_a_link_out_of_the_session_is_not_followed_and_holds_up_nothing(folder, tmp_path):
    name = folder.send(message="blocked")
    outside = tmp_path / "outside"
    outside.write_text("x")
    folder.send(message="good")
    os.makedirs(os.path.dirname(path(folder, Places("reviewer").completed(name))), exist_ok=True)
    os.symlink(outside, path(folder, Places("reviewer").completed(name)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HandoffWarning)
        assert taken(folder.box("reviewer")) == "good"
    assert outside.read_text() == "x"


# Putting aside


def dropped(world, data, name="50_20260615T140531Z_000001_from_coder_to_reviewer.handoff"):
    world.store.put(f"handoffs/reviewer/inbox/new/{name}", data)
    world.box("reviewer").next()
    return name


def test_two_files_of_one_name_that_are_put_aside_are_both_kept():
    world = World()
    for data in (b"one\n\n", b"two\n\n", b"one\n\n"):
        dropped(world, data)
    kept = [key for key in world.keys("failed") if not key.endswith(".error")]
    assert [world.store.get(key).data for key in kept] == [b"one\n\n", b"two\n\n"]
    assert len([e for e in world.box("reviewer").entries() if e.reason]) == 2


def test_what_is_too_large_to_be_created_here_is_put_aside_all_the_same():
    world = World()
    box = world.box("reviewer")
    name = "50_20260615T140531Z_000001_from_coder_to_reviewer.handoff"
    world.store.put(f"handoffs/reviewer/inbox/new/{name}", b"x" * 5_000_000)
    box._inbox._store = SmallCreates(world.store)
    assert box.next() is None
    assert world.store.head(f"handoffs/reviewer/failed/{name}").size == 5_000_000
    assert world.keys("/new/") == []


class SmallCreates(WrapperStore):
    """As places that create in one request only."""

    def upload(self, key, source, mode=CREATE):
        if mode is CREATE:
            raise UnsupportedOperationError("too large")
        return self.inner.upload(key, source, mode)


def test_another_message_of_a_name_that_waits_is_put_aside_and_not_taken_for_it():
    world = World()
    name = world.send(message="first")
    data = world.store.get(Places("reviewer").waiting(name)).data
    world.store.put(f"{Places('reviewer').new}10_a/{name}", data.replace(b"first", b"other"))
    assert taken(world.box("reviewer")) == "first"
    (kept,) = [key for key in world.keys("failed") if not key.endswith(".error")]
    assert b"other" in world.store.get(kept).data


# What can't be read, or says what can't be


@pytest.mark.parametrize("said", [b"nan", b"inf", b"-1e300", b"1e300", b"soon"])
def test_a_batch_that_was_closed_at_no_time_is_completed_at_the_time_of_its_record(said):
    world = World(settings=LEASE)
    world.send()
    box = world.box("reviewer", "dead", mode="batch")
    batch = box.next().batch
    world.store.put(f"{batch}.done", said)
    world.clock.advance(61)
    world.send(message="good")
    assert taken(world.box("reviewer", "alive")) == "good"
    assert len(world.keys("completed")) == 1


def test_an_attempt_that_cannot_be_read_holds_a_message_for_no_longer_than_a_lease():
    world = World(settings=LEASE)
    world.send()
    world.box("reviewer", "stranger").next()
    box = world.box("reviewer", "alive")
    fault = Fault("get", "*in_process/*~1", before=refuse(errno.EACCES), times=99)
    store = FaultyStore(world.store, fault)
    box._inbox._attempts._store = box._lists._store = store
    assert box.next() is None
    assert [entry.standing for entry in box.entries()] == ["delivered"]
    world.clock.advance(61)
    assert box.next().items[0].attempt == 2


def test_a_folder_in_the_place_of_a_note_keeps_nothing_from_being_delivered(folder):
    name = folder.send(to="reviewer,QA")
    key = f"handoffs/coder/outbox/{name}"
    folder.store.put(key, folder.store.get(Places("coder").sent(name)).data)
    folder.store.delete(Places("reviewer").waiting(name))
    os.makedirs(path(folder, f"{key}.retry"))
    assert taken(folder.box("reviewer")) == "m"
    assert [k for k in folder.keys("outbox") if k == key] == []
    assert list(folder.box("coder").entries()) == []
