"""What leases are worth when the server restarts, with its data, without, or with old ones."""

from __future__ import annotations

import time

import pytest
from people import ANNA, BERT, in_background, queue_length, until

from tapstore.errors import LeaseLostError, LeaseUnavailableError

RECORD = "tapstore:{s1}:lock:gpu"


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_lease_survives_a_restart_with_data(durable_server, opened):
    anna, bert = opened(durable_server.url), opened(durable_server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    durable_server.restart(keep_data=True)
    assert anna.renew(lease).generation == lease.generation
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.acquire("gpu", BERT, ttl=30)


def test_a_holder_that_was_forgotten_learns_it_from_its_renewal(own_server, opened):
    anna = opened(own_server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    own_server.restart(keep_data=False)
    with pytest.raises(LeaseLostError, match="lost its data"):
        anna.renew(lease)


def test_numbers_rise_over_a_restart_without_data(own_server, opened):
    numbers = []
    for _ in range(3):
        service = opened(own_server.url)
        for _ in range(50):
            lease = service.acquire("gpu", ANNA, ttl=30)
            numbers.append(lease.generation)
            service.release(lease)
        own_server.restart(keep_data=False)
    assert numbers == sorted(set(numbers))


def test_numbers_rise_over_a_restore_of_old_data(server, opened):
    service = opened(server.url)
    service.release(service.acquire("gpu", ANNA, ttl=30))
    with server.client() as client:
        backup = client.dump(RECORD)
        later = service.acquire("gpu", ANNA, ttl=30)
        service.release(later)
        client.restore(RECORD, 0, backup, replace=True)
    assert service.acquire("gpu", ANNA, ttl=30).generation > later.generation


def test_numbers_rise_while_the_servers_clock_is_behind_its_data(server, opened):
    service = opened(server.url)
    first = service.acquire("gpu", ANNA, ttl=30)
    service.release(first)
    ahead = first.generation + 3_600_000_000
    with server.client() as client:
        client.hset(RECORD, "generation", ahead)
    assert service.acquire("gpu", ANNA, ttl=30).generation == ahead + 1


def test_a_clock_that_was_set_back_does_not_make_a_ttl_longer(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    anna.acquire("gpu", ANNA, ttl=1)
    with server.client() as client:
        client.hincrby(RECORD, "beat", 3_600_000_000)
    began = time.monotonic()
    bert.acquire("gpu", BERT, ttl=1, wait=10)
    assert 0.9 < time.monotonic() - began < 5


def test_who_saw_a_holder_lets_its_ttl_pass_though_the_server_forgot_it(own_server, opened):
    anna, bert = opened(own_server.url), opened(own_server.url)
    lease = anna.acquire("gpu", ANNA, ttl=3)
    with own_server.client() as client:
        waiting = in_background(lambda: bert.acquire("gpu", BERT, ttl=3, wait=30))
        until(lambda: queue_length(client, "gpu") == 1)
    own_server.restart(keep_data=False)
    waiting.result(20)
    assert boottime() >= lease.expires


@pytest.mark.parametrize("keep", [True, False])
def test_those_who_wait_go_on_after_a_restart(durable_server, opened, keep):
    anna, bert = opened(durable_server.url), opened(durable_server.url)
    lease = anna.acquire("gpu", ANNA, ttl=2)
    with durable_server.client() as client:
        waiting = in_background(lambda: bert.acquire("gpu", BERT, ttl=2, wait=30))
        until(lambda: queue_length(client, "gpu") == 1)
    durable_server.restart(keep_data=keep)
    restarted = time.monotonic()
    assert waiting.result(20).generation > lease.generation
    assert time.monotonic() - restarted < 2 + 2
