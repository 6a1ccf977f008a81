"""Contenders for a lease under every order of events that chance comes up with.

The actors are threads of which only one runs at a time: at each request to the store and each
sleep, a seeded scheduler decides who goes on and how much time has passed, and lets some of them
sleep for long or die.  What a holder believes is recorded and must never overlap.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from contextlib import suppress

from tapstore.abc import Clock, LockService, Store
from tapstore.errors import (
    ConflictError,
    LeaseLostError,
    LeaseUnavailableError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.faults import SimulatedCrash
from tapstore.types import CREATE, Owner

TTL = 10.0
NAME = "gpu-0"
TROUBLE = (OutcomeUnknownError, StoreError)

Opener = Callable[..., LockService]


class Actor:
    """One process.  It runs only between `resume` and its next request or sleep."""

    def __init__(self, number: int, world: World, body: Callable[[Actor], None]) -> None:
        self.number = number
        self.world = world
        self.wakes = 0.0
        self.dead = self.done = False
        self.failure: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(body,), daemon=True)
        self._thread.start()

    def _run(self, body: Callable[[Actor], None]) -> None:
        self._go.acquire()
        try:
            body(self)
        except SimulatedCrash:
            pass
        except BaseException as exc:
            self.failure = exc
        self.done = True
        self._back.release()

    def resume(self) -> None:
        self._go.release()
        self._back.acquire()

    def stop_here(self, seconds: float = 0.0) -> None:
        """Give way to others, for at least so long."""
        self.wakes = self.world.now + seconds
        self._back.release()
        self._go.acquire()
        if self.dead:
            raise SimulatedCrash


class World:
    """Time, who is there, and what each of them believed."""

    def __init__(self, seed: int, opener: Opener, *, trouble: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.opener = opener
        self.trouble = trouble
        self.late: list[Callable[[], object]] = []
        """Requests that are still under way."""

        self.now = 0.0
        self.pace = self.rng.choice((0.01, 0.1, 0.5))
        self.store = Written(MemoryStore(clock=_WorldClock(self, None)), self)
        self.actors: list[Actor] = []
        self.beliefs: list[tuple[float, float, int]] = []
        self.grants: list[int] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            alive = [actor for actor in self.actors if not actor.done]
            if not alive:
                break
            ready = [actor for actor in alive if actor.wakes <= self.now]
            if not ready:
                self.now = min(actor.wakes for actor in alive)
                continue
            if self.late and self.rng.random() < 0.1:
                self.late.pop(self.rng.randrange(len(self.late)))()
            actor = self.rng.choice(ready)
            chance = self.rng.random()
            if chance < 0.02:
                actor.wakes = self.now + self.rng.uniform(0, 4 * TTL)
            elif chance < 0.023:
                actor.dead = True
                actor.resume()
                self.add(contender)
            else:
                self.now += self.rng.choice((0.0, 0.001, self.pace))
                actor.resume()
            if actor.failure is not None:
                raise actor.failure
        for actor in self.actors:
            while not actor.done:
                actor.dead = True
                actor.resume()

    def add(self, body: Callable[[Actor], None]) -> None:
        self.actors.append(Actor(len(self.actors), self, body))


class _WorldClock(Clock):
    def __init__(self, world: World, actor: Actor | None) -> None:
        self._world = world
        self._actor = actor

    def time(self) -> float:
        return 1_700_000_000.0 + self._world.now

    def monotonic(self) -> float:
        return 100.0 * (self._actor.number if self._actor else 0) + self._world.now

    def sleep(self, seconds: float) -> None:
        assert self._actor is not None
        self._actor.stop_here(seconds)


class Written(WrapperStore):
    """Remembers what was written, when, in the order in which it took effect."""

    def __init__(self, inner: Store, world: World) -> None:
        super().__init__(inner)
        self._world = world
        self.history: list[tuple[float, bytes]] = []

    def put(self, key, data, mode=CREATE):
        result = self.inner.put(key, data, mode)
        self.history.append((self._world.now, data))
        return result


class SteppedStore(WrapperStore):
    """The store as one actor sees it: others may come in before and after each request.

    Where there is trouble, requests and replies get lost, come late, or are sent twice by a client
    that shows only what became of the second one.
    """

    def __init__(self, inner: Store, actor: Actor) -> None:
        super().__init__(inner)
        self._actor = actor

    def get(self, *args, **kwargs):
        self._actor.stop_here()
        if self._trouble() < 0.5:
            raise StoreError("the connection was refused")
        result = self.inner.get(*args, **kwargs)
        self._actor.stop_here()
        return result

    def put(self, *args, **kwargs):
        self._actor.stop_here()
        fate = self._trouble()
        if fate < 1:
            raise OutcomeUnknownError("the request was lost")
        if fate < 2:
            self._actor.world.late.append(lambda: attempt(self.inner, *args))
            raise OutcomeUnknownError("the request is under way")
        if fate < 3:
            raise StoreError("slow down")
        result = self.inner.put(*args, **kwargs)
        self._actor.stop_here()
        if fate < 4:
            raise OutcomeUnknownError("the reply was lost")
        if fate < 5:
            result = self.inner.put(*args, **kwargs)
            self._actor.stop_here()
        return result

    def _trouble(self) -> float:
        world = self._actor.world
        return world.rng.random() / world.trouble if world.trouble else math.inf

    def delete(self, *args, **kwargs):
        self._actor.stop_here()
        self.inner.delete(*args, **kwargs)

    def list(self, *args, **kwargs):
        self._actor.stop_here()
        return iter(list(self.inner.list(*args, **kwargs)))


def attempt(store: Store, *args) -> None:
    with suppress(ConflictError):
        store.put(*args)


def contender(actor: Actor) -> None:
    """Acquire, rely on it for some renewals, and release, over and over."""
    world, rng = actor.world, actor.world.rng
    clock = _WorldClock(world, actor)
    service = world.opener(
        SteppedStore(world.store, actor),
        "l",
        clock=clock,
        first_poll_seconds=0.5,
        longest_poll_seconds=3,
        rng=random.Random(rng.random()),
    )
    owner = Owner(agent=f"a{actor.number}", instance=str(actor.number))

    def believe(lease) -> float:
        until = lease.expires - clock.monotonic() + world.now
        world.beliefs.append((world.now, until, lease.generation))
        return until

    while True:
        try:
            lease = service.acquire(NAME, owner, ttl=TTL, wait=rng.choice((0, 5, 60, None)))
        except (LeaseUnavailableError, *TROUBLE):
            clock.sleep(rng.uniform(0, 5))
            continue
        world.grants.append(lease.generation)
        assert believe(lease) > world.now
        try:
            for _ in range(rng.choice((0, 0, 0, 1, 3))):
                clock.sleep(rng.uniform(0, TTL / 2))
                with suppress(*TROUBLE):
                    lease = service.renew(lease)
                    believe(lease)
        except LeaseLostError:
            continue
        # From here on it relies on nothing.
        world.beliefs[:] = [
            (start, min(until, world.now) if n == lease.generation else until, n)
            for start, until, n in world.beliefs
        ]
        with suppress(*TROUBLE):
            service.release(lease)
        if rng.random() < 0.3:
            clock.sleep(rng.uniform(0, TTL))


def play(seed: int, opener: Opener, *, steps: int = 1500, trouble: float = 0.0) -> World:
    world = World(seed, opener, trouble=trouble)
    for _ in range(world.rng.choice((2, 3, 4))):
        world.add(contender)
    world.run(steps)
    return world


def overlaps(beliefs: list[tuple[float, float, int]]) -> list[str]:
    found = []
    held = sorted(belief for belief in beliefs if belief[1] > belief[0])
    for index, (start, end, generation) in enumerate(held):
        for other_start, other_end, other in held[index + 1 :]:
            if other != generation and other_start < end:
                times = f"{start:.2f}-{end:.2f}, {other_start:.2f}-{other_end:.2f}"
                found.append(f"{generation} and {other}: {times}")
    return found
