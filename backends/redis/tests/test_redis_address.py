"""A URL says where Redis is in the words that users of redis-py know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.errors import InvalidKeyError
from tapstore_redis.address import SCHEMES, Credentials, parse
from tapstore_redis.opening import read_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", ("single", False, (("cache", 6379),), 0)),
        ("redis://cache:6380/3", ("single", False, (("cache", 6380),), 3)),
        ("redis://cache?db=4", ("single", False, (("cache", 6379),), 4)),
        ("redis://[::1]:6380", ("single", False, (("::1", 6380),), 0)),
        ("rediss://cache", ("single", True, (("cache", 6379),), 0)),
        ("unix:///run/redis.sock?db=2", ("unix", False, (), 2)),
        ("redis+sentinel://a,b:1/main/5", ("sentinel", False, (("a", 26379), ("b", 1)), 5)),
        ("rediss+sentinel://a/main", ("sentinel", True, (("a", 26379),), 0)),
        ("redis+cluster://a:1,b:2", ("cluster", False, (("a", 1), ("b", 2)), 0)),
        ("rediss+cluster://a", ("cluster", True, (("a", 6379),), 0)),
    ],
)
def test_places_are_understood(url, expected):
    address = parse(url)
    assert (address.kind, address.tls, address.hosts, address.database) == expected


def test_options_have_the_names_of_redis_py():
    address = parse("rediss://cache?socket_timeout=0.5&max_connections=9&ssl_ca_certs=/ca.pem")
    assert address.timeout_seconds == 0.5
    assert address.options == {"max_connections": 9, "ssl_ca_certs": "/ca.pem"}


def test_a_socket_may_have_a_user():
    address = parse("unix://alice:horse@/run/redis.sock")
    assert (address.path, address.login) == ("/run/redis.sock", Credentials("alice", "horse"))


def test_what_the_url_says_comes_before_the_environment():
    environment = {"TAPSTORE_REDIS_USERNAME": "env", "TAPSTORE_REDIS_PASSWORD": "env"}
    assert read_address("redis://alice@cache", environment).login == Credentials("alice", "env")
    assert read_address("redis://:horse@cache", environment).login == Credentials("env", "horse")


def test_sentinels_have_a_login_of_their_own():
    environment = {"TAPSTORE_REDIS_PASSWORD": "a", "TAPSTORE_REDIS_SENTINEL_PASSWORD": "b"}
    address = read_address("redis+sentinel://s/main", environment)
    assert (address.login.password, address.sentinel_login.password) == ("a", "b")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://cache/x", "number of a database"),
        ("redis://cache/1?db=2", "two databases"),
        ("redis://a,b", "redis\\+sentinel"),
        ("redis+sentinel://a", "mymaster"),
        ("redis+cluster://a/1", "no databases"),
        ("unix://run/redis.sock", "unix:///"),
        ("redis://cache?ssl_ca_certs=/ca.pem", "without TLS"),
        ("redis://cache?password=horse", "TAPSTORE_REDIS_PASSWORD"),
        ("redis://cache?socket_timeout=-1", "socket_timeout"),
        ("redis://cache:99999", "port"),
        ("http://cache", "scheme"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(url, reason):
    with pytest.raises(InvalidKeyError, match=reason):
        parse(url)


@given(
    scheme=st.sampled_from(SCHEMES),
    rest=st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t"), max_size=30),
)
def test_nothing_that_follows_a_password_makes_it_show(scheme, rest):
    url = f"{scheme}://alice:horse@{rest}"
    try:
        address = parse(url)
    except InvalidKeyError as refused:
        shown = str(refused)
    else:
        shown = repr(address)
    assert "horse" not in shown
