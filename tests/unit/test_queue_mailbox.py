"""Hand-offs in a session, received: order, leases, attempts, ends, batches."""

import pytest
from queue_world import LEASE, World, kill, record, taken

from tapstore.errors import (
    FormatError,
    InvalidKeyError,
    LeaseLostError,
    NotAllowedError,
)
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.places import Places
from tapstore.types import OVERWRITE

# Order


def test_messages_come_by_priority_then_time_then_number():
    world = World()
    for message, priority in [("late", 50), ("later", 50), ("urgent", 10), ("last", 90)]:
        world.send(message=message, priority=priority)
        world.clock.advance(1)
    box = world.box("reviewer")
    found = []
    while (message := taken(box)) is not None:
        found.append(message)
        box.done()
    assert found == ["urgent", "late", "later", "last"]


def test_what_waited_long_comes_before_what_is_more_urgent():
    world = World(settings="ageing_seconds: 10\n")
    world.send(message="old", priority=99)
    world.clock.advance(10 * 99 - 5)
    world.send(message="urgent", priority=0)
    assert taken(world.box("reviewer", "a1")) == "urgent"
    world.clock.advance(10)
    world.send(message="as urgent, later", priority=0)
    assert taken(world.box("reviewer", "a2")) == "old"


def test_a_message_of_priority_99_is_reached_although_urgent_ones_keep_coming():
    world = World(settings="ageing_seconds: 1\n")
    world.send(message="patient", priority=99)
    box = world.box("reviewer")
    for number in range(200):
        world.send(message=f"urgent {number}", priority=0)
        world.clock.advance(1)
        if taken(box) == "patient":
            break
        box.done()
    else:
        pytest.fail("it starved")


def test_without_ageing_priority_is_strict():
    world = World(settings="ageing_seconds: 0\n")
    world.send(message="old", priority=51)
    world.clock.advance(1e6)
    world.send(message="urgent", priority=50)
    assert taken(world.box("reviewer")) == "urgent"


# Accepting


def test_what_an_agent_has_in_process_is_given_to_it_again_after_a_restart():
    world = World()
    world.send(message="one")
    world.send(message="two")
    first = world.box("reviewer").next()
    again = world.box("reviewer").next()
    assert (first.resumed, again.resumed) == (False, True)
    assert again.items == first.items


def test_each_of_several_agents_has_a_message_of_its_own():
    world = World()
    for number in range(3):
        world.send(message=str(number))
    assert [taken(world.box("reviewer", f"a{n}")) for n in range(4)] == ["0", "1", "2", None]


def test_the_four_times_of_a_message_are_kept():
    world = World()
    name = world.send()
    world.clock.advance(5)
    box = world.box("reviewer")
    box.next()
    world.clock.advance(7)
    box.done()
    done = record(world, name)
    times = [done.time(header) for header in
             ("created_at", "enqueued_at", "dequeued_at", "completed_at")]  # fmt: skip
    assert times[1] - times[0] == 0
    assert times[2] - times[1] == pytest.approx(5, abs=0.01)
    assert times[3] - times[2] == pytest.approx(7, abs=0.01)


def test_done_without_anything_in_process_is_refused_as_by_the_original():
    world = World()
    with pytest.raises(MailboxStateError, match=r"^NO_CURRENT_TASK$") as caught:
        world.box("reviewer").done()
    assert caught.value.exit_code == 1
    with pytest.raises(MailboxStateError, match=r"^NO_CURRENT_BATCH$"):
        world.box("reviewer", mode="batch").done()


def test_two_things_in_process_are_refused_until_they_are_given_back():
    world = World()
    names = [world.send(message=str(n)) for n in range(2)]
    for name in names:
        # As two processes leave it that share the id of an agent.
        world.box("reviewer")._inbox._take(name, Places("reviewer").waiting(name), 1)
    for refused in (world.box("reviewer").next, world.box("reviewer").done):
        with pytest.raises(
            MailboxStateError, match=r"^AMBIGUOUS_TASK_STATE: .*give back"
        ) as caught:
            refused()
        assert caught.value.exit_code == 2
        assert len(caught.value.places) == 2
    assert len(world.box("reviewer").release("one at a time")) == 2
    world.clock.advance(1)
    assert world.box("reviewer").next().items[0].attempt == 2


# Leases


def test_what_a_dead_agent_held_is_the_next_attempt_of_another():
    world = World(settings=LEASE)
    name = world.send()
    world.box("reviewer", "dead").next()
    world.clock.advance(59)
    assert world.box("reviewer", "alive").next() is None
    world.clock.advance(2)
    box = world.box("reviewer", "alive")
    assert box.next().items[0].attempt == 2
    box.done()
    assert record(world, name).headers[records.AGENT] == "alive"


