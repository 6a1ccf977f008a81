"""Drives a store and `MemoryStore` with the same random calls and compares every answer.

Needs hypothesis.  Sequential only: what concurrent callers see is tested by races.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tapstore.abc import Store
from tapstore.errors import TapstoreError
from tapstore.stores.memory import MemoryStore
from tapstore.stores.prefix import PrefixStore
from tapstore.types import CREATE, OVERWRITE, PutMode, Update

# No name is also the folder of another: a file system cannot have that, an object store can.
_KEYS = st.sampled_from(
    ["a/b", "a/c/d", "a.b", "a-b", "A/B", "c", "d/e/f/g", "ü/é", "日本/語", "z𐀀", "z\uffee"]
)
_PREFIXES = st.sampled_from(["", "a", "a/", "a/c/", "d/e/f", "z", "nothing/", "A/B"])
_FOLDERS = st.sampled_from(["", "a/", "a/c/", "d/e/", "nothing/", "c/"])
_DATA = st.binary(max_size=40)
_MODES = st.sampled_from([CREATE, OVERWRITE])


def compare_with_memory(clients: list[Store], *, examples: int = 12, steps: int = 30) -> None:
    """Fail with the shortest sequence of calls whose answers differ.

    All `clients` look at the same place; each call goes through one of them.  Each example has
    a prefix of its own.
    """
    numbers = itertools.count()

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            prefix = f"example-{next(numbers)}"
            self.clients = [PrefixStore(client, prefix) for client in clients]
            self.model = MemoryStore()

        def same(self, which: int, call: Callable[[Store], object]) -> None:
            expected = _answer(call, self.model)
            actual = _answer(call, self.clients[which % len(self.clients)])
            assert actual == expected, f"the store answers {actual!r}, the model {expected!r}"

        def unique(self, data: bytes) -> bytes:
            # A store may take equal bytes for its own write, so conditional writes differ.
            return data + b"#%d" % next(numbers)

        @rule(which=st.integers(0, 3), key=_KEYS, data=_DATA)
        def create(self, which: int, key: str, data: bytes) -> None:
            data = self.unique(data)
            self.same(which, lambda store: bool(store.put(key, data, CREATE).version))

        @rule(which=st.integers(0, 3), key=_KEYS, data=_DATA)
        def overwrite(self, which: int, key: str, data: bytes) -> None:
            self.same(which, lambda store: bool(store.put(key, data, OVERWRITE).version))

        @rule(which=st.integers(0, 3), key=_KEYS, data=_DATA, mode=_MODES)
        def upload(self, which: int, key: str, data: bytes, mode: PutMode) -> None:
            data = self.unique(data)
            self.same(which, lambda s: bool(s.upload(key, io.BytesIO(data), mode).version))

        @rule(which=st.integers(0, 3), key=_KEYS)
        def delete(self, which: int, key: str) -> None:
            self.same(which, lambda store: store.delete(key))

        @rule(which=st.integers(0, 3), key=_KEYS, data=_DATA, stale=st.booleans())
        def update(self, which: int, key: str, data: bytes, stale: bool) -> None:
            data = self.unique(data)
            newer = self.unique(b"newer") if stale else None
            if clients[0].capabilities.update:
                self.same(which, lambda s: bool(s.put(key, data, _at(s, key, newer)).version))

        @rule(which=st.integers(0, 3), key=_KEYS, stale=st.booleans())
        def delete_version(self, which: int, key: str, stale: bool) -> None:
            newer = self.unique(b"newer") if stale else None
            if clients[0].capabilities.conditional_delete:
                self.same(which, lambda s: s.delete(key, version=_at(s, key, newer).version))

        @rule(which=st.integers(0, 3), key=_KEYS, start=st.integers(0, 50), end=st.integers(0, 50))
        def get(self, which: int, key: str, start: int, end: int) -> None:
            low, high = sorted((start, end))
            self.same(which, lambda store: store.get(key).data)
            self.same(which, lambda store: store.get(key, start=low, end=high).data)
            self.same(which, lambda store: store.head(key).size)

        @rule(which=st.integers(0, 3), key=_KEYS, start=st.integers(0, 50))
        def read(self, which: int, key: str, start: int) -> None:
            def call(store: Store) -> bytes:
                with store.open(key, start=start) as stream:
                    return stream.read()

            self.same(which, call)

        @rule(which=st.integers(0, 3), prefix=_PREFIXES, after=st.one_of(st.just(""), _KEYS))
        def list(self, which: int, prefix: str, after: str) -> None:
            self.same(
                which,
                lambda store: [(i.key, i.size) for i in store.list(prefix, start_after=after)],
            )

        @rule(which=st.integers(0, 3), folder=_FOLDERS)
        def children(self, which: int, folder: str) -> None:
            self.same(which, lambda store: [*store.children(folder)])

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def _answer(call: Callable[[Store], object], store: Store) -> object:
    try:
        return call(store)
    except TapstoreError as exc:
        return type(exc)


def _at(store: Store, key: str, newer: bytes | None) -> Update:
    """The present version, or with `newer` one that the object has no more."""
    version = store.head(key).version
    if newer is not None:
        store.put(key, newer, OVERWRITE)
    return Update(version)
