"""One contender in a race for keys of a store, and what the results of all of them must be.

`judge` is pure.  An attempt whose outcome is not known counts as neither won nor lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

import msgspec

from tapstore.abc import Clock, Store
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.types import CREATE, Update


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the counter that contenders raise."""

    number: int
    write_id: str
    """Two versions with equal bytes would have equal ETags."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one contender believes to have done."""

    name: str
    won: tuple[str, ...] = ()
    """The keys that it created."""

    unknown: tuple[str, ...] = ()
    """Those of which it cannot tell."""

    added: int = 0
    """How often it raised the counter."""

    doubtful: int = 0
    """How often it may have."""


def create(store: Store, keys: Iterable[str], name: str) -> Result:
    """Try to create each key, in order, as fast as can be."""
    won, unknown = [], []
    for key in keys:
        try:
            store.put(key, f"{name}:{key}".encode(), CREATE)
            won.append(key)
        except AlreadyExistsError:
            continue
        except (OutcomeUnknownError, StoreError):
            unknown.append(key)
    return Result(name=name, won=tuple(won), unknown=tuple(unknown))


def add(store: Store, key: str, name: str, times: int, until: float, clock: Clock) -> Result:
    """Raise the counter at `key`, which is there, up to `times` times, until that time."""
    added = doubtful = 0
    while added + doubtful < times and clock.monotonic() < until:
        got = store.get(key)
        count = msgspec.json.decode(got.data, type=Count)
        try:
            store.put(key, counter(count.number + 1), Update(got.info.version))
            added += 1
        except ConflictError:
            continue
        except (OutcomeUnknownError, StoreError):
            doubtful += 1
    return Result(name=name, added=added, doubtful=doubtful)


def counter(number: int) -> bytes:
    return msgspec.json.encode(Count(number=number, write_id=secrets.token_hex(8)))


def contents(store: Store, keys: Iterable[str]) -> dict[str, str]:
    """Whose bytes are at each key; "" where nothing is."""
    found = {}
    for key in keys:
        try:
            found[key] = store.get(key).data.decode(errors="replace").partition(":")[0]
        except NotFoundError:
            found[key] = ""
    return found


def count_at(store: Store, key: str) -> int:
    return msgspec.json.decode(store.get(key).data, type=Count).number


def judge(
    results: Iterable[Result], holders: Mapping[str, str], total: int | None
) -> tuple[str, ...]:
    """What was wrong: keys with several winners, or none, or another one's bytes; a wrong sum.

    `holders`: whose bytes are at each key.  `total`: what the counter says at the end.
    """
    results = tuple(results)
    wrong = []
    for key, holder in holders.items():
        winners = [r.name for r in results if key in r.won]
        doubters = [r.name for r in results if key in r.unknown]
        shown = key.rpartition("/")[2]
        if len(winners) > 1:
            wrong.append(f"{len(winners)} contenders created {shown}")
        elif winners and holder != winners[0]:
            wrong.append(f"what {shown} holds is not what its creator wrote")
        elif not winners and not doubters:
            wrong.append(f"nobody created {shown}")
    if total is not None:
        added = sum(r.added for r in results)
        doubtful = sum(r.doubtful for r in results)
        if not added <= total <= added + doubtful:
            wrong.append(f"{added} confirmed updates left the counter at {total}")
    return tuple(wrong)
