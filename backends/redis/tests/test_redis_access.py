"""The ways to a Redis: TLS, users with few rights, sentinels, a cluster, the environment."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from people import ANNA, BERT, in_background, queue_length, until
from redis_programs import RedisServer, program, running
from tls_proxy import tls_proxy

from tapstore.errors import LeaseUnavailableError, StoreError
from tapstore.registry import open_locks
from tapstore.stores.memory import MemoryStore
from tapstore_redis import RedisLockService, open_bell
from tapstore_redis.opening import read_address
from tests.servers.certificates import Certificates
from tests.servers.certificates import make as make_certificates
from tests.servers.process import Process, free_ports, temporary_folder

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "redis.md"


def use_everything(service: RedisLockService) -> None:
    """All that agents do with leases."""
    lease = service.acquire("gpu", ANNA, ttl=30, reason="training")
    waiting = in_background(lambda: service.acquire("gpu", BERT, ttl=30, wait=20))
    scope = service._keys.scope
    until(lambda: queue_length(service._line.clients.get(1), "gpu", scope) == 1)
    lease = service.renew(lease)
    assert list(service.names()) == ["gpu"]
    assert service.inspect("gpu").owner == ANNA
    service.release(lease)
    service.force_release("gpu", waiting.result(20).generation)
    assert service.inspect("gpu") is None


def test_the_session_takes_its_locks_from_redis_by_url(server):
    store = MemoryStore("memory://session")
    service = open_locks(server.url, store, ".tap/locks", scope="incarnation1")
    service.acquire("gpu", ANNA, ttl=30)
    with server.client() as client:
        assert client.exists("tapstore:{incarnation1}:lock:gpu")
    service.close()


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "rediss+cluster"])
def test_every_scheme_is_an_entry_point(scheme):
    open_locks(
        f"{scheme}://127.0.0.1:1", MemoryStore("memory://s"), ".tap/locks", scope="s1"
    ).close()


# Users


def acl_rules() -> list[str]:
    """What the how-to gives to an agent."""
    [line] = re.findall(r"^ACL SETUSER agent (.*)$", HOW_TO.read_text("utf-8"), re.MULTILINE)
    return line.split()


def test_the_rules_of_the_how_to_are_enough(own_server, opened):
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", *acl_rules())
    url = f"redis://agent:CHANGE-ME@127.0.0.1:{own_server.port}/0"
    use_everything(opened(url))
    bell = open_bell(url, "s1")
    assert bell.wait(0)
    bell.ring()
    assert bell.wait(5)
    bell.close()


def test_no_rule_of_the_how_to_is_idle(own_server, opened):
    """Each command is needed, so nobody is told to allow more than that."""
    needless = []
    url = f"redis://agent:CHANGE-ME@127.0.0.1:{own_server.port}/0"
    with own_server.client() as client:
        before = own_server.calls()
        client.execute_command("ACL", "SETUSER", "agent", *acl_rules())
        use_everything(opened(url))
        after = own_server.calls()
    for rule in acl_rules():
        command = rule.removeprefix("+")
        if rule.startswith("+") and after.get(command, 0) == before.get(command, 0):
            needless.append(rule)
    assert needless == []


def test_a_user_of_another_prefix_can_not_touch_leases(own_server, opened):
    with own_server.client() as client:
        rules = [rule.replace("tapstore:", "other:") for rule in acl_rules()]
        client.execute_command("ACL", "SETUSER", "agent", *rules)
    service = opened(f"redis://agent:CHANGE-ME@127.0.0.1:{own_server.port}/0")
    with pytest.raises(StoreError, match="permissions"):
        service.acquire("gpu", ANNA, ttl=30)


def test_user_and_password_come_from_the_environment(own_server):
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", *acl_rules())
    environment = {"TAPSTORE_REDIS_USERNAME": "agent", "TAPSTORE_REDIS_PASSWORD": "CHANGE-ME"}
    service = RedisLockService(read_address(own_server.url, environment), "s1")
    assert service.acquire("gpu", ANNA, ttl=30).owner == ANNA
    service.close()


# TLS


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    """For 127.0.0.1."""
    with temporary_folder("certificates") as folder:
        yield make_certificates(folder)


@pytest.fixture
def tls_port(server: RedisServer, certificates: Certificates) -> Iterator[int]:
    with tls_proxy(server.port, certificates) as port:
        yield port


def test_tls_with_the_right_authority_works(tls_port, certificates, opened):
    use_everything(opened(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificates.authority}"))


def test_tls_with_an_unknown_authority_is_refused_with_what_helps(tls_port, opened):
    service = opened(f"rediss://127.0.0.1:{tls_port}/0")
    began = time.monotonic()
    with pytest.raises(StoreError, match="ssl_ca_certs"):
        service.acquire("gpu", ANNA, ttl=30, wait=None)
    assert time.monotonic() - began < 2


def test_tls_for_another_host_is_refused(server, certificates, opened):
    with tls_proxy(server.port, certificates, host="127.0.0.2") as port:
        service = opened(f"rediss://127.0.0.2:{port}/0?ssl_ca_certs={certificates.authority}")
        with pytest.raises(StoreError, match="certificate"):
            service.acquire("gpu", ANNA, ttl=30)


# Sentinels


@pytest.fixture
def sentinels(kind: str) -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """A URL, the master, and its replica."""
    with ExitStack() as stack:
        master = stack.enter_context(running(kind))
        replica = stack.enter_context(running(kind, replicaof=f"127.0.0.1 {master.port}"))
        folder = stack.enter_context(temporary_folder("sentinel"))
        (port,) = free_ports(1)
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {port}\nbind 127.0.0.1\n"
            f"sentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        sentinel = Process("sentinel", [program(kind), str(configuration), "--sentinel"], folder)
        stack.callback(sentinel.stop)
        watcher = stack.enter_context(redis.Redis(port=port, protocol=2))

        def knows_all() -> bool:
            try:
                return len(watcher.sentinel_slaves("mymaster")) == 1
            except redis.RedisError:
                return False

        sentinel.wait_until(knows_all, "knowing the replica")
        yield f"redis+sentinel://127.0.0.1:{port}/mymaster/0", master, replica


def test_sentinels_lead_to_the_master(sentinels, opened):
    url, master, _ = sentinels
    use_everything(opened(url))
    with master.client() as client:
        assert client.exists("tapstore:{s1}:lock:gpu")


def test_who_waits_goes_on_at_the_new_master_with_a_higher_number(sentinels, opened):
    url, master, _ = sentinels
    anna, bert = opened(url), opened(url)
    lease = anna.acquire("gpu", ANNA, ttl=2)
    with master.client() as client:
        waiting = in_background(lambda: bert.acquire("gpu", BERT, ttl=30, wait=60))
        until(lambda: queue_length(client, "gpu") == 1)
    master.kill()
    assert waiting.result(40).generation > lease.generation


def test_a_service_that_the_sentinels_do_not_know_is_named(sentinels, opened):
    url = sentinels[0].replace("mymaster", "othermaster")
    with pytest.raises(StoreError, match="othermaster"):
        opened(url).acquire("gpu", ANNA, ttl=30)


# Cluster


def cluster_rules() -> list[str]:
    """What the how-to adds to the rules."""
    [line] = re.findall(r"In a cluster add `(.*?)`", HOW_TO.read_text("utf-8"))
    return line.split()


@pytest.fixture(scope="module")
def cluster(kind: str) -> Iterator[str]:
    """Two nodes with half of the slots each."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(running(kind, cluster_enabled="yes")) for _ in range(2)]
        with nodes[0].client() as first, nodes[1].client() as second:
            first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
            second.execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
            first.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
            for client in (first, second):
                until(lambda c=client: _is_whole(c))
        yield f"redis+cluster://127.0.0.1:{nodes[0].port}"


def _is_whole(client: redis.Redis) -> bool:
    information = str(client.execute_command("CLUSTER", "INFO"))
    return "'cluster_state': 'ok'" in information or "cluster_state:ok" in information


@pytest.mark.parametrize("scope", ["s1", "s2", "s3", "s4"])
def test_a_session_lies_on_one_node_of_a_cluster(cluster, opened, scope):
    use_everything(opened(cluster, scope))


def test_of_two_clients_in_a_cluster_one_is_refused(cluster, opened):
    opened(cluster, "s9").acquire("gpu", ANNA, ttl=30)
    with pytest.raises(LeaseUnavailableError, match="anna"):
        opened(cluster, "s9").acquire("gpu", BERT, ttl=30)


def test_the_rules_of_the_how_to_are_enough_in_a_cluster(cluster, opened):
    place = cluster.rpartition("//")[2]
    host, port = place.split(":")
    with redis.RedisCluster(host, int(port), protocol=2) as client:
        rules = [*acl_rules(), *cluster_rules()]
        client.execute_command("ACL SETUSER", "agent", *rules, target_nodes="all")
    use_everything(opened(f"redis+cluster://agent:CHANGE-ME@{place}", "s5"))