def test_renewing_keeps_a_message_from_others():
    world = World(settings=LEASE)
    world.send()
    box = world.box("reviewer", "slow")
    box.next()
    for _ in range(3):
        world.clock.advance(50)
        box.renew()
        assert world.box("reviewer", "other").next() is None


def test_a_late_done_is_told_who_was_faster():
    world = World(settings=LEASE)
    name = world.send()
    late = world.box("reviewer", "late")
    late.next()
    world.clock.advance(61)
    fast = world.box("reviewer", "fast")
    fast.next()
    fast.done()
    with pytest.raises(LeaseLostError, match="completed by fast, attempt 2"):
        late.done()
    assert record(world, name).headers[records.AGENT] == "fast"
    assert world.keys("in_process") == []


def test_a_late_done_of_another_process_is_told_too():
    world = World(settings=LEASE)
    world.send()
    world.box("reviewer", "late").next()
    world.clock.advance(61)
    fast = world.box("reviewer", "fast")
    fast.next()
    fast.done()
    with pytest.raises(LeaseLostError, match="completed by fast"):
        world.box("reviewer", "late").done()
    assert world.box("reviewer", "late").next() is None


def test_the_first_of_two_attempts_to_be_done_is_the_one_that_counts():
    world = World(settings=LEASE)
    name = world.send()
    slow = world.box("reviewer", "slow")
    slow.next()
    world.clock.advance(61)
    second = world.box("reviewer", "second")
    second.next()
    slow.done()
    with pytest.raises(LeaseLostError, match="completed by slow, attempt 1"):
        second.done()
    assert record(world, name).headers[records.AGENT] == "slow"


def test_renewing_what_somebody_else_has_by_now_is_refused():
    world = World(settings=LEASE)
    world.send()
    late = world.box("reviewer", "late")
    late.next()
    world.clock.advance(61)
    world.box("reviewer", "fast").next()
    with pytest.raises(LeaseLostError, match="somebody else"):
        late.renew()


def test_what_is_given_back_is_somebody_elses_next_attempt_and_says_why():
    world = World()
    name = world.send()
    box = world.box("reviewer", "a1")
    box.next()
    box.release("no disk left")
    world.clock.advance(1)
    listed = next(world.box("reviewer").entries())
    assert (listed.standing, listed.reason, listed.attempt) == ("delivered", "no disk left", 1)
    assert world.box("reviewer", "a2").next().items[0].attempt == 2
    assert record(world, name) is None


# Dead letters


def test_after_so_many_attempts_a_message_is_dead_with_its_history():
    world = World(settings=LEASE + "max_attempts: 2\n")
    name = world.send()
    kill(world, 2)
    assert world.box("reviewer", "last").next() is None
    dead = record(world, name)
    assert records.is_dead(dead)
    assert "1: d0 at" in dead.headers[records.HISTORY]
    assert "2: d1 at" in dead.headers[records.HISTORY]
    assert world.keys("/new/") == []
    listed = next(world.box("reviewer").entries())
    assert (listed.standing, listed.name) == ("dead", name)
    assert "2 attempts" in listed.reason


def test_a_dead_letter_does_not_hold_up_what_is_behind_it():
    world = World(settings=LEASE + "max_attempts: 1\n")
    world.send(message="dead")
    kill(world, 1)
    world.send(message="alive")
    assert taken(world.box("reviewer", "last")) == "alive"


def test_a_late_done_of_a_dead_letter_is_told_so():
    world = World(settings=LEASE + "max_attempts: 1\n")
    world.send()
    late = world.box("reviewer", "late")
    late.next()
    world.clock.advance(61)
    world.box("reviewer", "other").next()
    with pytest.raises(LeaseLostError, match="dead"):
        late.done()


def test_a_late_done_of_a_dead_letter_is_told_so_in_another_process_too():
    world = World(settings=LEASE + "max_attempts: 1\n")
    world.send()
    world.box("reviewer", "late").next()
    world.clock.advance(61)
    world.box("reviewer", "other").next()
    with pytest.raises(LeaseLostError, match="dead"):
        world.box("reviewer", "late").done()
    assert world.keys("in_process") == []


def test_what_nobody_asks_for_any_more_is_removed_after_a_day():
    world = World(settings=LEASE + "max_attempts: 1\n")
    world.send()
    kill(world, 1)
    world.box("reviewer", "other").next()
    assert len(world.keys("in_process")) == 1
    world.clock.advance(86_401)
    world.box("reviewer", "other").next()
    assert world.keys("in_process") == []


