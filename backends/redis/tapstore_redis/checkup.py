"""What `tapstore doctor` is told of a Redis: whether it keeps leases, how fast, and by whose clock.

Looks at `INFO`, and at `CONFIG GET save` if that is allowed; a user with the rights that leases
need, and no more, gets a note instead.  Of a cluster one node is looked at.

Not promised: that a setting stays what it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tapstore.abc import Clock
from tapstore.errors import StoreError
from tapstore.types import Finding
from tapstore_redis.address import Address
from tapstore_redis.line import Line
from tapstore_redis.records import Keys

_READ_SECONDS = 2.0
_PINGS = 50
_SLOW_SECONDS = 0.05
_CLOCK_SECONDS = 1.0
_OLDEST = (6, 2)

Info = Mapping[str, Any]


def all_of(
    line: Line, keys: Keys, address: Address, clock: Clock, tried: Sequence[str]
) -> Iterator[Finding]:
    """Yield the findings; then forget the leases that were tried."""
    try:
        yield from _settings(line, clock)
        yield _latency(line, clock)
        yield _clock(line, clock)
        yield access(address)
    finally:
        _forget(line, keys, clock, tried)


def server(info: Info) -> Finding:
    """Version and role."""
    name = "redis-server"
    version = str(info.get("valkey_version") or info.get("redis_version") or "?")
    kind = "Valkey" if "valkey_version" in info else "Redis"
    role = str(info.get("role", "?"))
    values = {"version": version, "role": role, "replicas": int(info.get("connected_slaves", 0))}
    seen = f"{kind} {version}, {role}"
    if role == "slave":
        return Finding(name, "fatal", seen, "a replica takes no changes",
                       "use the address of the master, or redis+sentinel://", values)  # fmt: skip
    compatible = str(info.get("redis_version", version))
    if _numbers(compatible) < _OLDEST:
        return Finding(name, "warning", seen, "tried with 7.0 and newer; 6.2 should do",
                       "upgrade it", values)  # fmt: skip
    if values["replicas"]:
        return Finding(
            name,
            "note",
            f"{seen} with {values['replicas']} replicas",
            "replication is asynchronous: a failover may forget the last grants",
            "min-replicas-to-write 1 and min-replicas-max-lag 10 bound that",
            values,
        )
    return Finding(name, "ok", seen, values=values)


def eviction(info: Info) -> Finding:
    """Whether it may drop a lease that somebody holds to make room."""
    name = "redis-eviction"
    policy = str(info.get("maxmemory_policy", "?"))
    limit = int(info.get("maxmemory", 0))
    values = {"maxmemory_policy": policy, "maxmemory_bytes": limit}
    seen = f"maxmemory-policy {policy}"
    if not policy.startswith("allkeys"):
        return Finding(name, "ok", seen, values=values)
    means = "a lock that somebody holds may be evicted, and be granted to another one"
    change = "maxmemory-policy noeviction, or a Redis of its own for locks"
    if not limit:
        return Finding(name, "note", f"{seen}, without a limit of memory now",
                       f"as soon as maxmemory is set, {means}", change, values)  # fmt: skip
    return Finding(name, "warning", f"{seen} at {limit >> 20} MiB", means, change, values)


def persistence(info: Info, save: str | None) -> Finding:
    """What a restart forgets; `save` is that setting, None if it cannot be seen."""
    name = "redis-persistence"
    appends = bool(int(info.get("aof_enabled", 0)))
    values = {"appendonly": appends, "save": save}
    broken = [
        what
        for what in ("rdb_last_bgsave_status", "aof_last_write_status")
        if info.get(what, "ok") != "ok"
    ]
    if broken:
        return Finding(name, "warning", f"it fails to write: {', '.join(broken)}",
                       "it may refuse changes, or forget all of them when it is restarted",
                       "look at its log and its disk", values)  # fmt: skip
    if appends:
        return Finding(name, "ok", "appendonly yes", values=values)
    means = "a restart forgets {}; a new holder may be granted what another still relies on"
    if save:
        return Finding(name, "note", f"snapshots only (save {save})",
                       means.format("what was granted since the last one"),
                       "appendonly yes, appendfsync everysec", values)  # fmt: skip
    if save is None:
        return Finding(name, "note", "appendonly no; `save` is not visible (+config|get)",
                       means.format("some grants, or all of them"),
                       "appendonly yes, appendfsync everysec", values)  # fmt: skip
    return Finding(name, "warning", "appendonly no, no snapshots", means.format("all locks"),
                   "appendonly yes, appendfsync everysec", values)  # fmt: skip


def access(address: Address) -> Finding:
    """Whether others on the way can read or change what is said."""
    name = "redis-access"
    protected = bool(address.login.password)
    values = {"tls": address.tls, "password": protected, "socket": address.kind == "unix"}
    if address.kind == "unix":
        return Finding(name, "ok", "a socket on this host", values=values)
    who = "with a password" if protected else "without a password"
    if address.tls:
        return Finding(name, "ok", f"TLS, {who}", values=values)
    if all(_is_here(host) for host, _ in address.hosts):
        return Finding(name, "ok", f"on this host, {who}", values=values)
    return Finding(
        name,
        "note",
        f"no TLS, {who}",
        "who is on the network can read and end locks" + (" and has the password" * protected),
        "rediss://, unless the network is yours alone",
        values,
    )


def offset(seconds: float, round_trip: float) -> Finding:
    """How far this host is ahead of the server, by a look that took so long."""
    name = "redis-clock"
    values = {"offset_seconds": round(seconds, 3)}
    if abs(seconds) < _CLOCK_SECONDS + round_trip:
        return Finding(name, "ok", "this host agrees with the server on the time", values=values)
    return Finding(
        name,
        "note",
        f"this host is {abs(seconds):,.1f} s {'ahead of' if seconds > 0 else 'behind'} the server",
        "leases go by the server's clock alone; shown times differ from those of logs here",
        "set the clocks (NTP)",
        values,
    )


def _settings(line: Line, clock: Clock) -> Iterator[Finding]:
    try:
        info: Info = _ask(line, clock, lambda client: client.info())
    except StoreError as exc:
        yield Finding(
            "redis-server",
            "note",
            f"its settings are not visible: {_short(exc)}",
            "whether it keeps or evicts locks is not known",
            "allow +info and +config|get to whoever runs `tapstore doctor`",
        )
        return
    save: str | None = None
    with suppress(StoreError):
        save = str(_ask(line, clock, lambda client: client.config_get("save")).get("save", ""))
    yield server(info)
    yield eviction(info)
    yield persistence(info, save)


def _latency(line: Line, clock: Clock) -> Finding:
    name = "redis-latency"
    seconds = []
    try:
        for _ in range(_PINGS):
            sent = clock.monotonic()
            # What a user that may only use leases may send.
            _ask(line, clock, lambda client: client.time())
            seconds.append(clock.monotonic() - sent)
    except StoreError as exc:
        return Finding(name, "warning", f"it does not answer reliably: {_short(exc)}")
    seconds.sort()
    middle, late = seconds[_PINGS // 2], seconds[math.ceil(_PINGS * 0.99) - 1]
    values = {"p50_seconds": round(middle, 6), "p99_seconds": round(late, 6), "samples": _PINGS}
    seen = f"{middle * 1000:.2f}/{late * 1000:.2f} ms a command (p50/p99)"
    if middle < _SLOW_SECONDS:
        return Finding(name, "ok", seen, values=values)
    return Finding(name, "note", seen, "each lock costs two commands",
                   "a Redis that is nearer", values)  # fmt: skip


def _clock(line: Line, clock: Clock) -> Finding:
    try:
        sent, wall = clock.monotonic(), clock.time()
        seconds, micros = _ask(line, clock, lambda client: client.time())
        took = clock.monotonic() - sent
    except StoreError as exc:
        return Finding("redis-clock", "note", _short(exc))
    return offset(wall + took / 2 - (int(seconds) + int(micros) / 1e6), took)


def _forget(line: Line, keys: Keys, clock: Clock, tried: Sequence[str]) -> None:
    with suppress(StoreError):
        for key in {key for name in tried for key in keys.of(name)}:
            # A user of leases may not delete, but may let expire.
            _ask(line, clock, lambda client, key=key: client.pexpire(key, 1))  # type: ignore[misc]


def _ask(line: Line, clock: Clock, command: Callable[[Any], Any]) -> Any:
    return line.read(
        command, what="a look at its settings", until=clock.monotonic() + _READ_SECONDS
    )


def _short(error: StoreError) -> str:
    return str(error).partition(": ")[2].partition(";")[0] or str(error)


def _is_here(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
