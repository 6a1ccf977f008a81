"""Numbered leases under every order of events that chance comes up with."""

from __future__ import annotations

import pytest
from lease_world import overlaps, play

from tapstore.locks import lease as lease_module
from tapstore.locks import records
from tapstore.locks.lease import LeaseService


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    # So that numbers are collected while somebody sleeps on them.
    monkeypatch.setattr(records, "BLOCK", 4)
    monkeypatch.setattr(records, "KEEP", 2)
    monkeypatch.setattr(lease_module, "_COLLECT_EVERY", 2)


def check(seed: int) -> None:
    world = play(seed, LeaseService)
    assert overlaps(world.beliefs) == [], f"seed {seed}"
    assert len(set(world.grants)) == len(world.grants), f"seed {seed}"


@pytest.mark.parametrize("seed", range(80))
def test_no_two_holders_ever_rely_on_it_at_once(seed):
    check(seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_two_holders_ever_rely_on_it_at_once_for_long():
    for seed in range(100, 20_000):
        check(seed)


def test_the_recorder_sees_holders_that_overlap():
    assert overlaps([(0.0, 2.0, 1), (1.0, 3.0, 2)])
    assert not overlaps([(0.0, 2.0, 1), (1.0, 3.0, 1), (3.0, 4.0, 2)])


def test_contenders_get_on_with_it():
    assert len(play(1, LeaseService).grants) > 10
