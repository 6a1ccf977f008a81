"""Writers and readers of one commit log in every order, on a place that loses and delays requests.

Each run follows from its seed: which thread makes its next request, and what becomes of it.
"""

import errno
import random
import threading

import pytest

from tapstore.commitlog import CommitLog
from tapstore.errors import AlreadyExistsError, ConflictError, OutcomeUnknownError, StoreError
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE


class Schedule:
    """Lets one thread at a time go on to its next request."""

    def __init__(self, rng, names):
        self._rng = rng
        self._alive = set(names)
        self._waiting = set()
        self._turn = None
        self._changed = threading.Condition()

    def wait_for_turn(self, name):
        with self._changed:
            self._waiting.add(name)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == name)
            self._waiting.remove(name)
            self._turn = None
            self._changed.notify_all()

    def end(self, name):
        with self._changed:
            self._alive.discard(name)
            self._changed.notify_all()

    def run(self):
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._turn is None and self._waiting == self._alive)
                if not self._alive:
                    return
                self._turn = self._rng.choice(sorted(self._waiting))
                self._changed.notify_all()


class Place(WrapperStore):
    """What one thread sees of the store; `late` are writes that are still under way."""

    def __init__(self, inner, name, schedule, rng, late, trouble):
        super().__init__(inner)
        self._name, self._schedule, self._rng = name, schedule, rng
        self._late, self._trouble = late, trouble

    def _request(self):
        self._schedule.wait_for_turn(self._name)
        while self._late and self._rng.random() < 0.3:
            land(self.inner, self._late.pop(self._rng.randrange(len(self._late))))

    def get(self, key, *, start=0, end=None):
        self._request()
        if self._rng.random() < self._trouble / 3:
            raise failed(errno.EIO)
        return self.inner.get(key, start=start, end=end)

    def put(self, key, data, mode=CREATE):
        self._request()
        fate = self._rng.random() / self._trouble if self._trouble else 9
        if fate < 1:
            raise OutcomeUnknownError("the request was lost")
        if fate < 2:
            self._late.append((key, data))
            raise OutcomeUnknownError("the request is under way")
        if fate < 3:
            raise failed(errno.ENOSPC)
        result = self.inner.put(key, data, mode)
        if fate < 4:
            raise OutcomeUnknownError("the reply was lost")
        return result

    def delete(self, key, *, version=None):
        self._request()
        self.inner.delete(key, version=version)

    def children(self, prefix=""):
        self._request()
        return iter(list(self.inner.children(prefix)))


def failed(code):
    error = StoreError("injected")
    error.errno = code
    return error


def land(store, write):
    try:
        store.put(*write, CREATE)
    except AlreadyExistsError:
        pass


def write(log, name, rng, outcomes):
    """Commit three times, and say what became of each."""
    known = None
    for number in range(3):
        write_id = f"{name}-{number}"
        try:
            head, content = log.read(known)
        except StoreError:
            continue
        outcome = commit(log, head, write_id, content.decode())
        outcomes[write_id] = outcome
        known = head if rng.random() < 0.5 else None
        if outcome == "ok":
            known = log.at_any_cost(head.n + 1)
            log.collect(known)


def commit(log, head, write_id, follows):
    outcome = None
    for _ in range(3):
        try:
            log.commit(head, write_id, write_id.encode(), {"follows": follows})
            return "ok"
        except ConflictError:
            return "refused"
        except OutcomeUnknownError:
            outcome = "unknown"
        except StoreError:
            # Of the attempt before it says nothing.
            if outcome is None:
                return "refused"
    return outcome


class Log(CommitLog):
    def at_any_cost(self, n):
        while True:
            try:
                return self.at(n)
            except StoreError:
                continue


def read(log):
    """What is read fits together, and never goes back."""
    last = 0
    for _ in range(4):
        head, content = log.read()
        assert content == head.record.write_id.encode()
        assert head.n >= last
        last = head.n


def run(seed):
    rng = random.Random(seed)
    store, late, outcomes, errors = MemoryStore(), [], {}, []
    CommitLog(store, "x").commit(None, "first", b"first", {"follows": ""})
    keep, trouble = rng.choice([1, 1, 2]), rng.choice([0, 0.05, 0.15])
    schedule = Schedule(rng, ["a", "b", "c", "r"])

    def work(name):
        place = Place(store, name, schedule, rng, late, 0 if name == "r" else trouble)
        log = Log(place, "x", keep=keep)
        try:
            if name == "r":
                read(log)
            else:
                write(log, name, rng, outcomes)
        except BaseException as exc:
            errors.append(exc)
        finally:
            schedule.end(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c", "r")]
    for thread in threads:
        thread.start()
    schedule.run()
    for thread in threads:
        thread.join()
    for request in late:
        land(store, request)
    check(CommitLog(store, "x"), outcomes, errors)


def check(log, outcomes, errors):
    assert errors == []
    heads = list(log.records())
    landed = [head.record.write_id for head in heads]
    assert len(set(landed)) == len(landed), "there twice"
    assert [w for w, o in outcomes.items() if o == "ok" and w not in landed] == []
    assert [w for w, o in outcomes.items() if o == "refused" and w in landed] == []
    assert [head.record.entry["follows"] for head in heads] == ["", *landed[:-1]], "lost update"
    assert log.read()[1] == landed[-1].encode()


def test_no_order_of_requests_and_no_fate_of_theirs_loses_or_doubles_a_commit():
    for seed in range(250):
        try:
            run(seed)
        except AssertionError as exc:
            exc.add_note(f"run({seed}) shows it again")
            raise


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_nor_do_many_more():
    for seed in range(1000, 21_000):
        run(seed)
