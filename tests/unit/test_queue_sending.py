"""Hand-offs in a session, sent: ids, recipients, bounds, what is tried again, receipts."""

from itertools import pairwise

import pytest
from queue_world import LEASE, World, taken

from tapstore.errors import (
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    NotFoundError,
    StoreError,
)
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.mailbox import MailboxFullError
from tapstore.handoffs.queue.places import Places
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE

# Sending


def test_an_unknown_recipient_is_known_before_anything_is_written():
    world = World()
    before = world.keys()
    with pytest.raises(DraftError, match="nobody"):
        world.send(to="reviewer,nobody")
    assert world.keys() == before


def test_a_role_that_came_later_is_known():
    world = World()
    box = world.box("coder")

    def join(document):
        document["participants"].append({"role": "writer", "status": "pending"})

    world.session.edit(join, by="test")
    box.send(b"type: note\nto: writer\npriority: 50\nmessage: welcome\n")
    assert taken(world.box("writer")) == "welcome"


def test_a_role_that_the_session_lacks_has_no_mailbox():
    with pytest.raises(NotAllowedError, match="its roles are QA, coder, reviewer"):
        World().box("nobody")


def test_a_message_to_many_is_one_copy_for_each():
    world = World()
    name = world.send(to="reviewer,QA,coder")
    for role in ("reviewer", "QA", "coder"):
        box = world.box(role)
        assert box.next().items[0].message.recipient == role
        box.done()
        assert box.next() is None
    assert world.keys("outbox") == []
    assert world.keys("sent") == [Places("coder").sent(name)]


def test_the_same_id_to_the_same_recipient_is_one_message_even_if_it_was_completed():
    world = World()
    name = world.send(to="reviewer,QA")
    box = world.box("reviewer")
    box.next()
    box.done()
    sent = world.store.get(Places("coder").sent(name)).data
    world.store.put(f"handoffs/coder/outbox/{name}", sent)
    delivery = next(box.deliver())
    assert delivery.delivered == ()
    assert box.next() is None
    assert len(world.keys("/new/")) == 1


def test_a_half_delivered_message_is_finished_by_the_next_who_has_nothing_to_do():
    world = World()
    name = world.send(to="reviewer,QA")
    sent = world.store.get(Places("coder").sent(name)).data
    world.store.put(f"handoffs/coder/outbox/{name}", sent)
    world.store.delete(Places("QA").waiting(name))
    assert taken(world.box("QA")) == "m"


def test_another_message_of_the_same_name_is_refused_and_nothing_overwritten():
    world = World()
    name = world.send(to="reviewer,QA", message="first")
    sent = world.store.get(Places("coder").sent(name)).data
    world.store.put(f"handoffs/coder/outbox/{name}", sent.replace(b"first", b"other"))
    delivery = next(world.box("coder").deliver())
    assert "another message of the same name" in delivery.failed
    assert taken(world.box("reviewer")) == "first"
    assert world.keys("outbox") == []
    reason = world.store.get(f"handoffs/coder/failed/{name}.error").data
    assert b"another message of the same name" in reason


def test_what_failed_is_listed_with_the_reason_and_comes_back():
    world = World()
    name = world.send(to="reviewer,QA")
    sent = world.store.get(Places("coder").sent(name)).data
    for key in world.keys("/new/"):
        world.store.delete(key)
    gone = sent.replace(b"to: reviewer,QA", b"to: reviewer,gone")
    world.store.put(f"handoffs/coder/outbox/{name}", gone)
    box = world.box("coder")
    assert "no role gone" in next(box.deliver()).failed
    listed = next(box.entries())
    assert (listed.standing, listed.name) == ("failed", name)
    assert "no role gone" in listed.reason
    with pytest.raises(FormatError, match="no role gone"):
        box.retry(name)
    assert next(box.entries()).standing == "failed"

    def join(document):
        document["participants"].append({"role": "gone", "status": "pending"})

    world.session.edit(join, by="test")
    world.box("coder").retry(name)
    assert list(world.box("coder").entries()) == []
    assert taken(world.box("gone")) == "m"


def test_retrying_what_is_not_there_says_so():
    world = World()
    name = world.send()
    with pytest.raises(NotFoundError, match="handoff list"):
        world.box("coder").retry(name)


def test_ids_rise_and_are_never_drawn_twice_whoever_sends():
    world = World()
    boxes = [world.box("coder") for _ in range(3)]
    draft = b"type: note\nto: reviewer\npriority: 50\nmessage: m\n"
    found = [boxes[n % 3].send(draft).name for n in range(60)]
    assert len({name.id for name in found}) == 60
    for each in range(3):
        mine = found[each::3]
        assert mine == sorted(mine)