def test_a_dead_letter_comes_back_under_a_new_id():
    world = World(settings=LEASE + "max_attempts: 1\n")
    name = world.send(message="again", correlation_id="c1")
    kill(world, 1)
    box = world.box("reviewer", "last")
    box.next()
    queued = box.retry(name)
    assert str(queued.name) != name
    item = box.next().items[0]
    assert item.message.headers["message"] == "again"
    assert item.message.headers["correlation_id"] == "c1"
    assert item.message.headers[records.RETRY_OF] == record(world, name).id
    assert item.attempt == 1
    assert [entry.standing for entry in box.entries()] == ["accepted"]


# Batches


def test_a_batch_is_every_waiting_message_of_the_heads_priority():
    world = World()
    for number in range(3):
        world.send(message=str(number), priority=50)
    world.send(message="other", priority=60)
    box = world.box("reviewer", mode="batch")
    batch = box.next()
    assert [item.message.headers["message"] for item in batch.items] == ["0", "1", "2"]
    assert world.box("reviewer", mode="batch").next().items == batch.items
    done = box.done()
    assert len({item.message.headers["completed_at"] for item in done.items}) == 1
    assert world.keys("in_process") == []
    assert [i.message.headers["message"] for i in box.next().items] == ["other"]


def test_roles_receive_as_the_session_says():
    world = World(settings="receive: {reviewer: batch}\n")
    world.send()
    world.send()
    assert len(world.box("reviewer").next().items) == 2


def test_work_of_the_other_shape_is_refused_with_the_way_out():
    world = World()
    world.send()
    world.send(priority=60)
    world.box("reviewer", mode="task").next()
    batch = world.box("reviewer", mode="batch")
    with pytest.raises(MailboxStateError, match=r"^TASK_IN_PROCESS_IS_SINGLE: .*release"):
        batch.next()
    with pytest.raises(MailboxStateError, match=r"^CURRENT_WORK_IS_SINGLE_TASK"):
        batch.done()
    world.box("reviewer", "other", mode="batch").next()
    task = world.box("reviewer", "other", mode="task")
    with pytest.raises(MailboxStateError, match=r"^TASK_IN_PROCESS_IS_BATCH"):
        task.next()
    with pytest.raises(MailboxStateError, match=r"^CURRENT_WORK_IS_BATCH"):
        task.done()
    task.release("start anew")
    world.clock.advance(1)
    assert task.next().items[0].attempt == 2


def test_a_batch_that_was_closed_is_completed_as_one_although_its_agent_died():
    world = World(settings=LEASE)
    names = [world.send(message=str(n)) for n in range(3)]
    box = world.box("reviewer", "dead", mode="batch")
    box.next()
    inbox = box._inbox
    at = inbox._batches.close(inbox.held[0].batch, world.store.now())
    inbox._end(inbox.held[0], at=at)
    world.clock.advance(100)
    assert world.box("reviewer", "other").next() is None
    times = {record(world, name).headers["completed_at"] for name in names}
    assert len(times) == 1
    assert {record(world, name).headers[records.AGENT] for name in names} == {"dead"}


def test_a_batch_whose_agent_began_again_is_finished_by_it():
    world = World()
    for number in range(3):
        world.send(message=str(number))
    box = world.box("reviewer", "a1", mode="batch")
    box.next()
    inbox = box._inbox
    at = inbox._batches.close(inbox.held[0].batch, world.store.now())
    inbox._end(inbox.held[0], at=at)
    world.clock.advance(3)
    world.send(message="new")
    again = world.box("reviewer", "a1", mode="batch").next()
    assert [item.message.headers["message"] for item in again.items] == ["new"]


def test_what_a_crash_left_of_the_acceptance_of_a_batch_is_accepted_then():
    world = World()
    names = [world.send(message=str(n)) for n in range(3)]
    box = world.box("reviewer", "a1", mode="batch")
    batch = box._inbox._batches.begin(names)
    box._inbox._take(names[0], Places("reviewer").waiting(names[0]), 1, batch)
    again = world.box("reviewer", "a1", mode="batch").next()
    assert [item.message.headers["message"] for item in again.items] == ["0", "1", "2"]
    assert {item.message.headers[records.BATCH] for item in again.items} == {batch}


# What does not belong there


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.replace(b"priority: 50", b"priority: 10"), "'priority' is 10, not 50"),
        (lambda data: data.replace(b"recipient: reviewer", b"recipient: ../x"), "recipient"),
        (lambda data: data.replace(b"from: coder", b"from: QA"), "'from'"),
        (lambda _: b"x" * 10_000_000, "bytes"),
        (lambda data: b"\xff\xfe" + data, "UTF-8"),
        (lambda data: data.replace(b"type: note", b"type: note\ntype: x"), "twice"),
    ],
)
def test_what_is_no_message_is_put_aside_with_the_reason_and_the_next_one_taken(change, reason):
    world = World()
    name = world.send(message="bad")
    key = Places("reviewer").waiting(name)
    data = change(world.store.get(key).data)
    world.store.put(key, data, OVERWRITE)
    world.send(message="good")
    box = world.box("reviewer")
    assert taken(box) == "good"
    assert world.store.get(f"handoffs/reviewer/failed/{name}").data == data
    listed = [entry for entry in box.entries() if entry.standing == "failed"]
    assert reason in listed[0].reason


