"""What is told of hand-offs."""

import pytest

from tapstore.handoffs import report
from tapstore.handoffs.draft import DraftError, Fault
from tapstore.handoffs.mailbox import (
    Accepted,
    Completed,
    Delivery,
    Entry,
    Item,
    MailboxStateError,
    Queued,
    Receipt,
)
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import parse

ID = "20260615T140531Z_000042_from_coder"
NAME = f"50_{ID}_to_cleaner.handoff"


def item(*, body="Re-read.\n\nmerge it\n", attempt=1, place=f"in_process/{NAME}", **headers):
    base = {"id": ID, "from": "coder", "to": "cleaner", "priority": "50", "type": "note"}
    named = {name.replace("__", "-"): value for name, value in headers.items()}
    return Item(place, Message({**base, **named}, body), attempt)


def test_nothing_is_one_word():
    assert report.accepted_lines(None) == ["NO_TASK"]


def test_a_task_is_told_as_the_original_scripts_do():
    accepted = Accepted((item(type="git_handoff", task="cave", role="coder", commit="a" * 10),))
    assert report.accepted_lines(accepted) == [
        f"TASK: in_process/{NAME}",
        "FROM: coder",
        "TYPE: git_handoff",
        "PRIORITY: 50",
        "TASK_NAME: cave",
        "PAYLOAD:",
        "Re-read.",
        "",
        "merge it",
    ]


def test_a_message_without_a_task_has_no_line_for_it():
    assert not any("TASK_NAME" in line for line in report.accepted_lines(Accepted((item(),))))


def test_a_batch_is_told_item_by_item():
    accepted = Accepted((item(), item(body="second\n")), batch="in_process/batch_1")
    lines = report.accepted_lines(accepted)
    assert lines[:5] == [
        "BATCH: in_process/batch_1",
        "COUNT: 2",
        "PRIORITY: 50",
        "",
        "BATCH_ITEM: 1",
    ]
    at = lines.index("BATCH_ITEM: 2")
    assert lines[at - 2 : at] == ["merge it", ""]
    assert lines[at + 1].startswith("TASK: ")
    assert lines[-2:] == ["PAYLOAD:", "second"]


def test_a_batch_of_one_is_a_batch():
    assert report.accepted_lines(Accepted((item(),), batch="b"))[:2] == ["BATCH: b", "COUNT: 1"]


def test_headers_that_the_originals_do_not_know_follow_in_capitals():
    told = report.accepted_lines(
        Accepted((item(attempt=2, artifacts="a@sha256:0", reply_to="x", my__own="y"),))
    )
    assert told[4:9] == [
        "ATTEMPT: 2",
        "ARTIFACTS: a@sha256:0",
        "MY_OWN: y",
        "REPLY_TO: x",
        "PAYLOAD:",
    ]


def test_what_the_queue_keeps_for_itself_is_not_told_to_agents():
    told = report.accepted_lines(Accepted((item(tapstore__agent="coder-1"),)))
    assert not any("coder-1" in line for line in told)


@pytest.mark.parametrize(
    ("body", "lines"),
    [("", []), ("\n", []), ("one", ["one"]), ("one\n", ["one"]), ("one\n\n\n", ["one"]),
     ("\n one\n", ["", " one"])],
)  # fmt: skip
def test_a_body_ends_with_its_last_line(body, lines):
    assert report.body_lines(item(body=body).message) == lines


def test_what_was_completed_is_told_place_by_place():
    completed = Completed((item(place="done/1"), item(place="done/2")))
    assert report.completed_lines(completed) == ["COMPLETED: done/1", "COMPLETED: done/2"]


def test_a_completed_batch_is_told_behind_its_messages():
    completed = Completed((item(place="done/b/1"),), batch="done/b")
    assert report.completed_lines(completed) == ["COMPLETED: done/b/1", "COMPLETED_BATCH: done/b"]


def test_what_was_queued_is_told_with_its_place():
    queued = Queued(parse(NAME), f"outbox/{NAME}", item().message, ("cleaner",))
    assert report.queued_lines(queued) == [f"HANDOFF QUEUED: outbox/{NAME}"]
    assert report.queued_value(queued) == {
        "name": NAME,
        "id": ID,
        "place": f"outbox/{NAME}",
        "to": ["cleaner"],
        "waiting": ["cleaner"],
        "reason": None,
        "failed": None,
    }