def test_no_more_than_allowed_waits_for_a_role():
    world = World(settings="max_waiting: 2\n")
    world.send()
    world.send()
    before = world.keys()
    with pytest.raises(MailboxFullError, match="2 messages wait for 'reviewer'"):
        world.send(to="QA,reviewer")
    assert world.keys("/new/") == [key for key in before if "/new/" in key]
    box = world.box("reviewer")
    box.next()
    box.done()
    world.send()


def test_references_to_artifacts_are_held_against_the_session():
    world = World()
    world.session.publish("plan.md", b"# Plan", type="text", phase="")
    artifact = world.session.tapfile.artifact("plan.md")
    good = f"plan.md@{artifact.checksum}"
    box = world.box("coder")
    headers = {"type": "note", "to": "QA", "priority": "50", "message": "look"}
    before = world.keys()
    with pytest.raises(DraftError, match=r"'plan.md' has sha256:.*, not sha256:0000"):
        box.send({**headers, "artifacts": f"plan.md@sha256:{'0' * 64}"})
    with pytest.raises(DraftError, match=r"no artifact other.md"):
        box.send({**headers, "artifacts": good.replace("plan", "other")})
    assert world.keys() == before
    box.send({**headers, "artifacts": good})
    assert world.box("QA").next().items[0].message.artifacts[0].checksum == artifact.checksum


def test_a_draft_may_be_given_as_its_headers():
    world = World()
    headers = {"type": "note", "to": "QA", "priority": "50", "message": "look"}
    world.box("coder").send(headers)
    assert taken(world.box("QA")) == "look"
    with pytest.raises(FormatError, match="one line"):
        world.box("coder").send({**headers, "message": "look\npriority: 00"})
    with pytest.raises(FormatError, match="UTF-8"):
        world.box("coder").send({**headers, "message": "\udc80"})


class Refusing(WrapperStore):
    """Takes nothing that is for one role, for some time."""

    def __init__(self, inner, role):
        super().__init__(inner)
        self.part = f"handoffs/{role}/inbox/new/"
        self.refuses = True

    def put(self, key, data, mode=CREATE):
        if self.refuses and key.startswith(self.part):
            raise StoreError("no space left")
        return super().put(key, data, mode)


def test_who_cannot_be_reached_is_tried_again_ever_later_and_listed_after_three_tries():
    world = World()
    store = Refusing(world.store, "QA")
    session = world.session
    session.store = store
    box = world.box("coder")
    queued = box.send({"type": "note", "to": "reviewer,QA", "priority": "50", "message": "m"})
    assert queued.waiting == ("QA",)
    assert taken(world.box("reviewer")) == "m"
    tried = []
    for second in range(300):
        tried += [second for _ in box.deliver()]
        listed = next(box.entries())
        assert listed.standing == "queued"
        assert bool(listed.reason) == (listed.attempt >= 3)
        world.clock.advance(1)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == sorted(pauses)
    assert (pauses[0], max(pauses)) == (2, 60)
    assert "QA: no space left" in listed.reason
    store.refuses = False
    world.clock.advance(60)
    assert [delivery.delivered for delivery in box.deliver()] == [("QA",)]
    assert list(box.entries()) == []
    assert taken(world.box("QA")) == "m"


# Receipts and threads


def receipts(world, name, sender="coder"):
    return [(r.recipient, r.standing) for r in world.box(sender).receipts(name)]


def test_the_sender_can_ask_what_became_of_each_copy():
    world = World(settings=LEASE + "max_attempts: 1\n")
    name = world.send(to="reviewer,QA")
    assert receipts(world, name) == [("reviewer", "delivered"), ("QA", "delivered")]
    box = world.box("reviewer", "r1")
    box.next()
    world.box("QA", "q1").next()
    accepted = world.box("coder").receipts(name)[0]
    assert (accepted.standing, accepted.agent, accepted.attempt) == ("accepted", "r1", 1)
    box.done()
    world.clock.advance(61)
    world.box("QA", "q2").next()
    assert receipts(world, name) == [("reviewer", "completed"), ("QA", "dead")]


def test_a_message_is_found_by_its_id_and_by_its_name_wherever_it_is():
    world = World()
    name = world.send()
    identity = name[3:].partition("_to_")[0]
    box = world.box("reviewer")
    for step in (lambda: None, box.next, box.done):
        step()
        for looking in (world.box("coder", "x"), world.box("reviewer", "y")):
            for wanted in (name, identity):
                assert looking.find(wanted).message.id == identity
    with pytest.raises(InvalidKeyError):
        world.box("coder").find("no-id")
    with pytest.raises(NotFoundError):
        world.box("coder").find("20260615T140531Z_000042_from_coder")


def test_replies_name_what_they_answer():
    world = World()
    name = world.send(correlation_id="thread-7")
    first = world.box("reviewer").next().items[0].message
    world.send(sender="reviewer", to="coder", reply_to=first.id, correlation_id="thread-7")
    reply = world.box("coder").next().items[0].message
    assert reply.headers["reply_to"] == name[3:].partition("_to_")[0]
    assert reply.headers["correlation_id"] == "thread-7"
