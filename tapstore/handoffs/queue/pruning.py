"""Removes what ended long ago.

The records of the ends are what keeps a message from being completed twice, so they have to outlive
every pause of a worker or a deliverer that is to be survived: what is kept for less than
`MIN_KEEP_SECONDS` is refused.  What is not delivered to all its recipients, and may still be, keeps
its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tapstore.abc import Store
from tapstore.errors import InvalidKeyError, NotAllowedError
from tapstore.handoffs.queue import refusal
from tapstore.handoffs.queue.places import PREFIX, Places, file_name, split_attempt

MIN_KEEP_SECONDS = 3600.0


def prune(
    store: Store, places: Places, older_than_seconds: float, *, dry_run: bool = False
) -> Iterator[str]:
    """Remove what this role completed, gave up, sent or failed to send longer ago; yields keys.

    Raises `NotAllowedError` if that is less than `MIN_KEEP_SECONDS`.
    """
    if not older_than_seconds >= MIN_KEEP_SECONDS:
        raise NotAllowedError(
            f"what ended is kept for at least {MIN_KEEP_SECONDS:g} s, not "
            f"{older_than_seconds:g}: without it a worker that was stopped could complete a "
            "message again"
        )
    limit = store.now() - older_than_seconds
    open_names = set(_undelivered(store))
    # Those may be brought back, and some of their recipients have their copies.
    spared = open_names | set(_failed(store))
    # The list of the dead goes with the records that it points to.
    for prefix in (places.completed_prefix, places.sent_prefix, places.dead, places.failed):
        last = ""
        of_ends = prefix in (places.completed_prefix, places.dead)
        for info in store.list(prefix):
            name, _ = split_attempt(file_name(info.key).removesuffix(refusal.ERROR))
            if info.modified < limit and name not in (spared if of_ends else open_names):
                if not dry_run:
                    store.delete(info.key)
                    last = _drop(store, last, info.key, prefix)
                yield info.key
        if last:
            store.drop_empty_folders(last, below=prefix)


def _drop(store: Store, last: str, key: str, prefix: str) -> str:
    if last and last.rpartition("/")[0] != key.rpartition("/")[0]:
        store.drop_empty_folders(last, below=prefix)
    return key


def _undelivered(store: Store) -> Iterator[str]:
    for places in _mailboxes(store):
        for info in store.list(places.outbox):
            yield split_attempt(file_name(info.key))[0]


def _failed(store: Store) -> Iterator[str]:
    for places in _mailboxes(store):
        for info in store.list(places.failed):
            yield split_attempt(file_name(info.key))[0]


def _mailboxes(store: Store) -> Iterator[Places]:
    for folder in store.children(PREFIX):
        with suppress(InvalidKeyError):
            yield Places(folder.removesuffix("/"))
