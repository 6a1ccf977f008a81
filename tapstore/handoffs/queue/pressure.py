"""Keeps inboxes from growing without end: who would send more is told to wait.

The bound is soft: senders that look at the same moment may all go over it by what they send.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from tapstore.abc import Store
from tapstore.handoffs.mailbox import MailboxFullError
from tapstore.handoffs.queue.places import Places


def check(store: Store, recipients: Iterable[str], max_waiting: int) -> None:
    """Raise `MailboxFullError` if as much as `max_waiting` waits for one of them; 0: no bound."""
    if not max_waiting:
        return
    for role in recipients:
        waiting = islice(store.list(Places(role).new), max_waiting)
        if sum(1 for _ in waiting) == max_waiting:
            raise MailboxFullError(
                f"{max_waiting:,} messages wait for {role!r}, as many as this session lets wait; "
                "nothing was sent to anybody, try again later"
            )
