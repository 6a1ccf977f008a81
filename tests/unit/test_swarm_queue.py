"""One message's way through a swarm: sent, delivered, accepted, completed."""

from __future__ import annotations

import os
import subprocess

import pytest

from tapstore.errors import InvalidKeyError, NotFoundError
from tapstore.handoffs import names
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.swarm import finding, opening
from tapstore.testing.clock import ManualClock
from tests.plain_agents import plain_swarm
from tests.unit.swarm_world import Swarm, age, note, parsed, text_of

THREE = {"coder": "task", "cleaner": "task", "QA": "batch"}


@pytest.fixture
def swarm(tmp_path):
    return Swarm(tmp_path / "project", THREE)


def refused(call, keyword, exit_code):
    with pytest.raises(MailboxStateError) as caught:
        call()
    assert (caught.value.keyword, caught.value.exit_code) == (keyword, exit_code)
    return caught.value


def test_a_message_goes_all_the_way_and_keeps_its_times(swarm):
    queued = swarm.send("coder", "cleaner", "look at this")
    assert queued.waiting == ()
    assert swarm.names("coder") == [f"sent/{queued.name}"]
    accepted = swarm.box("cleaner").next()
    assert not accepted.resumed
    item = accepted.items[0]
    assert item.place == str(swarm.folder("cleaner", "inbox", "in_process", str(queued.name)))
    assert parsed(item.place) == item.message
    completed = swarm.box("cleaner").done()
    message = parsed(completed.items[0].place)
    assert message == completed.items[0].message
    times = [message.time(time) for time in ("created_at", "enqueued_at", "dequeued_at")]
    assert times == sorted(times)
    assert message.time("completed_at") >= times[-1]
    assert message.recipient == "cleaner"
    assert swarm.box("cleaner").next() is None
    assert swarm.names("cleaner") == [f"inbox/completed/{queued.name}"]


def test_priority_comes_before_time(swarm):
    for priority in ("90", "10", "50"):
        swarm.send("coder", "cleaner", f"p{priority}", priority)
    box = swarm.box("cleaner")
    order = []
    while (accepted := box.next()) is not None:
        order.append(accepted.items[0].message.priority)
        box.done()
    assert order == [10, 50, 90]


def test_what_is_in_process_is_given_again_unchanged(swarm):
    swarm.send("coder", "cleaner")
    swarm.send("coder", "cleaner", "another", "10")
    first = swarm.box("cleaner").next()
    swarm.send("coder", "cleaner", "urgent", "00")
    again = swarm.box("cleaner").next()
    assert again.resumed
    assert again.items == first.items


def test_a_batch_is_all_that_waits_with_the_priority_in_the_headers(swarm):
    for text, priority in (("a", "20"), ("b", "20"), ("c", "30")):
        swarm.send("coder", "QA", text, priority)
    # The name says 10, the headers say 20.
    path = swarm.new("QA") / "10_20261201T000000Z_000001_from_cleaner_to_QA.handoff"
    path.write_text(text_of("cleaner", "QA", "d", "20", recipient="QA"))
    box = swarm.box("QA")
    accepted = box.next()
    assert [item.message.headers["message"] for item in accepted.items] == ["d", "a", "b"]
    assert len({item.message.headers["dequeued_at"] for item in accepted.items}) == 1
    swarm.send("coder", "QA", "late", "20")
    assert box.next().items == accepted.items
    completed = box.done()
    assert len({item.message.headers["completed_at"] for item in completed.items}) == 1
    assert all(parsed(item.place) == item.message for item in completed.items)
    assert os.path.dirname(completed.items[0].place) == completed.batch
    assert [item.message.headers["message"] for item in box.next().items] == ["late"]


