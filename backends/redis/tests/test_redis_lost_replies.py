"""An answer that was lost changes nothing: each call ends as if it had been heard."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from lossy_proxy import Loss, LossyProxy, lossy_proxy
from people import ANNA, BERT, in_background, queue_length, until
from redis_programs import RedisServer

from tapstore.errors import LeaseUnavailableError, NotFoundError, OutcomeUnknownError
from tapstore_redis import RedisLockService

LOSSES: list[Loss] = ["reply", "request", "silence"]


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[LossyProxy]:
    with lossy_proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def anna(proxy: LossyProxy, opened) -> RedisLockService:
    service = opened(proxy.url)
    service.inspect("warm-up")
    return service


@pytest.fixture
def bert(server: RedisServer, opened) -> RedisLockService:
    return opened(server.url)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wait", [0, 5])
def test_a_grant_whose_answer_was_lost_is_still_ours(anna, bert, proxy, loss, wait):
    proxy.lose(loss)
    lease = anna.acquire("gpu", ANNA, ttl=4, wait=wait)
    assert proxy.lost == 1
    assert bert.inspect("gpu").generation == lease.generation
    assert anna.renew(lease).generation == lease.generation


@pytest.mark.parametrize("loss", LOSSES)
def test_a_grant_that_was_asked_for_twice_counts_from_the_second_time(anna, proxy, loss):
    proxy.lose(loss)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    lease = anna.acquire("gpu", ANNA, ttl=4, wait=5)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before + 4 <= lease.expires <= now + 4


@pytest.mark.parametrize("loss", LOSSES)
def test_a_renewal_survives_one_loss(anna, bert, proxy, loss):
    lease = anna.acquire("gpu", ANNA, ttl=4)
    proxy.lose(loss)
    renewed = anna.renew(lease)
    assert proxy.lost == 1
    assert renewed.expires > lease.expires
    with pytest.raises(LeaseUnavailableError):
        bert.acquire("gpu", BERT, ttl=4)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_release_is_repeated_until_it_is_confirmed(anna, bert, proxy, loss):
    lease = anna.acquire("gpu", ANNA, ttl=4)
    proxy.lose(loss, times=2)
    anna.release(lease)
    assert proxy.lost == 2
    assert bert.acquire("gpu", BERT, ttl=4).generation > lease.generation


def test_a_release_that_is_repeated_late_does_not_end_the_next_grant(anna, bert, server, proxy):
    lease = anna.acquire("gpu", ANNA, ttl=8)
    waiting = in_background(lambda: bert.acquire("gpu", BERT, ttl=8, wait=8))
    with server.client() as client:
        until(lambda: queue_length(client, "gpu") == 1)
    proxy.lose("silence")
    anna.release(lease)
    assert proxy.lost == 1
    assert bert.renew(waiting.result(10)).owner == BERT


@pytest.mark.parametrize("loss", LOSSES)
def test_force_whose_answer_was_lost_ended_it_and_says_so(anna, bert, proxy, loss):
    lease = bert.acquire("gpu", BERT, ttl=30)
    proxy.lose(loss)
    anna.force_release("gpu", lease.generation)
    assert proxy.lost == 1
    assert bert.inspect("gpu") is None
    with pytest.raises(NotFoundError):
        anna.force_release("gpu", lease.generation)


def test_a_grant_that_stays_unknown_is_no_grant_and_is_given_back(anna, bert, proxy):
    proxy.lose("reply", times=2)
    with pytest.raises(OutcomeUnknownError, match="gpu"):
        anna.acquire("gpu", ANNA, ttl=30)
    assert bert.acquire("gpu", BERT, ttl=30).owner == BERT


def test_who_waits_keeps_its_place_when_its_connections_break(anna, bert, server, proxy):
    lease = bert.acquire("gpu", BERT, ttl=60)
    with server.client() as client:
        waiting = in_background(lambda: anna.acquire("gpu", ANNA, ttl=60, wait=30))
        until(lambda: queue_length(client, "gpu") == 1)
        place = client.zrange("tapstore:{s1}:queue:gpu", 0, -1, withscores=True)
        proxy.cut()
        until(lambda: not client.pubsub_channels("tapstore:*"))
        until(lambda: client.pubsub_channels("tapstore:*"))
        assert client.zrange("tapstore:{s1}:queue:gpu", 0, -1, withscores=True) == place
    released = time.monotonic()
    bert.release(lease)
    assert waiting.result(10).owner == ANNA
    assert time.monotonic() - released < 1.5


@pytest.mark.parametrize("loss", LOSSES)
def test_who_waits_survives_a_lost_look(anna, bert, server, proxy, loss):
    lease = bert.acquire("gpu", BERT, ttl=60)
    with server.client() as client:
        proxy.lose(loss, times=2)
        waiting = in_background(lambda: anna.acquire("gpu", ANNA, ttl=4, wait=30))
        until(lambda: queue_length(client, "gpu") == 1 and proxy.lost == 2)
    bert.release(lease)
    assert waiting.result(20).owner == ANNA