def test_a_file_that_is_still_being_written_is_let_alone_for_a_minute():
    world = World()
    name = world.send(message="slow")
    key = Places("reviewer").waiting(name)
    data = world.store.get(key).data
    world.store.put(key, data[:40], OVERWRITE)
    assert world.box("reviewer").next() is None
    assert world.keys("failed") == []
    world.store.put(key, data, OVERWRITE)
    assert taken(world.box("reviewer")) == "slow"


def test_a_message_dropped_by_hand_into_another_folder_is_taken_from_there():
    world = World()
    name = world.send(message="dropped")
    data = world.store.get(Places("reviewer").waiting(name)).data
    world.store.delete(Places("reviewer").waiting(name))
    world.store.put(f"handoffs/reviewer/inbox/new/{name}", data)
    box = world.box("reviewer")
    assert taken(box) == "dropped"
    box.done()
    assert world.keys("/new/") == world.keys("in_process") == []


def test_a_name_that_is_too_long_or_no_name_is_put_aside():
    world = World()
    for name in ("x" * 190 + ".handoff", "99_nonsense.handoff"):
        world.store.put(f"handoffs/reviewer/inbox/new/{name}", b"anything")
    world.send(message="good")
    world.clock.advance(61)
    assert taken(world.box("reviewer")) == "good"
    assert taken(world.box("reviewer", "a2")) is None
    assert len(world.keys("failed")) == 4


def test_rubbish_in_process_holds_a_message_for_no_longer_than_a_lease():
    world = World(settings=LEASE)
    name = world.send()
    world.store.put(f"{Places('reviewer').attempt(name, 1)}", b"rubbish")
    assert world.box("reviewer").next() is None
    world.clock.advance(61)
    assert world.box("reviewer").next().items[0].attempt == 2


# Pruning


def test_what_ended_long_ago_is_removed_and_what_waits_is_not():
    world = World()
    done = world.send(message="done")
    box = world.box("reviewer")
    box.next()
    box.done()
    world.send(message="waits")
    world.clock.advance(7200)
    assert list(box.prune(3600, dry_run=True)) == [Places("reviewer").completed(done)]
    assert record(world, done) is not None
    list(box.prune(3600))
    assert record(world, done) is None
    list(world.box("coder").prune(3600))
    assert world.keys("sent") == world.keys("completed") == []
    assert taken(box) == "waits"


def test_what_is_not_delivered_to_all_keeps_the_records_of_its_ends():
    world = World()
    name = world.send(to="reviewer,QA")
    sent = world.store.get(Places("coder").sent(name)).data
    box = world.box("reviewer")
    box.next()
    box.done()
    world.store.put(f"handoffs/coder/outbox/{name}", sent)
    world.clock.advance(7200)
    assert list(box.prune(3600)) == []


def test_the_window_of_once_cannot_be_made_too_small():
    with pytest.raises(NotAllowedError, match="3600 s"):
        list(World().box("reviewer").prune(60))


# Settings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lease_seconds: 0", "lease_seconds"),
        ("lease_seconds: soon", "lease_seconds"),
        ("max_attempts: 1.5", "whole number"),
        ("leese: 1", "there are types, receive"),
        ("receive: {reviewer: bulk}", "task or batch"),
        ("receive: {a_b: batch}", "'_' separates"),
        ("types: [{name: note, body: x}]", "note"),
        ("[]", "no mapping"),
    ],
)
def test_settings_that_are_not_valid_are_refused_with_the_field(text, reason):
    with pytest.raises((FormatError, InvalidKeyError), match=reason):
        World(settings=text)


def test_a_session_may_declare_types_of_its_own():
    world = World(
        settings="types: [{name: verdict, headers: {decision: {enum: [yes, no]}}, "
        "required: [decision], body: 'It is {decision}.'}]\n"
    )
    world.box("coder").send(b"type: verdict\nto: QA\npriority: 10\ndecision: yes\n")
    assert world.box("QA").next().items[0].message.body == "It is yes.\n"
    with pytest.raises(DraftError, match="must be one of yes, no"):
        world.box("coder").send(b"type: verdict\nto: QA\npriority: 10\ndecision: perhaps\n")