def test_wrong_shapes_are_refused_with_the_original_keywords(swarm):
    swarm.send("coder", "cleaner,QA")
    cleaner, qa = swarm.box("cleaner"), swarm.box("QA")
    refused(cleaner.done, "NO_CURRENT_TASK", 1)
    refused(qa.done, "NO_CURRENT_BATCH", 1)
    cleaner.next()
    qa.next()
    swarm.modes |= {"cleaner": "batch", "QA": "task"}
    swarm.write_roles()
    refused(cleaner.next, "TASK_IN_PROCESS_IS_SINGLE", 2)
    refused(cleaner.done, "CURRENT_WORK_IS_SINGLE_TASK", 2)
    refused(qa.next, "TASK_IN_PROCESS_IS_BATCH", 2)
    error = refused(qa.done, "CURRENT_WORK_IS_BATCH", 2)
    assert error.places[0].startswith(str(swarm.folder("QA", "inbox", "in_process", "batch_")))
    swarm.modes["QA"] = "sometimes"
    swarm.write_roles()
    refused(qa.next, "INVALID_RECEIVE_MODE", 2)


def test_who_names_a_mode_receives_so_whatever_the_roles_say(swarm):
    """There are original scripts for each of the two."""
    swarm.modes["cleaner"] = "sometimes"
    swarm.write_roles()
    swarm.send("coder", "cleaner")
    box = opening.open(swarm.project, role="cleaner", mode="batch")
    assert box.next().batch
    task = opening.open(swarm.project, role="cleaner", mode="task")
    refused(task.next, "TASK_IN_PROCESS_IS_BATCH", 2)
    assert box.done().batch


def test_states_that_are_not_clear_are_refused(swarm):
    one = swarm.send("coder", "cleaner", "one").name
    box = swarm.box("cleaner")
    box.next()
    in_process = swarm.folder("cleaner", "inbox", "in_process")
    other = in_process / "50_20261201T000000Z_000009_from_coder_to_cleaner.handoff"
    other.write_text(text_of("coder", "cleaner", "two", number=9, recipient="cleaner"))
    error = refused(box.next, "AMBIGUOUS_TASK_STATE", 2)
    assert set(error.places) == {str(in_process / str(one)), str(other)}
    refused(box.done, "AMBIGUOUS_TASK_STATE", 2)
    other.unlink()
    kept = swarm.folder("cleaner", "inbox", "completed", str(one))
    kept.write_text("what was completed")
    refused(box.done, "AMBIGUOUS_TASK_STATE", 2)
    assert parsed(in_process / str(one)).state == "accepted"
    assert kept.read_text() == "what was completed"
    assert (in_process / str(one)).exists()


def test_an_empty_batch_is_waited_for_and_then_removed(swarm):
    """An original script makes the folder first, and may die there: it then stops for ever."""
    swarm.send("coder", "QA")
    batch = swarm.folder("QA", "inbox", "in_process", "batch_20261201T000000Z_000001")
    batch.mkdir()
    box = swarm.box("QA")
    assert refused(box.next, "AMBIGUOUS_TASK_STATE", 2).places == (str(batch),)
    (batch / ".headers.1").touch()
    age(batch, 60)
    assert box.next() is not None
    assert not batch.exists()
    other = batch.with_name("batch_20261201T000000Z_000002")
    (other / "what is that").mkdir(parents=True)
    age(other, 60)
    refused(box.next, "AMBIGUOUS_TASK_STATE", 2)
    assert (other / "what is that").exists()


def test_a_worktree_that_the_roles_do_not_name_sends_too(swarm, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    box = opening.open(swarm.project, role="coder", worktree=own)
    swarm.worktree("cleaner").rename(tmp_path / "away")
    assert box.send(note("cleaner")).waiting == ("cleaner",)
    (tmp_path / "away").rename(swarm.worktree("cleaner"))
    later = opening.open(swarm.project, role="coder", worktree=own, clock=ManualClock(wall=4e9))
    assert [delivery.delivered for delivery in later.deliver()] == [("cleaner",)]


def test_a_draft_is_refused_before_anything_is_written(swarm):
    with pytest.raises(DraftError, match="unknown recipient role 'nobody'"):
        swarm.send("coder", "nobody")
    assert not swarm.folder("coder").exists()


def test_a_commit_is_that_of_the_worktree(swarm):
    tree = swarm.worktree("coder")
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=tree, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tree, check=True)
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True)
    digits = said.stdout.decode()[:10]
    draft = f"type: git_handoff\nto: cleaner\npriority: 50\ntask: t\ncommit: {digits.upper()}\n"
    queued = swarm.box("coder").send(draft.encode())
    assert queued.message.headers["commit"] == digits
    wrong = draft.replace(digits.upper(), "0123456789")
    with pytest.raises(DraftError, match="exactly one Git object"):
        swarm.box("coder").send(wrong.encode())


