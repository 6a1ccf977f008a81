"""Threads that make their requests in an order, and with a fate, that follow from a seed."""

import errno
import threading

from tapstore.errors import ConflictError, OutcomeUnknownError, StoreError
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

    def _read(self):
        self._request()
        if self._rng.random() < self._trouble / 3:
            raise failed(errno.EIO)

    def get(self, key, *, start=0, end=None):
        self._read()
        return self.inner.get(key, start=start, end=end)

    def head(self, key):
        self._read()
        return self.inner.head(key)

    def get_if_changed(self, key, version):
        self._read()
        return self.inner.get_if_changed(key, version)

    def list(self, prefix="", *, start_after=""):
        self._read()
        return iter(list(self.inner.list(prefix, start_after=start_after)))

    def put(self, key, data, mode=CREATE):
        self._request()
        fate = self._rng.random() / self._trouble if self._trouble else 9
        if fate < 1:
            raise OutcomeUnknownError("the request was lost")
        if fate < 2:
            self._late.append((key, data, mode))
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
        store.put(*write)
    except ConflictError:
        pass


def run_all(schedule, work, names):
    """Run `work(name)` in a thread each, one request at a time; returns what they raised."""
    errors = []

    def guarded(name):
        try:
            work(name)
        except BaseException as exc:
            errors.append(exc)
        finally:
            schedule.end(name)

    threads = [threading.Thread(target=guarded, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    schedule.run()
    for thread in threads:
        thread.join()
    return errors


def judge(landed, outcomes, errors):
    """Compare what writers were told with the ids of what is there, in order."""
    assert errors == []
    assert len(set(landed)) == len(landed), "there twice"
    assert [w for w, o in outcomes.items() if o == "ok" and w not in landed] == []
    assert [w for w, o in outcomes.items() if o == "refused" and w in landed] == []


def run_seeds(run, seeds):
    for seed in seeds:
        try:
            run(seed)
        except BaseException as exc:
            exc.add_note(f"run({seed}) shows it again")
            raise
