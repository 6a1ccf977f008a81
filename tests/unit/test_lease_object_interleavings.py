"""Lease objects under every order of events that chance comes up with, and on a bad network."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from lease_world import TTL, World, overlaps, play

from tapstore.locks.leaseobject import LeaseObjectService
from tapstore.locks.records import Current


def faults(history: list[tuple[float, bytes]]) -> list[str]:
    """What must not happen to the object of a lease, from one version to the next."""
    found = []
    versions = [(at, msgspec.json.decode(data, type=Current)) for at, data in history]
    if len({version.nonce for _, version in versions}) < len(versions):
        found.append("two versions with one nonce")
    for (before, old), (at, new) in pairwise(versions):
        if new.token == old.token:
            if new.generation != old.generation:
                found.append(f"{old.generation} became {new.generation} in one hand")
            if old.state != "held":
                found.append(f"{old.generation} was written again after its end")
        else:
            if new.generation != old.generation + 1:
                found.append(f"{old.generation} was followed by {new.generation}")
            if old.state == "held" and at < before + old.ttl_seconds:
                found.append(f"{old.generation} was taken over after {at - before:.2f} s")
    return found


def check(seed: int, trouble: float) -> World:
    world = play(seed, LeaseObjectService, trouble=trouble)
    assert overlaps(world.beliefs) == [], f"seed {seed}"
    assert faults(world.store.history) == [], f"seed {seed}"
    assert len(set(world.grants)) == len(world.grants), f"seed {seed}"
    return world


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("trouble", [0.0, 0.02, 0.06])
def test_no_two_holders_ever_rely_on_it_at_once(seed, trouble):
    check(seed, trouble)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_two_holders_ever_rely_on_it_at_once_for_long():
    for seed in range(100, 20_000):
        check(seed, (0.0, 0.02, 0.06, 0.12)[seed % 4])


@pytest.mark.parametrize("trouble", [0.0, 0.06])
def test_contenders_get_on_with_it(trouble):
    assert len(check(1, trouble).grants) > 10


def test_the_checker_sees_what_must_not_happen():
    def version(generation, token, state="held"):
        owner = {"agent": "x", "instance": "y"}
        record = {"format": 1, "name": "n", "generation": generation, "state": state,
                  "token": token * 16, "nonce": f"{len(versions)}", "owner": owner,
                  "ttl_seconds": TTL, "at": "2026-01-01T00:00:00Z"}  # fmt: skip
        versions.append((len(versions) * TTL / 2, msgspec.json.encode(record)))

    versions: list[tuple[float, bytes]] = []
    version(1, "a")
    version(2, "b")
    version(2, "b", "released")
    version(2, "b")
    version(3, "b")
    version(3, "b", "released")
    version(3, "c")
    assert faults(versions) == [
        "1 was taken over after 5.00 s",
        "2 was written again after its end",
        "2 became 3 in one hand",
        "3 was followed by 3",
    ]
