"""Hand-offs: what a message costs, and what the next one costs when many wait.

Ways take turns, block by block, as in `uncontended`.  How many wait is made by writing the files
(or objects) of the queue directly: the queue itself would take minutes for it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import msgspec

import tapstore
from benchmarks.places import Place
from benchmarks.queues import DRAFT, ORIGINAL, OURS, QUEUES, Original, Ours, Queue
from benchmarks.stats import Spread, spread
from tapstore.handoffs import message as messages
from tapstore.handoffs import names
from tapstore.handoffs.mailbox import Mailbox
from tapstore.handoffs.message import Message
from tapstore.handoffs.names import Stamp
from tapstore.handoffs.queue import opening
from tapstore.handoffs.queue.places import Places
from tests.servers import proxy, seaweedfs
from tests.servers.process import ServerMissingError
from tests.servers.s3 import S3Server

BLOCK = 50
CYCLE, SEND, RECEIVE = "send, next, done", "send", "next, done"

BEGIN = 1_800_000_000
"""When the first of those was queued that wait; before what is sent meanwhile sorts."""

ROUND_TRIP_MS = 20
_THREADS = 16


class Rate(msgspec.Struct, kw_only=True):
    """One thing done with one queue in one place."""

    place: str
    queue: str
    name: str
    block_seconds: list[float] = []
    """Per message, mean of each block."""

    @property
    def seconds(self) -> Spread:
        return spread(self.block_seconds)


class Depth(msgspec.Struct, kw_only=True):
    """`next` with so many waiting, and as many completed."""

    place: str
    queue: str
    waiting: int
    call_seconds: list[float]
    requests: float | None = None
    """Per call, as a server saw them."""

    @property
    def seconds(self) -> Spread:
        return spread(self.call_seconds)


def rates(place: Place, *, rounds: int, say: Callable[[str], None]) -> list[Rate]:
    """What messages cost in a folder."""
    say(f"{place.name}: hand-offs")
    queues: dict[str, Queue] = {name: make(place) for name, make in QUEUES.items()}
    found = {
        (queue, name): Rate(place=place.name, queue=queue, name=name)
        for queue in queues
        for name in (CYCLE, SEND, RECEIVE)
    }
    order = list(queues)
    for number in range(rounds):
        for key in order[number % len(order) :] + order[: number % len(order)]:
            queue = queues[key]

            for name, steps in (
                (CYCLE, (queue.send, queue.next, queue.done)),
                (SEND, (queue.send,)),
                (RECEIVE, (queue.next, queue.done)),
            ):
                started = time.perf_counter()
                for _ in range(BLOCK):
                    for step in steps:
                        step()
                elapsed = time.perf_counter() - started
                found[key, name].block_seconds.append(elapsed / BLOCK)
    return list(found.values())


def depths(
    place: Place, counts: Sequence[int], *, calls: int, say: Callable[[str], None]
) -> list[Depth]:
    """What `next` costs in a folder in which ever more waits."""
    ours, original = Ours(place), Original(place)
    written = 0
    found = []
    for count in counts:
        say(f"{place.name}: {count:,} hand-offs wait")
        for key, data in islice(_files(), written, count):
            path = Path(ours.session.store.local_path(key))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            folder = "new" if "/new/" in key else "completed"
            (original.folder / folder / path.name).write_bytes(data)
        written = count
        os.sync()
        for name, queue in ((ORIGINAL, original), (OURS, ours)):
            found.append(Depth(place=place.name, queue=name, waiting=count // 2,
                               call_seconds=list(_next_seconds(queue, calls))))  # fmt: skip
    return found


def _next_seconds(queue: Ours | Original | Mailbox, calls: int) -> Iterator[float]:
    for _ in range(calls):
        started = time.perf_counter()
        assert queue.next() is not None
        yield time.perf_counter() - started
        queue.done()


def far(
    counts: Sequence[int], *, calls: int, say: Callable[[str], None]
) -> tuple[list[Rate], list[Depth]]:
    """The same on an S3 server at a distance, with the requests counted."""
    try:
        with seaweedfs.server() as s3:
            return _far(s3, counts, calls, say)
    except ServerMissingError as missing:
        say(str(missing))
        return [], []


def _far(
    s3: S3Server, counts: Sequence[int], calls: int, say: Callable[[str], None]
) -> tuple[list[Rate], list[Depth]]:
    place = f"SeaweedFS, {ROUND_TRIP_MS} ms"
    bucket, prefix = s3.new_bucket(), secrets.token_hex(4)
    url = f"s3://{bucket}/{prefix}"
    tapstore.create(url, roles=["coder", "reviewer"], storage_options=s3.storage_options).close()
    found_rates: list[Rate] = []
    found_depths: list[Depth] = []
    written = 0
    with (
        s3.client(max_pool_connections=_THREADS) as client,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for count in counts:
            say(f"{place}: {count:,} hand-offs wait")

            def put(item: tuple[str, bytes]) -> None:
                client.put_object(Bucket=bucket, Key=f"{prefix}/{item[0]}", Body=item[1])

            list(pool.map(put, islice(_files(), written, count)))
            written = count
            with proxy.http(s3.port) as link:
                near = s3.at(link.endpoint)
                session = tapstore.open(url, storage_options=near.storage_options)
                receiver = opening.open(session, role="reviewer", agent="r")
                receiver.next()
                receiver.done()
                link.requests.clear()
                requests = 0
                for _ in range(calls):
                    before = len(link.requests)
                    receiver.next()
                    requests += len(link.requests) - before
                    receiver.done()
                session.close()
            with proxy.process(s3.port, delay_seconds=ROUND_TRIP_MS / 2000) as port:
                near = s3.at(f"http://127.0.0.1:{port}")
                session = tapstore.open(url, storage_options=near.storage_options)
                receiver = opening.open(session, role="reviewer", agent="r")
                receiver.next()
                receiver.done()
                found_depths.append(Depth(
                    place=place, queue=OURS, waiting=count // 2,
                    call_seconds=list(_next_seconds(receiver, calls)),
                    requests=requests / calls,
                ))  # fmt: skip
                if count == counts[0]:
                    sender = opening.open(session, role="coder", agent="c")
                    found_rates += _far_rates(place, sender, receiver, calls)
                session.close()
    return found_rates, found_depths


def _far_rates(place: str, sender: Mailbox, receiver: Mailbox, calls: int) -> list[Rate]:
    sent, received = [], []
    for _ in range(calls):
        started = time.perf_counter()
        sender.send(DRAFT)
        sent.append(time.perf_counter() - started)
        started = time.perf_counter()
        receiver.next()
        receiver.done()
        received.append(time.perf_counter() - started)
    return [
        Rate(place=place, queue=OURS, name=SEND, block_seconds=sent),
        Rate(place=place, queue=OURS, name=RECEIVE, block_seconds=received),
    ]


def _files() -> Iterator[tuple[str, bytes]]:
    """Keys and bytes, in turn of a message that waits and of one that is completed.

    Five a second, of three priorities.
    """
    reviewer = Places("reviewer")
    number = 0
    while True:
        for waits in (True, False):
            number += 1
            priority = (10, 50, 90)[number // 2 % 3]
            stamp = Stamp(BEGIN + number // 10, number)
            name = names.name_for(priority, stamp, "coder", ("reviewer",))
            at = BEGIN + number // 10
            headers = {
                "id": name.id, "from": "coder", "to": "reviewer", "priority": f"{priority:02}",
                "type": "note", "message": "m", "created_at": messages.write_time(at),
            }  # fmt: skip
            copy = messages.deliver(Message(headers, "body\n"), recipient="reviewer", at=at)
            if waits:
                yield reviewer.waiting(str(name)), messages.render(copy)
            else:
                done = messages.complete(messages.accept(copy, at=at), at=at)
                yield reviewer.completed(str(name)), messages.render(done)
