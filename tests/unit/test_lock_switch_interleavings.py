"""Contenders for one lease while others switch the session to and fro, in orders of chance.

What a holder believes must never overlap, in whatever service it was granted.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from tapstore.errors import ConflictError, LeaseUnavailableError
from tapstore.sessions import lockswitch
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.lockservice import GENERATION_BITS, SessionLocks
from tapstore.types import Owner
from tests.unit.lease_world import (
    TROUBLE,
    TTL,
    Actor,
    SteppedStore,
    World,
    _WorldClock,
    contender,
    overlaps,
)

CONFIG = SessionConfig(session_id="s", incarnation="i", locks="o_excl")


def opened(store, prefix, *, clock, **polls) -> SessionLocks:
    del prefix, polls
    return SessionLocks(store, CONFIG, clock=clock)


def switcher(actor: Actor) -> None:
    """Switch, now and then, to one or the other; patiently or not."""
    rng, clock = actor.world.rng, _WorldClock(actor.world, actor)
    locks = SessionLocks(SteppedStore(actor.world.store, actor), CONFIG, clock=clock)
    owner = Owner(agent=f"s{actor.number}", instance=str(actor.number))
    while True:
        clock.sleep(rng.uniform(0, 3 * TTL))
        with suppress(LeaseUnavailableError, ConflictError, *TROUBLE):
            lockswitch.switch(
                locks,
                rng.choice(("o_excl", "store")),
                owner=owner,
                wait=rng.choice((0.0, TTL / 2, 3 * TTL)),
            )


def play(seed: int, *, trouble: float = 0.0) -> World:
    world = World(seed, opened, trouble=trouble)
    for _ in range(world.rng.choice((2, 3))):
        world.add(contender)
    for _ in range(world.rng.choice((1, 2))):
        world.add(switcher)
    world.run(3000)
    return world


SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_two_holders_believe_never_overlaps(seed):
    world = play(seed)
    assert overlaps(world.beliefs) == []
    assert world.grants == sorted(set(world.grants))


@pytest.mark.parametrize("seed", SEEDS)
def test_not_even_where_requests_get_lost_or_come_late(seed):
    world = play(seed, trouble=0.05)
    assert overlaps(world.beliefs) == []
    assert world.grants == sorted(set(world.grants))


def test_these_orders_do_lead_through_switches():
    worlds = [play(seed) for seed in list(SEEDS)[:10]]
    numbers = [{grant >> GENERATION_BITS for grant in world.grants} for world in worlds]
    assert sum(len(each) - 1 for each in numbers if each) >= 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 4000))
def test_no_overlap_in_thousands_of_orders(seed):
    for trouble in (0.0, 0.05):
        assert overlaps(play(seed, trouble=trouble).beliefs) == []
