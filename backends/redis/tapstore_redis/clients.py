"""Connections to one Redis, for any number of threads and processes.

A process never uses a socket that it inherited.  redis-py repeats nothing by itself here, except in
a cluster, where it follows a slot to another node; all that is sent may be repeated.

Not promised: a connection.  Nobody is called before the first command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis
from redis import cluster, sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from tapstore_redis.address import Address, Credentials

# These parts of redis-py have no annotations.
_cluster: Any = cluster
_sentinel: Any = sentinel

_CLASSES_SECONDS = (60.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25)
"""Time-outs that connections are kept for: redis-py's belong to the socket, not to the call."""


class Clients:
    """Hands out redis-py's clients by the time that an answer may take."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clients: dict[tuple[int, float], Any] = {}

    def get(self, seconds: float) -> Any:
        """The client of this process whose commands fail after about `seconds`, or sooner.

        In a cluster this looks for its nodes the first time, and raises what redis-py raises.
        """
        limit = min(seconds, self._address.timeout_seconds)
        kept = (each for each in _CLASSES_SECONDS if each <= limit)
        timeout = next(kept, _CLASSES_SECONDS[-1])
        key = (os.getpid(), timeout)
        client = self._clients.get(key)
        if client is None:
            # Two threads may both get here.  No mutex: one that another thread of the parent held
            # while it forked would stay held in the child for ever.
            client = self._clients.setdefault(key, _make(self._address, timeout))
        return client

    def close(self) -> None:
        """Close the connections of this process that no other thread is using just now."""
        for key in [key for key in self._clients if key[0] == os.getpid()]:
            for pool in _pools(self._clients.pop(key)):
                with suppress(redis.RedisError, OSError):
                    pool.disconnect(inuse_connections=False)

    def __repr__(self) -> str:
        return f"Clients({self._address.url!r})"


def _pools(client: Any) -> list[Any]:
    nodes = [client]
    if isinstance(client, redis.RedisCluster):
        nodes = [node.redis_connection for node in client.nodes_manager.nodes_cache.values()]
    return [node.connection_pool for node in nodes if node is not None]


def _make(address: Address, timeout: float) -> Any:
    options = {
        # The default of some versions repeats ten times, for longer than a lease may live.
        "retry": Retry(NoBackoff(), 0),
        # Version 3 mixes messages with answers, and is not everywhere.
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        **_named(address.login),
        # Older versions did not look at the name in a certificate by themselves.
        **(_checked(address.options) if address.tls else {}),
        **address.options,
    }
    if address.kind == "cluster":
        if address.tls:
            options["ssl"] = True
        nodes = [_cluster.ClusterNode(host, port) for host, port in address.hosts]
        return redis.RedisCluster(startup_nodes=nodes, **options)
    if address.kind == "sentinel":
        if address.tls:
            options["ssl"] = True
        mine = {name: value for name, value in options.items() if name not in _LOGIN}
        mine |= _named(address.sentinel_login)
        service = _sentinel.Sentinel(list(address.hosts), sentinel_kwargs=mine)
        return service.master_for(address.service, db=address.database, **options)
    options["db"] = address.database
    if address.kind == "unix":
        options.pop("socket_keepalive", None)
        options |= {
            "connection_class": redis.UnixDomainSocketConnection,
            "path": address.path,
        }
    else:
        options["host"], options["port"] = address.hosts[0]
        if address.tls:
            options["connection_class"] = redis.SSLConnection
    return redis.Redis(connection_pool=redis.ConnectionPool(**options))


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    required = options.get("ssl_cert_reqs", "required") == "required"
    return {"ssl_cert_reqs": "required", "ssl_check_hostname": required}


_LOGIN = ("username", "password")


def _named(login: Credentials) -> dict[str, str]:
    values = {"username": login.username, "password": login.password}
    return {name: value for name, value in values.items() if value}
