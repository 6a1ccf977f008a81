"""What one client writes the other sees, although it looked before and remembers what it saw."""

import time

import pytest

SECONDS = 3
"""Linux remembers an absence for at least 30 s, and the size and time of a file for 3."""


@pytest.fixture
def stores(pythons, place):
    for python in pythons:
        python.run("from tapstore.stores.local import LocalStore")
        python.run("from tapstore.types import CREATE, OVERWRITE")
        python.run("from tapstore.errors import NotFoundError")
        python.run(f"store = LocalStore({place!r})")
        python.run(
            "def missing(call, *args):\n"
            "    try: return not call(*args)\n"
            "    except NotFoundError: return True\n"
        )
    return pythons


def test_a_file_that_was_missing_is_seen_at_once(stores):
    writer, reader = stores
    writer.run("store.put('a/other', b'')")
    assert reader.ask("missing(store.get, 'a/b')")
    writer.run("store.put('a/b', b'data')")
    assert reader.ask("store.get('a/b').data.decode()") == "data"


@pytest.mark.parametrize("call", ["get", "head"])
def test_a_folder_that_was_missing_is_seen_at_once(stores, call):
    writer, reader = stores
    assert reader.ask(f"missing(store.{call}, 'a/b/c')")
    writer.run("store.put('a/b/c', b'data')")
    assert not reader.ask(f"missing(store.{call}, 'a/b/c')")


def test_a_folder_that_was_missing_is_listed_at_once(stores):
    writer, reader = stores
    assert reader.ask("list(store.children('a/b/'))") == []
    writer.run("store.put('a/b/c', b'data')")
    assert reader.ask("list(store.children('a/b/'))") == ["c"]


@pytest.mark.parametrize("call", ["store.get('a').data.decode()", "str(store.head('a').size)"])
def test_what_was_overwritten_is_seen_at_once(stores, call):
    writer, reader = stores
    writer.run("store.put('a', b'1')")
    assert reader.ask(call) == "1"
    writer.run("store.put('a', b'2' * 22, OVERWRITE)")
    assert reader.ask(call) in ("2" * 22, "22")


@pytest.mark.parametrize("call", ["get", "head"])
def test_what_was_deleted_is_gone_at_once(stores, call):
    writer, reader = stores
    writer.run("store.put('a', b'1')")
    assert not reader.ask(f"missing(store.{call}, 'a')")
    writer.run("store.delete('a')")
    assert reader.ask(f"missing(store.{call}, 'a')")


def test_a_change_ends_a_wait_on_the_other_client(pythons, place):
    first, second = pythons
    for python in pythons:
        python.run("import tapstore, time")
    first.run(f"session = tapstore.create({place!r}, phase='start')")
    second.run(f"session = tapstore.open({place!r})")
    for waiter, changer, phase in ((first, second, "one"), (second, first, "two")):
        waiter.begin(f"session.wait_for(phase={phase!r}, timeout=60).current_phase")
        began = time.monotonic()
        changer.run(f"session.set_phase({phase!r})")
        assert waiter.answer() == phase
        assert time.monotonic() - began < SECONDS
