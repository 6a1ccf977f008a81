"""Who waits is served in its turn, is called when it is, and is no obstacle when it died."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lossy_proxy import lossy_proxy
from people import ANNA, BERT, in_background, queue_length, until

from tapstore.clock import SystemClock
from tapstore.errors import LeaseUnavailableError, StoreError
from tapstore.types import Owner
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address

FORKING = Path(__file__).with_name("forking.py")
HOLDER = Path(__file__).with_name("lease_holder.py")


def owner(number: int) -> Owner:
    return Owner(agent=f"a{number}", instance=str(number))


def wait_in_line(service, client, number: int, name: str = "gpu", **options):
    """Start to wait as the next in the queue."""
    before = queue_length(client, name)
    future = in_background(
        lambda: service.acquire(name, owner(number), **{"ttl": 30, "wait": 60, **options})
    )
    until(lambda: queue_length(client, name) == before + 1)
    return future


def start_holder(url: str, *, ttl: float = 60) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, HOLDER, url, str(ttl)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_those_who_wait_are_served_in_the_order_in_which_they_began(server, opened):
    service = opened(server.url)
    lease = service.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        waiting = [wait_in_line(opened(server.url), client, number) for number in range(6)]
    for number, future in enumerate(waiting):
        service.release(lease)
        lease = future.result(20)
        assert lease.owner == owner(number)


def test_who_comes_later_does_not_overtake(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        # Waits, but is not there to be called: stopped, or on a slow network.
        client.zadd("tapstore:{s1}:queue:gpu", {"somebody": 1})
        client.zadd("tapstore:{s1}:alive:gpu", {"somebody": (time.time() + 60) * 1e6})
    anna.release(lease)
    with pytest.raises(LeaseUnavailableError, match="first of 1 who wait"):
        bert.acquire("gpu", BERT, ttl=30)


def test_who_was_called_and_does_not_come_loses_its_turn(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        client.zadd("tapstore:{s1}:queue:gpu", {"somebody": 1})
        client.zadd("tapstore:{s1}:alive:gpu", {"somebody": (time.time() + 60) * 1e6})
        waiting = wait_in_line(bert, client, 1)
    began = time.monotonic()
    anna.release(lease)
    assert waiting.result(20).owner == owner(1)
    assert time.monotonic() - began < 8


def test_those_who_died_waiting_drop_out(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        dead = [start_holder(server.url, ttl=1) for _ in range(3)]
        until(lambda: queue_length(client, "gpu") == 3)
        for process in dead:
            process.kill()
            process.communicate()
        waiting = wait_in_line(bert, client, 1, ttl=1)
        anna.release(lease)
        began = time.monotonic()
        assert waiting.result(20).owner == owner(1)
        assert time.monotonic() - began < 4
        assert queue_length(client, "gpu") == 0


def test_who_waits_is_called_at_once(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    delays = []
    with server.client() as client:
        for number in range(10):
            lease = anna.acquire("gpu", ANNA, ttl=30)
            waiting = wait_in_line(bert, client, number)
            released = time.monotonic()
            anna.release(lease)
            got = waiting.result(20)
            delays.append(time.monotonic() - released)
            bert.release(got)
    # A look by itself would come after more than three seconds.
    assert sorted(delays)[5] < 0.5
    assert max(delays) < 2


def test_waiting_does_not_poll(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu", ANNA, ttl=60)
    bert.inspect("warm-up")
    with server.client() as client:
        waiting = wait_in_line(bert, client, 1)
        before = server.calls()
        # Long enough for a poller to look many times.
        with pytest.raises(TimeoutError):
            waiting.result(2.5)
        after = server.calls()
    looks = sum(
        after.get(name, 0) - before.get(name, 0) for name in ("evalsha", "eval", "subscribe")
    )
    assert looks <= 1
    anna.release(lease)
    waiting.result(20)


def test_a_free_lease_costs_one_command_to_get_and_one_to_give_back(server, opened):
    service = opened(server.url)
    service.release(service.acquire("gpu", ANNA, ttl=30))
    before = server.calls()
    service.release(service.acquire("gpu", ANNA, ttl=30, wait=30))
    after = server.calls()
    assert after["evalsha"] - before["evalsha"] == 2
    assert after.get("subscribe", 0) == before.get("subscribe", 0)


def test_who_gives_up_leaves_the_queue(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    anna.acquire("gpu", ANNA, ttl=30)
    with pytest.raises(LeaseUnavailableError):
        bert.acquire("gpu", BERT, ttl=30, wait=0.2)
    with server.client() as client:
        assert queue_length(client, "gpu") == 0


def test_the_next_one_is_called_when_the_first_gives_up_at_its_turn(server, opened):
    anna, bert, carl = (opened(server.url) for _ in range(3))
    lease = anna.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        first = wait_in_line(bert, client, 1, wait=1.5)
        second = wait_in_line(carl, client, 2)
        with pytest.raises(LeaseUnavailableError):
            first.result(20)
    anna.release(lease)
    assert second.result(20).owner == owner(2)


def test_two_leases_have_two_queues(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu-0", ANNA, ttl=30)
    with server.client() as client:
        waiting = wait_in_line(bert, client, 1, name="gpu-0")
    assert bert.acquire("gpu-1", BERT, ttl=30).owner == BERT
    anna.release(lease)
    assert waiting.result(20).name == "gpu-0"


def test_two_sessions_on_one_server_do_not_meet(server, opened):
    opened(server.url, "s1").acquire("gpu", ANNA, ttl=30)
    assert opened(server.url, "s2").acquire("gpu", BERT, ttl=30).owner == BERT


def test_nothing_stays_of_a_queue_that_nobody_looks_at(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    lease = anna.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        waiting = wait_in_line(bert, client, 1)
        for key in client.keys("tapstore:*:queue:*") + client.keys("tapstore:*:alive:*"):
            assert 0 < client.pttl(key) <= 30_000
        for key in ("tapstore:{s1}:lock:gpu", "tapstore:{s1}:held"):
            assert client.pttl(key) == -1  # what may be evicted must not be a lease
    anna.release(lease)
    waiting.result(20)


@pytest.mark.parametrize("phase", ["queued", "granted", "held"])
def test_ctrl_c_leaves_nothing_behind(server, opened, phase):
    bert = opened(server.url)
    lease = bert.acquire("gpu", BERT, ttl=60) if phase == "queued" else None
    with lossy_proxy(server.port) as proxy, server.client() as client:
        if phase == "granted":
            proxy.lose("silence", times=10)  # the grant is on its way when Ctrl-C comes
        process = start_holder(proxy.url if phase == "granted" else server.url)
        if phase == "queued":
            until(lambda: queue_length(client, "gpu") == 1)
        elif phase == "granted":
            until(lambda: bert.inspect("gpu"))
        else:
            assert process.stdout.readline() == "ready\n"
        proxy.forget()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert "KeyboardInterrupt" in errors
        assert queue_length(client, "gpu") == 0
    if lease is not None:
        bert.release(lease)
    assert bert.acquire("gpu", BERT, ttl=60, wait=0).owner == BERT


def test_many_threads_share_one_service(server, opened):
    service = opened(server.url)
    inside: list[int] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                lease = service.acquire("gpu", owner(number), ttl=30, wait=60)
                inside.append(number)
                assert len(inside) == 1
                inside.clear()
                service.release(lease)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_forked_child_uses_connections_of_its_own(server):
    done = subprocess.run(
        [sys.executable, FORKING, server.url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_grant_whose_answer_came_after_its_ttl_is_asked_for_again(server):
    with server.client() as client:

        class Sleeper(SystemClock):
            """This process is stopped between the grant and the answer."""

            slept = 0.0

            def monotonic(self) -> float:
                if not self.slept and client.exists("tapstore:{s1}:lock:gpu"):
                    self.slept = 100.0
                return super().monotonic() + self.slept

        clock = Sleeper()
        service = RedisLockService(read_address(server.url, {}), "s1", clock=clock)
        lease = service.acquire("gpu", ANNA, ttl=30)
        assert clock.slept
        assert lease.expires > clock.monotonic()
        service.close()


def test_a_ttl_shorter_than_an_answer_takes_is_an_error(server, opened):
    service = opened(server.url)
    with pytest.raises(StoreError, match="longer one"):
        service.acquire("gpu", ANNA, ttl=1e-6, wait=None)


def test_one_look_costs_one_command(server, opened):
    anna, bert = opened(server.url), opened(server.url)
    anna.acquire("gpu", ANNA, ttl=30)
    bert.inspect("warm-up")
    before = server.calls()["evalsha"]
    with pytest.raises(LeaseUnavailableError):
        bert.acquire("gpu", BERT, ttl=30, wait=0)
    assert server.calls()["evalsha"] == before + 1
