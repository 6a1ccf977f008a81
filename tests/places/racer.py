"""One of several clients that race at a place: `racer.py create|claim|count URL NAME`.

Options of the place come as JSON in `STORAGE_OPTIONS`.  Does what a line on standard input says,
and answers with a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import tapstore
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.registry import open_store

OPTIONS = json.loads(os.environ["STORAGE_OPTIONS"])
SIZE = 300_000
"""Bytes: more than goes in one request of any of the protocols."""


def creates(url: str, name: str) -> Callable[[str], str]:
    """Create the key; says `won`, or `lost` and whose bytes are there."""
    store = open_store(url, storage_options=OPTIONS)
    store.capabilities  # noqa: B018 - found out before the race

    def act(key: str) -> str:
        try:
            store.put(key, name.encode() * SIZE)
        except AlreadyExistsError:
            return f"lost {whose(store.get(key).data)}"
        return "won"

    return act


def watches(url: str, name: str) -> Callable[[str], str]:  # noqa: ARG001
    """Read the key until it is there; says whose bytes they are."""
    store = open_store(url, storage_options=OPTIONS)

    def act(key: str) -> str:
        while True:
            try:
                return f"saw {whose(store.get(key).data)}"
            except NotFoundError:
                continue

    return act


def whose(data: bytes) -> str:
    letter = data[:1]
    return letter.decode() if data == letter * SIZE and letter else f"{len(data)} bytes"


def claims(url: str, name: str) -> Callable[[str], str]:
    session = tapstore.open(url, storage_options=OPTIONS)

    def act(number: str) -> str:
        try:
            claim = session.claim("coder", agent=f"{name}-{number}", ttl=600)
        except tapstore.AlreadyClaimedError:
            return "lost"
        claim.detach()
        return f"won {claim.token}"

    return act


def counts(url: str, name: str) -> Callable[[str], str]:
    session = tapstore.open(url, storage_options=OPTIONS)

    def add(document: dict[str, int]) -> None:
        document["count"] += 1

    def act(number: str) -> str:
        session.edit(add, by=name, reason=f"{name}-{number}", timeout=120)
        return f"{name}-{number}"

    return act


def main() -> None:
    kind, url, name = sys.argv[1:]
    act = {"create": creates, "watch": watches, "claim": claims, "count": counts}[kind](url, name)
    print("ready", flush=True)
    for line in sys.stdin:
        print(act(line.strip()), flush=True)


if __name__ == "__main__":
    main()
