"""The conformance suite of `Store`: every sentence of the contract is a test.

Needs pytest and hypothesis.  Who writes a store subclasses `StoreTests` in a test module,
states what the place is expected to offer, and overrides the fixture `place`:

    class TestMyStore(StoreTests):
        capabilities = Capabilities(create=True, update=True, conditional_delete=False, files=False)

        @pytest.fixture
        def place(self, tmp_path):
            return MyPlace(tmp_path)

Tests of what the place does not offer are left out, and those of its refusal come in.  A test
that is overridden has to say why the place cannot keep what it claims (`overrides_contract`).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, TypeVar

import pytest

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    TapstoreError,
    UnsupportedOperationError,
)
from tapstore.keys import TEMP_MARK
from tapstore.testing.place import Place, race
from tapstore.testing.store_model import compare_with_memory
from tapstore.types import CREATE, OVERWRITE, Capabilities, ObjectInfo, Update

F = TypeVar("F", bound=Callable[..., Any])


def needs(**capabilities: bool) -> Callable[[F], F]:
    """Mark a test as one for places that are expected to have these capabilities."""

    def mark(test: F) -> F:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


def overrides_contract(*, reason: str) -> Callable[[F], F]:
    """Mark a test that stands in for one of the suite, because the place promises less."""

    def mark(test: F) -> F:
        test.overrides_contract = reason  # type: ignore[attr-defined]
        return test

    return mark


BAD_KEYS = ["", "/a", "../a", "a/../b", "a//b", "a/", "a\0b", "CON", TEMP_MARK + "x"]

KEY_CALLS: dict[str, Callable[[Store, str], object]] = {
    "get": lambda store, key: store.get(key),
    "get_if_changed": lambda store, key: store.get_if_changed(key, "1"),
    "head": lambda store, key: store.head(key),
    "create": lambda store, key: store.put(key, b"x", CREATE),
    "overwrite": lambda store, key: store.put(key, b"x", OVERWRITE),
    "update": lambda store, key: store.put(key, b"x", Update("1")),
    "delete": lambda store, key: store.delete(key),
    "upload": lambda store, key: store.upload(key, io.BytesIO(b"x")),
    "open": lambda store, key: store.open(key).__enter__(),
}


class StoreTests:
    """Subclass it; see the module."""

    capabilities: ClassVar[Capabilities]

    clock_resolution_seconds: ClassVar[float] = 0.05
    """How coarse the times are that the place gives to objects."""

    times_agree_within_seconds: ClassVar[float] = 0.0
    """How far the time that a write returns may be from the one that the object then has."""

    many: ClassVar[int] = 1100
    """More keys than a page of a listing holds."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in vars(cls).items():
            ours = name.startswith("test_") and hasattr(StoreTests, name)
            if ours and not getattr(test, "overrides_contract", ""):
                raise TypeError(f"{cls.__name__}.{name} needs @overrides_contract(reason=…)")
        if not hasattr(cls, "capabilities"):
            # A class between this one and those that state them.
            return
        for name in dir(cls):
            for capability, wanted in getattr(getattr(cls, name), "needs", {}).items():
                if getattr(cls.capabilities, capability) is not wanted:
                    setattr(cls, name, None)

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError("override the fixture `place`")

    @pytest.fixture
    def store(self, place: Place) -> Iterator[Store]:
        with place.open() as store:
            yield store

    @pytest.fixture
    def other(self, place: Place) -> Iterator[Store]:
        """A second client of the same place."""
        with place.open() as store:
            yield store

    # What it says of itself

    def test_the_place_offers_what_it_is_expected_to(self, store: Store) -> None:
        assert store.capabilities == self.capabilities

    def test_the_url_is_for_people(self, store: Store) -> None:
        assert "://" in store.url

    def test_closing_twice_is_no_error(self, place: Place) -> None:
        store = place.open()
        store.close()
        store.close()

    # Keys

    @pytest.mark.parametrize("call", KEY_CALLS)
    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_bad_key_is_refused_before_anything_is_touched(
        self, store: Store, place: Place, key: str, call: str
    ) -> None:
        before = place.names()
        with pytest.raises(InvalidKeyError):
            KEY_CALLS[call](store, key)
        assert place.names() == before

    @pytest.mark.parametrize("key", ["a", "a/b/c", ".tap/Tapfile", "日本/語.md", "$(touch x); rm"])
    def test_an_ordinary_key_names_what_the_place_has(
        self, store: Store, place: Place, key: str
    ) -> None:
        store.put(key, b"data")
        assert place.read(key) == b"data"

    def test_what_others_put_there_is_read(self, store: Store, place: Place) -> None:
        place.write("a/b", b"from elsewhere")
        assert store.get("a/b").data == b"from elsewhere"

    # CREATE

    def test_second_create_loses_with_already_exists(self, store: Store, other: Store) -> None:
        store.put("a", b"first")
        with pytest.raises(AlreadyExistsError, match="a'"):
            other.put("a", b"second")

    def test_a_losing_create_changes_nothing(
        self, store: Store, other: Store, place: Place
    ) -> None:
        before = store.put("a", b"first")
        with pytest.raises(AlreadyExistsError):
            other.put("a", b"second")
        assert (place.read("a"), store.head("a").version) == (b"first", before.version)

    @pytest.mark.parametrize(("first", "second"), [(b"", b"x"), (b"x", b"")])
    def test_an_empty_create_is_a_create_like_any_other(
        self, store: Store, first: bytes, second: bytes
    ) -> None:
        store.put("a", first)
        with pytest.raises(AlreadyExistsError):
            store.put("a", second)
        assert store.get("a").data == first

    def test_create_is_what_put_does_by_default(self, store: Store) -> None:
        store.put("a", b"first")
        with pytest.raises(AlreadyExistsError):
            store.put("a", b"second")

    @pytest.mark.parametrize("wrong", ["overwrite", "create", None, True])
    def test_what_is_no_put_mode_is_refused(self, store: Store, wrong: object) -> None:
        with pytest.raises(TypeError, match="mode"):
            store.put("a", b"x", wrong)  # type: ignore[arg-type]

    def test_of_many_concurrent_creates_exactly_one_wins(
        self, store: Store, other: Store, place: Place
    ) -> None:
        for number in range(8):
            key = f"race/{number}"
            payloads = [b"%03d" % who * 99 for who in range(32)]
            results = race(
                [
                    partial(client.put, key, payload)
                    for client, payload in zip([store, other] * 16, payloads, strict=True)
                ]
            )
            winners = [
                payload
                for payload, result in zip(payloads, results, strict=True)
                if not isinstance(result, TapstoreError)
            ]
            assert [place.read(key)] == winners
            losers = [result for result in results if isinstance(result, TapstoreError)]
            assert all(isinstance(loser, AlreadyExistsError) for loser in losers)

    def test_many_threads_may_use_one_client(self, store: Store, place: Place) -> None:
        race([partial(store.put, f"t/{n}", b"%d" % n) for n in range(16)])
        assert [place.read(f"t/{n}") for n in range(16)] == [b"%d" % n for n in range(16)]

    # OVERWRITE

    def test_overwrite_replaces_what_is_there(self, store: Store, place: Place) -> None:
        store.put("a", b"old and longer")
        store.put("a", b"new", OVERWRITE)
        assert place.read("a") == b"new"

    def test_overwrite_makes_what_is_not_there(self, store: Store, place: Place) -> None:
        store.put("a/b", b"new", OVERWRITE)
        assert place.read("a/b") == b"new"

    def test_a_reader_sees_the_old_bytes_or_the_new_ones_whole(
        self, store: Store, other: Store
    ) -> None:
        contents = [bytes([letter]) * size for letter, size in zip(b"abcd", (1, 70_000) * 2)]  # noqa: B905
        store.put("a", contents[0])
        done = threading.Event()

        def read() -> int:
            rounds = 0
            while not done.is_set() or rounds == 0:
                assert other.get("a").data in contents
                rounds += 1
            return rounds

        with ThreadPoolExecutor(1) as pool:
            reads = pool.submit(read)
            try:
                for number in range(60):
                    store.put("a", contents[number % 4], OVERWRITE)
            finally:
                done.set()
            assert reads.result() > 0

    # Update

    @needs(update=True)
    def test_update_writes_if_the_version_is_the_present_one(
        self, store: Store, other: Store, place: Place
    ) -> None:
        version = store.put("a", b"one").version
        other.put("a", b"two", Update(version))
        assert place.read("a") == b"two"

    @needs(update=True)
    def test_update_of_a_stale_version_is_a_conflict(
        self, store: Store, other: Store, place: Place
    ) -> None:
        version = store.put("a", b"one").version
        other.put("a", b"two", OVERWRITE)
        with pytest.raises(ConflictError, match="a'"):
            store.put("a", b"three", Update(version))
        assert place.read("a") == b"two"

    @needs(update=True)
    def test_update_of_what_is_gone_is_a_conflict(self, store: Store, place: Place) -> None:
        version = store.put("a", b"one").version
        store.delete("a")
        with pytest.raises(ConflictError):
            store.put("a", b"two", Update(version))
        assert place.read("a") is None

    @needs(update=True)
    def test_no_concurrent_update_is_lost(self, store: Store, other: Store, place: Place) -> None:
        store.put("n", b"")

        def add(client: Store, mine: bytes) -> None:
            while True:
                found = client.get("n")
                if mine in found.data.split():
                    return
                try:
                    client.put("n", found.data + mine + b"\n", Update(found.info.version))
                # Some places can't tell who loses a race whether it did: the next look does.
                except (ConflictError, OutcomeUnknownError):
                    continue

        names = [b"%02d" % number for number in range(16)]
        results = race(
            [
                partial(add, client, name)
                for client, name in zip([store, other] * 8, names, strict=True)
            ]
        )
        assert results == [None] * 16
        assert sorted((place.read("n") or b"").split()) == names

    @needs(update=False)
    def test_update_is_refused_by_name(self, store: Store, place: Place) -> None:
        version = store.put("a", b"one").version
        with pytest.raises(UnsupportedOperationError, match="'update'"):
            store.put("a", b"two", Update(version))
        assert place.read("a") == b"one"

    # Versions and times

    def test_put_returns_what_head_says(self, store: Store, other: Store) -> None:
        result = store.put("a", b"data")
        info = other.head("a")
        assert info == ObjectInfo(key="a", size=4, version=result.version, modified=info.modified)
        assert abs(info.modified - result.modified) <= self.times_agree_within_seconds

    def test_the_version_changes_with_each_write(self, store: Store) -> None:
        first = store.put("a", b"same").version
        assert store.put("a", b"same", OVERWRITE).version != first

    def test_get_tells_the_version_of_what_it_read(self, store: Store) -> None:
        result = store.put("a", b"data")
        found = store.get("a", start=1, end=2)
        assert (found.info.version, found.info.size) == (result.version, 4)

    def test_what_has_not_changed_is_not_read_again(self, store: Store, other: Store) -> None:
        version = other.put("a", b"1").version
        assert store.get_if_changed("a", version) is None

    def test_what_has_changed_is_read(self, store: Store, other: Store) -> None:
        version = store.put("a", b"1").version
        other.put("a", b"2", OVERWRITE)
        found = store.get_if_changed("a", version)
        assert found == store.get("a")

    def test_now_goes_with_the_times_that_writes_get(self, store: Store, other: Store) -> None:
        before = store.put("a", b"1").modified
        now = other.now()
        after = store.put("b", b"2").modified
        slack = self.clock_resolution_seconds
        assert before - slack <= now <= after + slack

    def test_now_leaves_nothing_behind(self, store: Store, place: Place) -> None:
        store.put("a", b"")
        store.now()
        assert place.names() == {"a"}

    # get, head, open

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [(0, None, b"0123456789"), (3, None, b"3456789"), (2, 5, b"234"), (0, 0, b""),
         (8, 99, b"89"), (10, None, b""), (50, 60, b"")],
    )  # fmt: skip
    def test_a_range_is_cut_at_the_end(
        self, store: Store, start: int, end: int | None, expected: bytes
    ) -> None:
        store.put("a", b"0123456789")
        assert store.get("a", start=start, end=end).data == expected

    @pytest.mark.parametrize(("start", "end"), [(-1, None), (3, 2)])
    def test_an_impossible_range_is_refused(
        self, store: Store, start: int, end: int | None
    ) -> None:
        store.put("a", b"0123456789")
        with pytest.raises(ValueError, match="range"):
            store.get("a", start=start, end=end)

    @pytest.mark.parametrize("call", ["get", "get_if_changed", "head", "open"])
    @pytest.mark.parametrize("key", ["missing", "no/such/folder"])
    def test_what_is_missing_is_not_found(self, store: Store, key: str, call: str) -> None:
        with pytest.raises(NotFoundError, match=key):
            KEY_CALLS[call](store, key)

    def test_a_stream_begins_where_it_is_asked_to(self, store: Store) -> None:
        store.put("a", b"0123456789")
        with store.open("a", start=7) as stream:
            assert stream.read() == b"789"

    def test_a_stream_stays_with_one_version(self, store: Store, other: Store) -> None:
        store.put("a", b"a" * 100_000)
        with store.open("a") as stream:
            begun = stream.read(10)
            other.put("a", b"b" * 100_000, OVERWRITE)
            assert begun + stream.read() == b"a" * 100_000

    # delete

    def test_delete_removes(self, store: Store, place: Place) -> None:
        store.put("a/b", b"x")
        store.delete("a/b")
        assert place.read("a/b") is None

    def test_dropping_folders_loses_nothing_and_they_can_be_written_into_again(
        self, store: Store, other: Store
    ) -> None:
        for key in ("q/new/a/b/1", "q/new/a/c/2", "q/other/3"):
            store.put(key, b"x")
        for key in ("q/new/a/b/1", "q/other/3"):
            store.delete(key)
        for key in ("q/new/a/b/1", "q/new/a/c/2", "q/new/no/such/4", "q/other/3"):
            store.drop_empty_folders(key, below="q/new/")
        assert [info.key for info in other.list("q/")] == ["q/new/a/c/2"]
        store.put("q/new/a/b/1", b"again")
        other.put("q/new/no/such/4", b"first")
        assert other.get("q/new/a/b/1").data == b"again"
        assert store.get("q/new/no/such/4").data == b"first"

    @pytest.mark.parametrize("key", ["missing", "no/such/folder"])
    def test_deleting_what_is_missing_is_no_error(self, store: Store, key: str) -> None:
        store.delete(key)

    def test_a_name_is_free_after_delete(self, store: Store, other: Store) -> None:
        store.put("a", b"one")
        store.delete("a")
        other.put("a", b"two")
        assert store.get("a").data == b"two"

    @needs(conditional_delete=True)
    def test_delete_compares_the_version(self, store: Store, other: Store, place: Place) -> None:
        stale = store.put("a", b"one").version
        present = other.put("a", b"two", OVERWRITE).version
        with pytest.raises(ConflictError):
            store.delete("a", version=stale)
        assert place.read("a") == b"two"
        store.delete("a", version=present)
        assert place.read("a") is None

    @needs(conditional_delete=True)
    def test_deleting_a_version_of_what_is_missing_is_no_error(self, store: Store) -> None:
        version = store.put("a", b"one").version
        store.delete("a")
        store.delete("a", version=version)

    @needs(conditional_delete=False)
    def test_conditional_delete_is_refused_by_name(self, store: Store, place: Place) -> None:
        version = store.put("a", b"one").version
        with pytest.raises(UnsupportedOperationError, match="'conditional_delete'"):
            store.delete("a", version=version)
        assert place.read("a") == b"one"

    # list, children

    KEYS: ClassVar[list[str]] = [
        "B", "a-b", "a.b", "a/b", "a/c/d", "a/c.d", "a0", "aa/x", "b", "é", "\uffee", "𐀀",
    ]  # fmt: skip

    @pytest.fixture
    def filled(self, place: Place) -> None:
        for key in reversed(self.KEYS):
            place.write(key, b"x")

    @pytest.mark.usefixtures("filled")
    def test_a_listing_is_sorted_by_the_bytes_of_the_whole_key(self, store: Store) -> None:
        assert [info.key for info in store.list()] == sorted(self.KEYS, key=str.encode)

    @pytest.mark.usefixtures("filled")
    @pytest.mark.parametrize(
        "prefix", ["", "a", "a.", "a/", "a/c", "a/c/", "a/c/d", "é", "con", "b/"]
    )
    def test_a_listing_has_the_keys_with_the_prefix(self, store: Store, prefix: str) -> None:
        expected = [key for key in sorted(self.KEYS, key=str.encode) if key.startswith(prefix)]
        assert [info.key for info in store.list(prefix)] == expected

    @pytest.mark.usefixtures("filled")
    @pytest.mark.parametrize(
        "after", ["a", "a.b", "a/b", "a/bb", "a/c", "a/c/", "a/c/d", "zz", "𐀀"]
    )
    @pytest.mark.parametrize("prefix", ["", "a/", "a/c/"])
    def test_a_listing_starts_after(self, store: Store, prefix: str, after: str) -> None:
        expected = [
            key
            for key in sorted(self.KEYS, key=str.encode)
            if key.startswith(prefix) and key.encode() > after.encode()
        ]
        assert [info.key for info in store.list(prefix, start_after=after)] == expected

    def test_a_listing_says_what_head_says(self, store: Store, other: Store) -> None:
        store.put("a/b", b"data")
        assert list(other.list()) == [store.head("a/b")]

    def test_an_empty_place_lists_nothing(self, store: Store) -> None:
        assert (list(store.list()), list(store.children())) == ([], [])

    def test_a_listing_of_many_pages_is_complete(self, store: Store, place: Place) -> None:
        keys = [f"k/{number:05}" for number in range(self.many)]
        for key in keys:
            place.write(key, b"")
        assert [info.key for info in store.list("k/")] == keys

    def test_what_vanishes_during_a_listing_is_no_error(
        self, store: Store, other: Store, place: Place
    ) -> None:
        for number in range(20):
            place.write(f"{number // 4}/{number}", b"")
        listing = store.list()
        next(listing)
        for number in range(20):
            other.delete(f"{number // 4}/{number}")
        assert len(list(listing)) < 20

    @pytest.mark.parametrize("prefix", ["/a", "../", "a//b"])
    def test_a_bad_prefix_is_refused_at_once(self, store: Store, prefix: str) -> None:
        with pytest.raises(InvalidKeyError):
            store.list(prefix)

    @pytest.mark.usefixtures("filled")
    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [("", ["B", "a-b", "a.b", "a/", "a0", "aa/", "b", "é", "\uffee", "𐀀"]),
         ("a/", ["b", "c.d", "c/"]), ("a/c/", ["d"]), ("none/", [])],
    )  # fmt: skip
    def test_children_are_the_names_directly_below(
        self, store: Store, prefix: str, expected: list[str]
    ) -> None:
        assert list(store.children(prefix)) == expected

    def test_a_folder_without_objects_is_no_child(self, store: Store) -> None:
        store.put("a/b/c", b"")
        store.delete("a/b/c")
        assert list(store.children()) == []

    @pytest.mark.parametrize("prefix", ["a", "/", "a//"])
    def test_children_of_what_is_no_folder_are_refused(self, store: Store, prefix: str) -> None:
        with pytest.raises(InvalidKeyError):
            store.children(prefix)

    # upload

    @pytest.mark.parametrize("size", [0, 1, 3_000_000])
    def test_an_upload_stores_the_whole_stream(self, store: Store, place: Place, size: int) -> None:
        data = (b"0123456789" * (size // 10 + 1))[:size]
        result = store.upload("a/b", io.BytesIO(data))
        assert place.read("a/b") == data
        assert store.head("a/b").version == result.version

    def test_an_upload_creates_by_default(self, store: Store, place: Place) -> None:
        store.put("a", b"first")
        with pytest.raises(AlreadyExistsError):
            store.upload("a", io.BytesIO(b"second"))
        assert place.read("a") == b"first"

    def test_an_upload_may_overwrite(self, store: Store, place: Place) -> None:
        store.put("a", b"first")
        store.upload("a", io.BytesIO(b"second"), OVERWRITE)
        assert place.read("a") == b"second"

    @pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
    def test_an_upload_whose_source_breaks_leaves_nothing(
        self, store: Store, place: Place, mode: Any
    ) -> None:
        place.write("b", b"old")
        key = "a" if mode is CREATE else "b"
        before = place.names()
        with pytest.raises(RuntimeError, match="the source broke"):
            store.upload(key, _Breaking(), mode)
        assert (place.names(), place.read("b")) == (before, b"old")

    def test_an_unfinished_upload_is_not_seen(self, store: Store, other: Store) -> None:
        seen: list[object] = []

        def look() -> None:
            seen.append([info.key for info in other.list()])
            seen.append(list(other.children()))
            with pytest.raises(NotFoundError):
                other.get("a")

        store.upload("a", _Watched(b"x" * 2_500_000, look))
        assert seen
        assert all(found == [] for found in seen)

    # Files

    @needs(files=True)
    def test_the_local_path_is_the_file_itself(self, store: Store) -> None:
        store.put("a/b", b"data")
        with open(store.local_path("a/b"), "rb") as file:
            assert file.read() == b"data"

    @needs(files=False)
    def test_a_local_path_is_refused_by_name(self, store: Store) -> None:
        with pytest.raises(UnsupportedOperationError, match="'files'"):
            store.local_path("a")

    def test_a_sweep_spares_what_is_stored(self, store: Store, place: Place) -> None:
        store.put("a/b", b"data")
        assert store.sweep(0) == ()
        assert place.names() == {"a/b"}

    # All of it

    def test_every_sequence_of_calls_is_answered_as_by_the_model(
        self, store: Store, other: Store
    ) -> None:
        compare_with_memory([store, other])


class _Breaking(io.BytesIO):
    """A source that gives two million bytes, in pieces of its own size, and then fails."""

    left = 2

    def read(self, size: int | None = -1) -> bytes:
        if not self.left:
            raise RuntimeError("the source broke")
        self.left -= 1
        return b"x" * min(1_000_000, size if size and size > 0 else 1_000_000)


class _Watched(io.BytesIO):
    """A source that calls `look` whenever more of it is read."""

    def __init__(self, data: bytes, look: Callable[[], None]) -> None:
        super().__init__(data)
        self._look = look

    def read(self, size: int | None = -1) -> bytes:
        self._look()
        return super().read(size)
