"""What is told of hand-offs: lines for agents and people, and plain values for programs.  Pure.

What was accepted and what was completed is told in the words of the original scripts, so that an
agent that looks for them at the beginning of a line finds them.

A body is printed as it is: a line of it may look like one of these words.  The values keep it
apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tapstore.clock import format_time
from tapstore.handoffs.draft import DraftError
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
from tapstore.handoffs.message import TIMES, Message, render

NO_TASK = "NO_TASK"

_SHOWN = (
    "id", "from", "to", "recipient", "priority", "type", "role", "task", "commit", "message",
    *TIMES,
)  # fmt: skip
"""Headers that have a line of their own, or none; all others follow as they are."""


# For agents


def accepted_lines(accepted: Accepted | None) -> list[str]:
    """What a role is to work on now; `NO_TASK` if there is nothing."""
    if accepted is None:
        return [NO_TASK]
    if not accepted.batch:
        return [line for item in accepted.items for line in _item_lines(item)]
    priority = accepted.items[0].message.headers["priority"] if accepted.items else "?"
    lines = [
        f"BATCH: {accepted.batch}",
        f"COUNT: {len(accepted.items)}",
        f"PRIORITY: {priority}",
    ]
    for number, item in enumerate(accepted.items, 1):
        lines += ["", f"BATCH_ITEM: {number}", *_item_lines(item)]
    return lines


def _item_lines(item: Item) -> Iterator[str]:
    headers = item.message.headers
    yield f"TASK: {item.place}"
    yield f"FROM: {headers['from']}"
    yield f"TYPE: {headers['type']}"
    yield f"PRIORITY: {headers['priority']}"
    if "task" in headers:
        yield f"TASK_NAME: {headers['task']}"
    if item.attempt > 1:
        yield f"ATTEMPT: {item.attempt}"
    for name in sorted(headers):
        if name not in _SHOWN and not name.startswith("tapstore"):
            yield f"{name.upper().replace('-', '_')}: {headers[name]}"
    yield "PAYLOAD:"
    yield from body_lines(item.message)


def body_lines(message: Message) -> list[str]:
    """Empty lines at its end are left out, as the original scripts do."""
    return message.body.rstrip("\n").split("\n") if message.body.strip("\n") else []


def completed_lines(completed: Completed) -> list[str]:
    lines = [f"COMPLETED: {item.place}" for item in completed.items]
    return [*lines, f"COMPLETED_BATCH: {completed.batch}"] if completed.batch else lines


def queued_lines(queued: Queued) -> list[str]:
    return [f"HANDOFF QUEUED: {queued.place}"]


def undelivered_line(queued: Queued) -> str:
    """Who has not got it, why, and who sees to it; empty if all have."""
    if queued.failed:
        return f"failed: {queued.failed}, then `tapstore handoff retry {queued.name}`"
    if not queued.waiting:
        return ""
    why = f": {queued.reason}" if queued.reason else ""
    return (
        f"not delivered yet to {', '.join(queued.waiting)}{why}; whoever uses hand-offs next tries "
        "again, or `tapstore handoff deliver`"
    )


# For people


ENTRY_COLUMNS = ("role", "standing", "since", "agent", "attempt", "name", "reason")


def entry_row(entry: Entry) -> tuple[str, ...]:
    """One line of a list, column by column."""
    return (
        entry.role,
        entry.standing,
        format_time(entry.since),
        entry.agent or "-",
        str(entry.attempt or "-"),
        entry.name,
        entry.reason,
    )


def shown_lines(item: Item, receipts: Sequence[Receipt]) -> list[str]:
    """One message as its file is, and what became of it."""
    block = render(item.message).decode().partition("\n\n")[0]
    lines = [f"FILE: {item.place}", *block.split("\n"), "", *body_lines(item.message)]
    if receipts:
        lines += ["", "RECEIPTS:", *map(_receipt_line, receipts)]
    return lines


def _receipt_line(receipt: Receipt) -> str:
    at = "" if receipt.at is None else f" since {format_time(receipt.at)}"
    by = f" by {receipt.agent}" if receipt.agent else ""
    attempt = f", attempt {receipt.attempt}" if receipt.attempt else ""
    reason = f": {receipt.reason}" if receipt.reason else ""
    return f"- {receipt.recipient}: {receipt.standing}{at}{by}{attempt}{reason}"


def delivery_line(delivery: Delivery) -> str:
    """What delivering one message came to."""
    said = []
    if delivery.delivered:
        said.append(f"delivered to {', '.join(delivery.delivered)}")
    tried = f" (tried {delivery.attempts} times)" if delivery.attempts > 1 else ""
    if delivery.waiting:
        why = f": {delivery.reason}" if delivery.reason else ""
        said.append(f"waits for {', '.join(delivery.waiting)}{tried}{why}")
    elif delivery.reason:
        # It is still being written; or all have it, and it could not be put away.
        said.append(f"not yet{tried}: {delivery.reason}")
    if delivery.failed:
        said.append(f"failed: {delivery.failed}")
    return f"{delivery.name}: {'; '.join(said) or 'delivered before'}"


# For programs


def accepted_value(accepted: Accepted | None) -> dict[str, Any]:
    """All keys are always there; `work` is None if there is nothing."""
    if accepted is None:
        return {"work": None, "batch": None, "resumed": False, "items": []}
    return {
        "work": "batch" if accepted.batch else "task",
        "batch": accepted.batch or None,
        "resumed": accepted.resumed,
        "items": [item_value(item) for item in accepted.items],
    }


def completed_value(completed: Completed) -> dict[str, Any]:
    return {
        "batch": completed.batch or None,
        "items": [
            {"place": item.place, "id": item.message.id, "attempt": item.attempt}
            for item in completed.items
        ],
    }


def item_value(item: Item) -> dict[str, Any]:
    """One message with all its headers."""
    message = item.message
    return {
        "place": item.place,
        "attempt": item.attempt,
        "id": message.id,
        "from": message.sender,
        "to": list(message.recipients),
        "type": message.type,
        "priority": message.priority,
        "task": message.headers.get("task"),
        "state": message.state,
        "headers": dict(message.headers),
        "body": message.body,
    }


def queued_value(queued: Queued) -> dict[str, Any]:
    return {
        "name": str(queued.name),
        "id": queued.message.id,
        "place": queued.place,
        "to": list(queued.message.recipients),
        "waiting": list(queued.waiting),
        "reason": queued.reason or None,
        "failed": queued.failed or None,
    }


def entry_value(entry: Entry) -> dict[str, Any]:
    return {
        "role": entry.role,
        "standing": entry.standing,
        "name": entry.name,
        "place": entry.place,
        "since": format_time(entry.since),
        "agent": entry.agent or None,
        "attempt": entry.attempt or None,
        "reason": entry.reason or None,
    }


def receipt_value(receipt: Receipt) -> dict[str, Any]:
    return {
        "recipient": receipt.recipient,
        "standing": receipt.standing,
        "at": None if receipt.at is None else format_time(receipt.at),
        "agent": receipt.agent or None,
        "attempt": receipt.attempt or None,
        "reason": receipt.reason or None,
    }


def delivery_value(delivery: Delivery) -> dict[str, Any]:
    return {
        "name": delivery.name,
        "from": delivery.sender,
        "delivered": list(delivery.delivered),
        "waiting": list(delivery.waiting),
        "attempts": delivery.attempts,
        "reason": delivery.reason or None,
        "failed": delivery.failed or None,
    }


def refusal_value(error: MailboxStateError | DraftError) -> Mapping[str, Any]:
    """What an error of hand-offs says besides its message."""
    if isinstance(error, DraftError):
        faults = [{"line": fault.line, "reason": fault.reason} for fault in error.faults]
        return {"keyword": "HANDOFF INVALID", "faults": faults, "expected": error.expected}
    return {"keyword": error.keyword, "reason": error.reason, "places": list(error.places)}
