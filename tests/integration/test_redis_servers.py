"""Valkey and Redis start, serve on TCP, TLS and a socket, and forget or keep what they should."""

import os
import signal
import subprocess

import pytest
import redis

from tapstore.testing.servers import valkey as valkey_module
from tests.servers import redis as redis_module
from tests.servers.process import ServerFailedError, ServerMissingError


@pytest.fixture(params=[valkey_module.server, redis_module.server], ids=["valkey", "redis"])
def own_server(request):
    """One that a test may stop."""
    try:
        with request.param(acl=True) as running:
            yield running
    except ServerMissingError as missing:
        pytest.skip(str(missing))


def test_the_address_and_the_socket_lead_to_one_server(redis_like):
    with (
        redis_like.client() as by_address,
        redis.Redis.from_url(redis_like.unix_url) as by_socket,
    ):
        by_address.set("key", "value")
        assert by_socket.get("key") == b"value"


def test_each_test_finds_it_empty(redis_like):
    with redis_like.client() as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_a_user_with_a_password_is_let_in_and_nobody_else(own_server):
    with own_server.client() as client:
        assert client.acl_whoami() == own_server.user
    anonymous = f"redis://127.0.0.1:{own_server.port}/0"
    with redis.Redis.from_url(anonymous) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with redis.Redis.from_url(own_server.unix_url) as client:
        assert client.ping()


def test_the_password_is_in_no_argument(own_server):
    with open(f"/proc/{own_server.pid}/cmdline") as arguments:
        assert own_server.password not in arguments.read()
    listed = subprocess.run(
        ["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True
    )
    assert own_server.password not in listed.stdout


def test_tls_is_spoken_with_a_certificate_that_can_be_verified(redis_tls):
    with redis_tls.client(ssl_cert_reqs="required", ssl_check_hostname=True) as client:
        assert client.ping()
    with redis.Redis.from_url(redis_tls.url) as stranger, pytest.raises(redis.ConnectionError):
        stranger.ping()


@pytest.mark.parametrize("keep_data", [True, False])
def test_a_restart_keeps_the_data_or_not(own_server, keep_data):
    with own_server.client() as client:
        client.set("key", "value")
        before = own_server.url, own_server.pid
        own_server.restart(keep_data=keep_data)
        assert client.get("key") == (b"value" if keep_data else None)
    assert own_server.url == before[0]
    assert own_server.pid != before[1]


def test_a_killed_server_starts_again_without_data(own_server):
    with own_server.client() as client:
        client.set("key", "value")
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        own_server.restart(keep_data=False)
        assert client.get("key") is None


def test_the_pid_is_that_of_the_server(own_server):
    with own_server.client(socket_timeout=0.2) as client:
        assert client.info("server")["process_id"] == own_server.pid
        os.kill(own_server.pid, signal.SIGSTOP)
        with pytest.raises(redis.TimeoutError):
            client.ping()
        os.kill(own_server.pid, signal.SIGCONT)
        assert client.ping()


def test_a_start_that_fails_says_what_the_log_says():
    with (
        pytest.raises(ServerFailedError, match="no-such-setting"),
        valkey_module.server(settings={"no-such-setting": "1"}),
    ):
        pass