def test_who_has_not_got_a_message_is_told_with_the_reason_and_what_is_next():
    def line(*waiting, **why):
        return report.undelivered_line(
            Queued(parse(NAME), "outbox", item().message, waiting, **why)
        )

    again = "; whoever uses hand-offs next tries again, or `tapstore handoff deliver`"
    assert line() == ""
    assert line("cleaner") == f"not delivered yet to cleaner{again}"
    assert line("cleaner", reason="full") == f"not delivered yet to cleaner: full{again}"
    failed = line("cleaner", failed="nobody got it")
    assert failed == f"failed: nobody got it, then `tapstore handoff retry {NAME}`"


def test_a_shown_message_is_its_file_and_its_receipts():
    receipts = (
        Receipt("cleaner", "completed", 0.0, agent="c1", attempt=2),
        Receipt("architect", "queued", reason="its worktree is away"),
    )
    assert report.shown_lines(item(message="hello", body="hello\n"), receipts) == [
        f"FILE: in_process/{NAME}",
        f"id: {ID}",
        "from: coder",
        "to: cleaner",
        "priority: 50",
        "type: note",
        "message: hello",
        "",
        "hello",
        "",
        "RECEIPTS:",
        "- cleaner: completed since 1970-01-01T00:00:00Z by c1, attempt 2",
        "- architect: queued: its worktree is away",
    ]


def test_what_has_no_bounds_comes_last_in_a_row():
    """Names of hand-offs are longer than the cells that others are aligned behind."""
    assert report.ENTRY_COLUMNS[-2:] == ("name", "reason")


def test_each_entry_is_one_row():
    entry = Entry(NAME, "dead", "place", "cleaner", 0.0, agent="c1", attempt=3, reason="gone")
    row = dict(zip(report.ENTRY_COLUMNS, report.entry_row(entry), strict=True))
    assert row == {
        "role": "cleaner",
        "standing": "dead",
        "since": "1970-01-01T00:00:00Z",
        "name": NAME,
        "agent": "c1",
        "attempt": "3",
        "reason": "gone",
    }


@pytest.mark.parametrize(
    ("delivery", "line"),
    [
        (Delivery("n", "coder", delivered=("a", "b")), "n: delivered to a, b"),
        (Delivery("n", "coder", waiting=("a",), attempts=1, reason="away"), "n: waits for a: away"),
        (
            Delivery("n", "coder", delivered=("b",), waiting=("a",), attempts=3, reason="away"),
            "n: delivered to b; waits for a (tried 3 times): away",
        ),
        (Delivery("n", "coder", failed="no such role"), "n: failed: no such role"),
        (Delivery("n", "coder"), "n: delivered before"),
        (Delivery("n", "coder", reason="it is still written"), "n: not yet: it is still written"),
        (
            Delivery("n", "coder", attempts=2, reason="disk full"),
            "n: not yet (tried 2 times): disk full",
        ),
    ],
)
def test_what_a_delivery_came_to_is_one_line(delivery, line):
    assert report.delivery_line(delivery) == line


def test_values_have_all_keys_whatever_there_is():
    nothing = report.accepted_value(None)
    something = report.accepted_value(Accepted((item(),), resumed=True))
    assert nothing.keys() == something.keys()
    assert (nothing["work"], something["work"]) == (None, "task")
    assert report.accepted_value(Accepted((item(),), batch="b"))["work"] == "batch"


def test_the_value_of_a_message_keeps_the_body_apart():
    value = report.item_value(item(body="TASK: not a task\n"))
    assert value["body"] == "TASK: not a task\n"
    assert value["headers"]["id"] == value["id"] == ID
    assert (value["priority"], value["to"], value["task"]) == (50, ["cleaner"], None)


def test_a_refusal_says_its_keyword_and_places():
    error = MailboxStateError("AMBIGUOUS_TASK_STATE", "two", places=["a", "b"])
    assert report.refusal_value(error) == {
        "keyword": "AMBIGUOUS_TASK_STATE",
        "reason": "two",
        "places": ["a", "b"],
    }


def test_a_refused_draft_says_all_faults_and_the_form():
    error = DraftError("draft", (Fault(3, "bad"), Fault(None, "missing")), "Expected …")
    assert report.refusal_value(error) == {
        "keyword": "HANDOFF INVALID",
        "faults": [{"line": 3, "reason": "bad"}, {"line": None, "reason": "missing"}],
        "expected": "Expected …",
    }