def test_roles_are_read_live(swarm):
    box = swarm.box("coder")
    swarm.modes["late"] = "task"
    swarm.worktree("late").mkdir()
    swarm.write_roles()
    box.send(note("late"))
    assert swarm.box("late").next() is not None
    del swarm.modes["coder"]
    swarm.write_roles()
    with pytest.raises(InvalidKeyError, match="Unknown sender role"):
        box.send(note("late"))


def test_a_project_is_found_from_a_worktree_of_git(tmp_path):
    main = tmp_path / "main"
    main.mkdir()
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=main, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=main, check=True)
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=main, check=True)
    (tree / "sub").mkdir()
    assert finding.find_project(tree / "sub") is None
    (main / ".swarmforge").mkdir()
    (main / ".swarmforge" / "roles.tsv").write_text(f"coder\tcoder\t{tree}\n")
    (main / "sub").mkdir()
    for start in (main, main / "sub", tree, tree / "sub"):
        assert finding.find_project(start) == main
    assert opening.open(main, role="coder").role == "coder"
    # A worktree that has a copy of its own is found first, as the original scripts do.
    (tree / ".swarmforge").mkdir()
    (tree / ".swarmforge" / "roles.tsv").write_text(f"coder\tcoder\t{tree}\n")
    assert finding.find_project(tree / "sub") == tree
    assert finding.find_project(tmp_path) is None


def test_receipts_follow_each_copy(swarm):
    queued = swarm.send("coder", "cleaner,QA,coder")
    box = swarm.box("coder")

    def standings():
        return {receipt.recipient: receipt.standing for receipt in box.receipts(queued.name.id)}

    assert set(standings().values()) == {"delivered"}
    swarm.box("cleaner").next()
    swarm.box("QA").next()
    swarm.box("QA").done()
    assert standings() == {"cleaner": "accepted", "QA": "completed", "coder": "delivered"}
    assert all(receipt.at for receipt in box.receipts(str(queued.name)))
    with pytest.raises(NotFoundError):
        swarm.box("QA").receipts(queued.name.id)
    with pytest.raises(InvalidKeyError):
        box.receipts("../../etc/passwd")


def test_a_receipt_says_that_the_worktree_of_a_recipient_is_away(swarm):
    queued = swarm.send("coder", "cleaner,QA")
    for role in ("cleaner", "QA"):
        swarm.worktree(role).rename(swarm.project / f"moved-{role}")
    for receipt in swarm.box("coder").receipts(queued.name.id):
        assert receipt.standing == "delivered"
        assert f"{swarm.worktree(receipt.recipient)} is not there" in receipt.reason


def test_find_takes_names_and_ids_wherever_the_message_lies(swarm):
    queued = swarm.send("coder", "QA")
    for wanted in (str(queued.name), queued.name.id):
        assert swarm.box("coder").find(wanted).place == str(
            swarm.folder("coder", "sent", str(queued.name))
        )
    box = swarm.box("QA")
    for step in (lambda: None, box.next, box.done):
        step()
        assert box.find(queued.name.id).message.recipient == "QA"
    assert "completed/batch_" in box.find(queued.name.id).place
    with pytest.raises(NotFoundError):
        swarm.box("cleaner").find(queued.name.id)


