"""One store object in threads, after a fork, and in processes that race."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

import pytest
from s3_places import BucketPlace, connect

from tapstore.errors import AlreadyExistsError, ConflictError, OutcomeUnknownError
from tapstore.registry import open_store
from tapstore.testing.place import race
from tapstore.types import Update

WAIT_SECONDS = 60
SERVERS = ["moto_s3", "seaweedfs", "radosgw"]


@pytest.fixture
def place(moto_s3):
    return BucketPlace(moto_s3)


def in_child(action):
    """Run `action` in a forked child; its exit code, negative if it hung."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAIT_SECONDS)
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_store_that_was_used_before_a_fork_is_usable_on_both_sides(place):
    with place.open() as store:
        store.put("parent", b"1")
        assert in_child(lambda: store.put("child", store.get("parent").data)) == 0
        store.put("parent again", b"2")
        assert store.get("child").data == b"1"


def test_children_that_are_forked_while_threads_send_do_not_hang(place):
    with place.open() as store:
        stop = threading.Event()

        def send(number):
            while not stop.is_set():
                store.put(f"t/{number}/{os.urandom(4).hex()}", b"x")

        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            codes = [in_child(lambda n=n: store.put(f"child/{n}", b"x")) for n in range(5)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert codes == [0] * 5
        assert len(list(store.list("child/"))) == 5


def test_the_connection_of_the_parent_is_not_used_by_the_child(place):
    with place.open() as store:
        store.put("a", b"x")
        parents = store._connection._client.boto

        def look():
            store.get("a")
            assert store._connection._client.boto is not parents

        assert in_child(look) == 0


def write(url, server_options, number, results):
    with open_store(url, storage_options=server_options) as store:
        store.put(f"from/{number}", b"%d" % number)
        results.put(number)


def test_a_spawned_process_opens_its_own(place):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [
        context.Process(
            target=write, args=(place.url, place.server.storage_options, number, results)
        )
        for number in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(WAIT_SECONDS)
    assert [child.exitcode for child in children] == [0, 0]
    assert place.names() == {"from/0", "from/1"}


def test_threads_share_a_client(place):
    with place.open() as store:
        race([lambda n=n: store.put(f"t/{n}", b"x") for n in range(24)])
        clients = {id(store._connection._client)}
        race([lambda: clients.add(id(store._connection._client)) for _ in range(8)])
        assert len(clients) == 1
        assert len(place.names()) == 24


# Races of processes, through all that `registry.open_store` puts around the store


def contend(url, options, who, rounds, results):
    with open_store(url, storage_options=options) as store:
        won = []
        for number in range(rounds):
            try:
                store.put(f"race/{number}", b"%d" % who)
            except AlreadyExistsError:
                continue
            won.append(number)
        results.put(won)
        for step in range(rounds):
            mine = b"%d-%d" % (who, step)
            while True:
                found = store.get("counter")
                if mine in found.data.split():
                    break
                try:
                    store.put("counter", found.data + mine + b"\n", Update(found.info.version))
                except (ConflictError, OutcomeUnknownError):
                    continue


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("clients", "rounds"), [(4, 8), pytest.param(16, 200, marks=pytest.mark.soak)]
)
def test_of_processes_that_race_one_wins_and_no_update_is_lost(request, server, clients, rounds):
    place = BucketPlace(request.getfixturevalue(server))
    with connect(place.url, place.server) as store:
        store.put("counter", b"")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [
        context.Process(
            target=contend, args=(place.url, place.server.storage_options, who, rounds, results)
        )
        for who in range(clients)
    ]
    for child in children:
        child.start()
    told = [results.get(timeout=WAIT_SECONDS * 10) for _ in children]
    winners = sorted(number for won in told for number in won)
    for child in children:
        child.join(WAIT_SECONDS)
    assert [child.exitcode for child in children] == [0] * clients
    assert winners == list(range(rounds))
    names = [b"%d-%d" % (who, step) for who in range(clients) for step in range(rounds)]
    assert sorted(place.read("counter").split()) == sorted(names)
