"""One agent and a server far away: S3 and Redis behind a link with a delay.

What takes turns and how blocks are compared is as in `uncontended`.  The proxy that delays runs
in a process of its own and does nothing but wait; real links also lose and reorder, which this
one does not.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import redis

import tapstore
from benchmarks.stats import Spread, spread
from benchmarks.ways import ROLES, first_document
from tapstore.sessions.session import Session
from tests.servers import moto, proxy, radosgw, seaweedfs, valkey
from tests.servers.process import ServerMissingError
from tests.servers.s3 import S3Server

ROUND_TRIPS_MS = (1, 20, 60)
BLOCK = 10

RAW = "boto3, GET and PUT"
PHASE = "tapstore, a change of phase"
EDIT = "tapstore, an edit"
LOOK = "tapstore, a look"
LOCK = "tapstore, a lock in the bucket"
REDIS_PY = "redis-py, a lock"
REDIS_LOCK = "tapstore, a lock in Redis"

FLOORS = {PHASE: RAW, EDIT: RAW, LOOK: RAW, LOCK: RAW, REDIS_LOCK: REDIS_PY}

Call = Callable[[int], object]


class Far(msgspec.Struct, kw_only=True):
    """One thing done again and again, over one link to one server."""

    server: str
    round_trip_ms: int
    name: str
    block_seconds: list[float] = []
    """Per call, mean of each block."""

    requests: float | None = None
    """Per call, as the server saw them."""

    @property
    def seconds(self) -> Spread:
        return spread(self.block_seconds)


def ratios(far: list[Far], one: Far) -> Spread | None:
    """How many times as long as what it is held against, block by block."""
    floor = FLOORS.get(one.name)
    for other in far:
        if (other.server, other.round_trip_ms, other.name) == (
            one.server,
            one.round_trip_ms,
            floor,
        ):
            pairs = zip(one.block_seconds, other.block_seconds, strict=True)
            return spread([ours / theirs for ours, theirs in pairs])
    return None


def measure(*, rounds: int, round_trips: Sequence[int], say: Callable[[str], None]) -> list[Far]:
    """Measure on every server that is installed here."""
    far: list[Far] = []
    for name, start in (("moto", moto.server), ("SeaweedFS", seaweedfs.server),
                        ("radosgw", radosgw.server)):  # fmt: skip
        try:
            with start() as s3:
                counted = _requests(s3)
                for round_trip in round_trips:
                    say(f"{name}, round trip {round_trip} ms")
                    with proxy.process(s3.port, delay_seconds=round_trip / 2000) as port:
                        near = s3.at(f"http://127.0.0.1:{port}")
                        with _s3_calls(s3, near) as calls:
                            timed = _timed(name, round_trip, calls, rounds)
                    for one in timed:
                        one.requests = counted[one.name]
                    far += timed
        except ServerMissingError as missing:
            say(str(missing))
    with valkey.server() as server:
        for round_trip in round_trips:
            say(f"Valkey, round trip {round_trip} ms")
            with (
                proxy.process(server.port, delay_seconds=round_trip / 2000) as port,
                _redis_calls(port) as calls,
            ):
                far += _timed("Valkey", round_trip, calls, rounds)
    return far


def _timed(server: str, round_trip: int, calls: dict[str, Call], rounds: int) -> list[Far]:
    far = {name: Far(server=server, round_trip_ms=round_trip, name=name) for name in calls}
    names = list(calls)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            calls[name](-1)  # connections and caches are another one's
            started = time.perf_counter()
            for count in range(BLOCK):
                calls[name](number * BLOCK + count)
            far[name].block_seconds.append((time.perf_counter() - started) / BLOCK)
    return list(far.values())


def _requests(s3: S3Server) -> dict[str, float]:
    """How many requests each call makes when it is done again and again, with all that follows."""
    counted = {}
    with proxy.http(s3.port) as link, _s3_calls(s3, s3.at(link.endpoint)) as calls:
        for name, call in calls.items():
            call(-1)
            time.sleep(1)  # what follows behind the call before
            link.requests.clear()
            for count in range(BLOCK):
                call(count)
            time.sleep(1)
            counted[name] = len(link.requests) / BLOCK
    return counted


@contextmanager
def _s3_calls(s3: S3Server, near: S3Server) -> Iterator[dict[str, Call]]:
    bucket, name = s3.new_bucket(), secrets.token_hex(4)
    with ExitStack() as stack:
        session = stack.enter_context(_session(f"s3://{bucket}/{name}", near))
        data = session.state.peek().content
        client = stack.enter_context(near.client())
        client.put_object(Bucket=bucket, Key="raw", Body=data)

        def raw(_: int) -> None:
            found = client.get_object(Bucket=bucket, Key="raw")["Body"].read()
            client.put_object(Bucket=bucket, Key="raw", Body=found)

        def edit(number: int) -> None:
            session.edit(lambda document: document.update(count=number))

        def lock(_: int) -> None:
            with session.lock("gpu", ttl=30):
                pass

        yield {
            RAW: raw,
            PHASE: lambda number: session.set_phase(f"phase-{number % 2}"),
            EDIT: edit,
            LOOK: lambda _: session.phase,
            LOCK: lock,
        }


def _session(url: str, near: S3Server) -> Session:
    document = first_document()
    fields: dict[str, Any] = {"benchmark": document["artifacts"], "count": 0}
    return tapstore.create(
        url,
        roles=ROLES,
        phase="phase-0",
        tapfile_format="json",
        fields=fields,
        storage_options=near.storage_options,
    )


@contextmanager
def _redis_calls(port: int) -> Iterator[dict[str, Call]]:
    url = f"redis://127.0.0.1:{port}/0"
    with (
        redis.Redis.from_url(url) as client,
        tapstore.create(f"memory://{secrets.token_hex(8)}/s", roles=ROLES, locks=url) as session,
    ):

        def theirs(_: int) -> None:
            with client.lock("gpu", timeout=30):
                pass

        def ours(_: int) -> None:
            with session.lock("gpu", ttl=30):
                pass

        yield {REDIS_PY: theirs, REDIS_LOCK: ours}