def test_entries_list_what_is_on_its_way(swarm):
    swarm.send("coder", "QA", "waits")
    swarm.send("coder", "cleaner", "taken")
    swarm.box("cleaner").next()
    box = swarm.box("cleaner")
    assert [entry.standing for entry in box.entries()] == ["accepted"]
    box.done()
    assert list(box.entries()) == []
    assert [(entry.standing, entry.role) for entry in swarm.box("QA").entries()] == [
        ("delivered", "QA")
    ]


def test_prune_removes_only_what_is_old_and_the_role_s_own(swarm):
    sent = swarm.send("coder", "cleaner,QA")
    for role in ("cleaner", "QA"):
        swarm.box(role).next()
        swarm.box(role).done()
    assert list(swarm.box("cleaner").prune(3600)) == []
    for path in swarm.project.rglob("*.handoff"):
        age(path, 7200)
    listed = list(swarm.box("cleaner").prune(3600, dry_run=True))
    assert listed == [str(swarm.folder("cleaner", "inbox", "completed", str(sent.name)))]
    assert swarm.names("cleaner") != []
    assert list(swarm.box("cleaner").prune(3600)) == listed
    assert swarm.names("cleaner") == []
    assert [os.path.basename(path)[:6] for path in swarm.box("QA").prune(3600)] == ["batch_"]
    assert swarm.names("QA") == []
    assert len(list(swarm.box("coder").prune(3600))) == 1
    assert swarm.names("coder") == []


def test_a_completed_copy_is_kept_while_its_message_may_be_delivered_again(swarm):
    path = swarm.queue("coder", "cleaner,QA")
    swarm.worktree("QA").rename(swarm.project / "away")
    box = swarm.box("cleaner")
    box.next()
    completed = box.done().items[0].place
    age(swarm.folder("cleaner", "inbox", "completed", path.name), 7200)
    assert list(box.prune(3600)) == []
    (swarm.project / "away").rename(swarm.worktree("QA"))
    (path.parent / f"{path.name}.retry").unlink()
    list(box.deliver())
    assert swarm.box("QA").next() is not None
    assert box.next() is None
    assert list(box.prune(3600)) == [completed]


def test_waiting_names_whom_to_wake_up(swarm):
    assert opening.waiting(swarm.project) == ()
    swarm.send("coder", "cleaner,QA")
    assert [role.session for role in opening.waiting(swarm.project)] == [
        "swarm-cleaner",
        "swarm-QA",
    ]
    swarm.box("cleaner").next()
    assert [role.name for role in opening.waiting(swarm.project)] == ["QA"]
    swarm.box("QA").next()
    assert opening.waiting(swarm.project) == ()
    assert opening.tmux_socket(swarm.project) is None
    (swarm.project / ".swarmforge" / "tmux-socket").write_text("/tmp/some.sock\n")
    assert opening.tmux_socket(swarm.project) == "/tmp/some.sock"


def test_ids_never_return_whatever_happens_to_clock_and_counter(swarm):
    clock = ManualClock(wall=1_800_000_000)
    seen = [swarm.send("coder", "cleaner", clock=clock).name]
    counter = swarm.folder("coder", "sequence")

    def again():
        seen.append(swarm.send("coder", "cleaner", clock=clock).name)

    again()
    counter.write_text("")  # a script died while it wrote in place
    again()
    counter.write_text("999998\n")
    again()
    again()
    again()
    counter.write_text("1000003\n")  # a script counted on
    again()
    again()
    seen.append(swarm.send("coder", "cleaner", clock=clock.other_host(ahead=-3600)).name)
    counter.unlink()
    again()
    ids = [name.id for name in seen]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
    assert all(names.parse(str(name)) == name for name in seen)
    assert int(counter.read_text()) == seen[-1].stamp.sequence


def test_numbers_go_on_from_those_of_the_original_scripts_and_back(swarm):
    first = swarm.send("coder", "cleaner").name.stamp.sequence
    plain = plain_swarm.send_note(swarm.worktree("coder"), "coder", "QA", "50", "x")
    assert names.parse(plain.name).stamp.sequence == first + 1
    assert swarm.send("coder", "cleaner").name.stamp.sequence == first + 2
