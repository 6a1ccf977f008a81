"""Each recipient gets one copy, whoever delivers, and whatever came in between."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest

from tapstore.errors import LeaseUnavailableError
from tapstore.handoffs import message as messages
from tapstore.handoffs.swarm import copies, files, guard, sequence
from tapstore.testing.clock import ManualClock
from tests.plain_agents import plain_swarm
from tests.unit.swarm_world import Swarm, age, note, parsed, text_of

THREE = {"coder": "task", "cleaner": "task", "QA": "batch"}


@pytest.fixture
def swarm(tmp_path):
    return Swarm(tmp_path / "project", THREE)


@pytest.fixture
def lockless(monkeypatch):
    """A place without flock: nobody takes turns."""
    monkeypatch.setattr(guard, "_lock", lambda *_: None)


def work_off(swarm, role):
    """Accept and complete all that the role has; returns the texts."""
    box = swarm.box(role)
    texts = []
    while (accepted := box.next()) is not None:
        texts += [item.message.headers["message"] for item in accepted.items]
        box.done()
    return texts


def deliveries(swarm, **options):
    return list(swarm.box("coder", **options).deliver())


def full_inbox(monkeypatch, folder, code=errno.ENOSPC):
    """Nothing can be written below `folder` any more."""
    write = files.write_temp

    def refuse(where, data, **options):
        if where.startswith(str(folder)):
            raise OSError(code, os.strerror(code), where)
        return write(where, data, **options)

    monkeypatch.setattr(files, "write_temp", refuse)


@pytest.mark.parametrize("role", ["cleaner", "QA"])
@pytest.mark.parametrize("steps", ["nothing", "next", "done"])
def test_a_delivery_that_is_repeated_gives_no_second_copy(swarm, role, steps):
    path = swarm.queue("coder", role)
    data = path.read_bytes()
    box = swarm.box(role)
    list(box.deliver())
    if steps != "nothing":
        box.next()
    if steps == "done":
        box.done()
    path.write_bytes(data)  # as if we had died before it was moved to sent/
    (delivery,) = deliveries(swarm)
    assert delivery.delivered == ()
    assert len(swarm.names(role)) == 1
    assert not path.exists()
    assert len(swarm.names("coder", "sent")) == 2  # neither was overwritten


def test_the_first_copy_was_made_and_completed_before_the_deliverer_died(swarm):
    """Of three; the next deliverer gives the others theirs, and the first no other."""
    swarm.modes["architect"] = "task"
    swarm.worktree("architect").mkdir()
    swarm.write_roles()
    path = swarm.queue("coder", "cleaner,QA,architect", "once")
    message = parsed(path)
    for role, completes in (("cleaner", True), ("QA", False)):
        copy = messages.deliver(message, recipient=role, at=0)
        (swarm.new(role) / path.name).write_bytes(messages.render(copy))
        if completes:
            plain_swarm.ready_task(swarm.worktree(role))
            plain_swarm.done_task(swarm.worktree(role))
    (delivery,) = deliveries(swarm)
    assert delivery.delivered == ("architect",)
    assert work_off(swarm, "cleaner") == []
    assert work_off(swarm, "QA") == ["once"]
    assert work_off(swarm, "architect") == ["once"]


@pytest.mark.usefixtures("lockless")
@pytest.mark.parametrize("role", ["cleaner", "QA"])
def test_a_copy_made_after_the_recipient_completed_its_own_is_withdrawn(swarm, monkeypatch, role):
    """Somebody delivers, and the recipient completes, between our look and our copy."""
    swarm.queue("coder", role, "once")
    create = files.create

    def late(temp, path):
        monkeypatch.setattr(files, "create", create)
        assert work_off(swarm, role) == ["once"]
        return create(temp, path)

    monkeypatch.setattr(files, "create", late)
    (delivery,) = deliveries(swarm)
    assert delivery.delivered == ()
    assert swarm.names(role, "inbox", "new") == []
    assert len(swarm.names(role)) == 1


def test_a_copy_that_was_not_withdrawn_is_not_accepted(swarm):
    """Whoever made it died before it looked again."""
    swarm.send("coder", "cleaner", "once")
    work_off(swarm, "cleaner")
    (name,) = swarm.names("cleaner", "inbox", "completed")
    done = swarm.folder("cleaner", "inbox", "completed", name)
    shutil.copy(done, swarm.new("cleaner") / name)
    swarm.send("coder", "cleaner", "next")
    assert work_off(swarm, "cleaner") == ["next"]
    assert swarm.names("cleaner", "inbox", "new") == []


def test_an_unknown_recipient_is_known_before_anybody_gets_a_copy(swarm):
    path = swarm.queue("coder", "cleaner,QA,nobody")
    (delivery,) = deliveries(swarm)
    assert "nobody" in delivery.failed
    assert swarm.names("cleaner") == swarm.names("QA") == []
    assert swarm.names("coder") == [f"failed/{path.name}"]
    reason = swarm.folder("coder", "failed", f"{path.name}.error").read_text()
    assert "unknown recipient 'nobody'" in reason
    assert list(swarm.folder("coder", "outbox").glob("*.*")) == []
    (entry,) = swarm.box("coder").entries()
    assert (entry.standing, entry.reason) == ("failed", reason.strip())


def test_a_role_may_be_missing_while_the_roles_are_written(swarm):
    path = swarm.queue("coder", "cleaner")
    modes = swarm.modes
    swarm.modes = {"coder": "task"}
    swarm.write_roles(aged=False)
    (delivery,) = deliveries(swarm)
    assert (delivery.failed, delivery.waiting) == ("", ("cleaner",))
    assert path.exists()
    swarm.modes = modes
    swarm.write_roles()
    work_off(swarm, "cleaner")
    assert [d.delivered for d in deliveries(swarm, clock=ManualClock(wall=4e9))] == [("cleaner",)]


def test_a_copy_with_other_content_is_in_the_way_for_good(swarm):
    path = swarm.queue("coder", "QA,cleaner", "ours")
    other = swarm.new("cleaner") / path.name
    other.write_text(text_of("coder", "QA,cleaner", "another", recipient="cleaner"))
    (delivery,) = deliveries(swarm)
    assert str(other) in delivery.failed
    assert swarm.names("QA") == []
    assert parsed(other).headers["message"] == "another"
    assert swarm.names("coder") == [f"failed/{path.name}"]


def test_nobody_has_to_be_woken_up_for_a_delivery(swarm):
    """No tmux, no socket, no session."""
    assert not (swarm.project / ".swarmforge" / "tmux-socket").exists()
    swarm.send("coder", "cleaner", "hello")
    assert work_off(swarm, "cleaner") == ["hello"]


@contextmanager
def full_disk():
    """Whatever this process writes to a file fails, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_nothing_can_be_written_the_place_is_named_and_nothing_is_accepted(swarm):
    swarm.send("coder", "cleaner")
    swarm.box("cleaner").next()
    swarm.send("coder", "QA")
    for call in (
        swarm.box("QA").next,
        swarm.box("cleaner").done,
        lambda: swarm.send("coder", "QA"),
    ):
        with full_disk(), pytest.raises(OSError) as caught:
            call()
        assert str(swarm.project) in str(caught.value)
    assert swarm.names("QA", "inbox", "in_process") == []
    assert work_off(swarm, "cleaner") == work_off(swarm, "QA") == ["hello"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_fault_that_may_pass_is_tried_again_after_growing_pauses(swarm, monkeypatch, code):
    clock = ManualClock(wall=1_800_000_000)
    path = swarm.queue("coder", "QA,cleaner", "in the end")
    full_inbox(monkeypatch, swarm.worktree("cleaner"), code)
    tried = []
    for second in range(300):
        (delivery,) = deliveries(swarm, clock=clock)
        assert not delivery.failed
        if delivery.attempts > len(tried):
            tried.append(second)
        clock.advance(1)
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    (entry,) = swarm.box("coder").entries()
    assert (entry.standing, entry.attempt) == ("queued", len(tried))
    assert os.strerror(code) in entry.reason
    assert len(swarm.names("QA", "inbox", "new")) == 1
    monkeypatch.undo()
    clock.advance(60)
    (delivery,) = deliveries(swarm, clock=clock)
    assert delivery.delivered == ("cleaner",)
    assert list(path.parent.glob("*.*")) == []
    assert work_off(swarm, "cleaner") == ["in the end"]


def test_one_worktree_that_is_away_keeps_nobody_else_waiting(swarm):
    away = swarm.project / "away"
    swarm.worktree("cleaner").rename(away)
    queued = swarm.box("coder").send(note("QA,cleaner", "hello"))
    assert queued.waiting == ("cleaner",)
    assert work_off(swarm, "QA") == ["hello"]
    away.rename(swarm.worktree("cleaner"))
    assert deliveries(swarm)[0].waiting == ("cleaner",)  # not due yet
    assert deliveries(swarm, clock=ManualClock(wall=4e9))[0].delivered == ("cleaner",)


def test_what_failed_can_be_tried_again(swarm):
    path = swarm.queue("coder", "cleaner,late")
    deliveries(swarm)
    swarm.modes["late"] = "task"
    swarm.worktree("late").mkdir()
    swarm.write_roles()
    queued = swarm.box("coder").retry(path.name)
    assert queued.waiting == ()
    assert work_off(swarm, "late") == work_off(swarm, "cleaner") == ["hello"]
    assert swarm.names("coder") == [f"sent/{path.name}"]
    assert list(swarm.folder("coder", "failed").iterdir()) == []


def test_what_the_original_daemon_gave_up_can_be_tried_again_without_a_second_copy(swarm):
    path = swarm.queue("coder", "cleaner,late")
    plain_swarm.poll_once(swarm.project)
    assert work_off(swarm, "cleaner") == ["hello"]
    (entry,) = swarm.box("coder").entries()
    assert "late" in entry.reason  # though it lies in outbox/
    swarm.modes["late"] = "task"
    swarm.worktree("late").mkdir()
    swarm.write_roles()
    swarm.box("coder").retry(path.name)
    assert (work_off(swarm, "cleaner"), work_off(swarm, "late")) == ([], ["hello"])
    assert list(path.parent.glob("*.error")) == []


def test_a_half_written_copy_is_not_accepted_and_is_repaired_when_nobody_writes_it(swarm):
    path = swarm.queue("coder", "cleaner", "whole")
    whole = messages.render(messages.deliver(parsed(path), recipient="cleaner", at=0))
    for size in (0, 3, 40, len(whole) - len("whole\n") - 1, len(whole) - 2):
        copy = swarm.new("cleaner") / path.name
        copy.write_bytes(whole[:size])
        assert swarm.box("cleaner").next() is None
        assert copy.read_bytes() == whole[:size]
        age(copy, 60)
        clock = ManualClock(wall=4e9)
        (delivery,) = deliveries(swarm, clock=clock)
        assert delivery.delivered == ("cleaner",)
        assert parsed(copy).body == parsed(path.parent.parent / "sent" / path.name).body
        (path.parent.parent / "sent" / path.name).rename(path)
        copy.unlink()


def test_roles_that_share_a_worktree_have_a_copy_each_and_take_no_other(tmp_path):
    modes = {"coder": "task", "lead": "task", "helper": "batch", "third": "task"}
    swarm = Swarm(tmp_path / "project", modes, shared=("lead", "helper", "third"))
    swarm.send("coder", "lead,helper,third", "for all")
    swarm.send("coder", "helper", "for one", "10")
    assert len(swarm.names("lead", "inbox", "new")) == 4
    lead = swarm.box("lead").next()
    assert [item.message.recipient for item in lead.items] == ["lead"]
    # What another role has in process is nothing of ours.
    assert work_off(swarm, "helper") == ["for one", "for all"]
    assert work_off(swarm, "third") == ["for all"]
    assert swarm.box("lead").next().items == lead.items
    swarm.box("lead").done()
    assert swarm.box("lead").next() is None


def test_the_original_daemon_gives_one_copy_to_a_shared_inbox_and_we_the_others(tmp_path):
    modes = {"coder": "task", "lead": "task", "helper": "task"}
    swarm = Swarm(tmp_path / "project", modes, shared=("lead", "helper"))
    path = swarm.queue("coder", "lead,helper", "for both")
    data = path.read_bytes()
    plain_swarm.poll_once(swarm.project)
    path.write_bytes(data)
    (delivery,) = deliveries(swarm)
    assert delivery.delivered == ("helper",)
    assert work_off(swarm, "lead") == work_off(swarm, "helper") == ["for both"]


@pytest.mark.usefixtures("lockless")
def test_two_that_name_a_copy_differently_in_a_shared_inbox_leave_one(tmp_path, monkeypatch):
    """One took the name of the message for the second, since the first had none yet."""
    modes = {"coder": "task", "lead": "task", "helper": "task"}
    swarm = Swarm(tmp_path / "project", modes, shared=("lead", "helper"))
    swarm.queue("coder", "lead,helper", "once")
    create = files.create

    def refuse(*_):
        monkeypatch.setattr(files, "create", late)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def late(temp, path):
        # Others deliver all of it meanwhile, and the first accepts its copy.
        monkeypatch.setattr(files, "create", create)
        assert [d.delivered for d in deliveries(swarm)] == [("lead", "helper")]
        assert swarm.box("lead").next() is not None
        return create(temp, path)

    monkeypatch.setattr(files, "create", refuse)
    deliveries(swarm)
    (name,) = swarm.names("lead", "inbox", "new")
    assert parsed(swarm.new("lead") / name).recipient == "helper"


def agent_accepts(swarm):
    """What an original agent gets now, and completes as far as it can."""
    path = plain_swarm.ready_task(swarm.worktree("cleaner"))
    if path is None:
        return []
    with suppress(FileExistsError):
        plain_swarm.done_task(swarm.worktree("cleaner"))
    return [path.name]


def test_nobody_delivers_between_our_look_and_our_copy(swarm, monkeypatch):
    """The original agent looks for no other copy before it accepts one."""
    monkeypatch.setattr(copies, "WAIT_SECONDS", 0.02)
    swarm.queue("coder", "cleaner")
    create = files.create
    accepted = []

    def slow(temp, path):
        monkeypatch.setattr(files, "create", create)
        deliveries(swarm)
        accepted.extend(agent_accepts(swarm))
        made = create(temp, path)
        accepted.extend(agent_accepts(swarm))
        return made

    monkeypatch.setattr(files, "create", slow)
    deliveries(swarm)
    assert len(accepted) == 1


def test_who_waited_to_deliver_looks_again(swarm, monkeypatch):
    swarm.queue("coder", "cleaner")
    alone = guard.alone
    create = files.create
    accepted = []

    def waiting(*given, **options):
        monkeypatch.setattr(guard, "alone", alone)
        deliveries(swarm)
        accepted.extend(agent_accepts(swarm))
        return alone(*given, **options)

    def slow(temp, path):
        made = create(temp, path)
        accepted.extend(agent_accepts(swarm))
        return made

    monkeypatch.setattr(guard, "alone", waiting)
    monkeypatch.setattr(files, "create", slow)
    deliveries(swarm)
    assert len(accepted) == 1


def test_of_two_copies_for_one_role_that_both_wait_one_stays(tmp_path):
    modes = {"coder": "task", "lead": "task", "helper": "task"}
    swarm = Swarm(tmp_path / "project", modes, shared=("lead", "helper"))
    path = swarm.queue("coder", "lead,helper", "once")
    message = parsed(path)
    for name in (path.name, copies.own_name(message, "helper")):
        copy = messages.deliver(message, recipient="helper", at=0)
        (swarm.new("lead") / name).write_bytes(messages.render(copy))
    deliveries(swarm)
    assert work_off(swarm, "helper") == ["once"]
    assert work_off(swarm, "lead") == ["once"]


def test_an_original_script_that_died_while_counting_stops_nobody(swarm):
    swarm.send("coder", "cleaner")
    lock = swarm.folder("coder", "sequence.lock")
    lock.mkdir()
    age(lock, 60)
    swarm.send("coder", "cleaner")
    assert not lock.exists()
    lock.mkdir()
    age(lock, 60)
    deliveries(swarm)  # whoever delivers frees it for the scripts, too
    assert not lock.exists()


def test_a_lock_that_is_not_old_is_waited_for_and_never_broken(swarm):
    swarm.send("coder", "cleaner")
    lock = swarm.folder("coder", "sequence.lock")
    lock.mkdir()
    with pytest.raises(LeaseUnavailableError, match=r"sequence\.lock"):
        swarm.send("coder", "cleaner", clock=ManualClock())
    assert lock.exists()
    clock = ManualClock()
    clock.sleep = lambda _: lock.exists() and lock.rmdir()
    assert swarm.send("coder", "cleaner", clock=clock).waiting == ()


def test_a_lock_that_was_made_anew_between_look_and_move_is_given_back(swarm, monkeypatch):
    swarm.send("coder", "cleaner")
    lock = swarm.folder("coder", "sequence.lock")
    lock.mkdir()
    age(lock, 60)
    rename = os.rename

    def late(source, target):
        if source == str(lock):
            monkeypatch.setattr(os, "rename", rename)
            lock.rmdir()
            lock.mkdir()
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    folder = copies.Folder(str(swarm.worktree("coder")))
    assert not sequence.free_stale(folder)
    assert lock.exists()


def test_a_lock_that_is_taken_away_while_we_count_makes_us_count_again(swarm, monkeypatch):
    """Stopped for long enough, a process finds its lock gone, and another one's number."""
    swarm.send("coder", "cleaner")
    lock = swarm.folder("coder", "sequence.lock")
    counter = swarm.folder("coder", "sequence")
    following = sequence.following

    def slow(*given):
        monkeypatch.setattr(sequence, "following", following)
        lock.rmdir()
        stamp = following(*given)
        plain_swarm.send_note(swarm.worktree("coder"), "coder", "QA", "50", "between")
        return stamp

    monkeypatch.setattr(sequence, "following", slow)
    assert swarm.send("coder", "cleaner").name.stamp.sequence == 3
    assert counter.read_text() == "000003\n"
    assert not lock.exists()


def test_a_number_drawn_twice_makes_no_message_vanish(swarm, monkeypatch):
    """Two that both believe to hold the lock: the second was stopped, and had lost it."""
    shutil.rmtree(swarm.worktree("cleaner"))
    first = swarm.send("coder", "cleaner", "first").name
    draw = sequence.draw
    draws = iter((first.stamp,))
    monkeypatch.setattr(sequence, "draw", lambda *given: next(draws, None) or draw(*given))
    second = swarm.send("coder", "cleaner", "second").name
    assert second.id != first.id
    assert swarm.names("coder", "outbox") == [str(first), str(second)]
