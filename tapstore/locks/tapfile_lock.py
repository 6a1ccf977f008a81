"""`.tap/locks/tapfile.lock`: the file that agents of the original protocol create and remove.

One program at a time has it: tapstore, or a plain agent that creates it empty with O_EXCL and
unlinks it when it is done.  tapstore's has a record in it from the moment that it can be seen.
One that a dead or stuck tapstore process left is removed by the next one; an empty or foreign one
is not, unless `foreign_stale_after` says when.

Not promised: that a holder that is stopped for longer than `stale_after` still has it (`is_ours`
tells); an order among those who wait; that it outlives a power failure; anything against programs
that remove locks of others.  No commit rests on it: it keeps tapstore's writing of the *Tapfile*
apart from programs that know no compare-and-set.

How: each process keeps one file beside the lock and links it to the lock's name, so that taking
it costs one system call.  Whoever removes a lock of tapstore's, its holder or another, holds
`flock` on its inode from the last look to the removal.  So nobody can sleep in between while
somebody else removes it and a third one takes the name.
"""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ConflictError
from tapstore.locks import ownfile, process
from tapstore.locks.ownfile import OwnFile
from tapstore.locks.process import Process
from tapstore.locks.waiting import Observer, Patience
from tapstore.types import Owner

STALE_SECONDS = 10.0
"""tapstore holds the lock for one commit.  Unchanged for so long its owner is stopped or dead."""

FORMAT = 1
"""Version of the record."""

_FIRST_PAUSE_SECONDS = 0.0003
_LONGEST_PAUSE_SECONDS = 0.008

_LOOK_AFTER_SECONDS = 0.005
"""Looking costs more than trying, and most locks are gone in a moment."""

_REMOVAL_SECONDS = 1.0
"""How long a holder waits for somebody who is removing its lock."""

_MAX_RECORD_BYTES = 4096


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What tapstore's lock says about its holder."""

    format: int
    agent: str
    instance: str
    host: str = ""
    pid: int = 0
    process: Process = Process()


@dataclass(frozen=True, slots=True)
class Sighting:
    """The lock as somebody saw it."""

    identity: str
    """Changes with each holding."""

    record: Record | None
    """None: another program's (usually empty)."""

    age_seconds: float
    """In the store's clock."""

    size: int


@dataclass(frozen=True, slots=True)
class _Look:
    identity: str
    record: Record | None
    since: float
    """Store's clock."""

    size: int
    looked: float
    """Monotonic time before the look."""


class TapfileLock:
    """One user of the lock.  Threads that share it wait for each other.

    It is not re-entrant: what a thread that asks still has was left there by an exception from
    outside (Ctrl-C) that came between two lines, and it gets it again.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        owner: Owner,
        *,
        clock: Clock = SYSTEM_CLOCK,
        stale_after: float = STALE_SECONDS,
        foreign_stale_after: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`foreign_stale_after`: seconds after which another program's lock is removed.

        Raises `UnsupportedOperationError` where keys are not files.
        """
        self._store = store
        self._key = key
        self._path = store.local_path(key)
        self._folder = os.path.dirname(self._path)
        self._owner = owner
        self._clock = clock
        self._limits = (stale_after, foreign_stale_after)
        self._rng = rng or random.Random()
        self._observer = Observer(clock)
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._own: OwnFile | None = None
        self._here: Process | None = None
        self._holds = False
        self._given_up_on = ""
        """Identity of a lock that we have waited for in vain."""

    # Holding

    def acquire(self, wait: float) -> bool:
        """Take the lock within `wait` seconds; False if somebody else has it all the time.

        Who has once waited in vain for a lock does not wait for the same holding again.
        """
        patience = Patience(
            wait,
            first=_FIRST_PAUSE_SECONDS,
            longest=_LONGEST_PAUSE_SECONDS,
            clock=self._clock,
            rng=self._rng,
        )
        self._notice_fork()
        if not self._turn.acquire(timeout=wait):
            return False
        try:
            self._holds = self._contend(patience)
        except OSError as exc:
            raise failures.failed(self._store.url, self._key, "take", exc) from exc
        finally:
            if not self._holds:
                self._end_turn()
        return self._holds

    def is_ours(self) -> bool:
        """Whether the lock that was acquired is still there.  One system call."""
        own = self._mine()
        return own is not None and own.is_at(self._path)

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        own = self._mine()
        if own is None:
            return
        patience = Patience(
            _REMOVAL_SECONDS, first=0.001, longest=0.01, clock=self._clock, rng=self._rng
        )
        self._holds = False
        try:
            while True:
                with ownfile.removing(own.fd) as alone:
                    if alone and own.is_at(self._path):
                        with suppress(FileNotFoundError):  # with its folder
                            os.unlink(self._path)
                    if alone or patience.over:
                        # Over: who is removing it is stopped in the middle.  It will go on, or
                        # die, and then the lock is stale for everybody.
                        return
                patience.pause()
        except OSError as exc:
            raise failures.failed(self._store.url, self._key, "release", exc) from exc
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        with suppress(RuntimeError):
            while True:  # also what was left there
                self._turn.release()

    def _contend(self, patience: Patience) -> bool:
        while not self._link():
            if patience.over or patience.waited > _LOOK_AFTER_SECONDS:
                look = self._look()
                if look is None:
                    continue
                if self._is_over(look) and ownfile.remove(self._path, look.identity):
                    continue
                if patience.over or look.identity == self._given_up_on:
                    self._given_up_on = look.identity
                    return False
            patience.pause()
        self._given_up_on = ""
        return True

    def _link(self) -> bool:
        if self._own is not None:
            try:
                return self._own.link(self._path)
            except FileNotFoundError:
                self._own.close()
        self._own = self._new_file()
        return self._own.link(self._path)

    def _new_file(self) -> OwnFile:
        record = Record(
            format=FORMAT,
            agent=self._owner.agent,
            instance=self._owner.instance,
            host=self._owner.host,
            pid=os.getpid(),
            process=self._myself(),
        )
        data = msgspec.json.encode(record)
        try:
            return OwnFile(self._folder, data)
        except FileNotFoundError:
            os.makedirs(self._folder, exist_ok=True)
        return OwnFile(self._folder, data)

    def _mine(self) -> OwnFile | None:
        """Our file, if it is linked as far as we know."""
        return self._own if self._holds and self._pid == os.getpid() else None

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The file, what it says, and the turn that some thread had, are our parent's.
            if self._own is not None:
                self._own.close()
            self._pid = os.getpid()
            self._own = self._here = None
            self._holds = False
            self._turn = threading.RLock()

    def _myself(self) -> Process:
        if self._here is None:
            self._here = process.myself()
        return self._here

    # Judging and removing

    def inspect(self) -> Sighting | None:
        """The lock as it is, or None if nobody holds it."""
        try:
            look = self._look()
        except OSError as exc:
            raise failures.failed(self._store.url, self._key, "read", exc) from exc
        if look is None:
            return None
        age = max(0.0, self._store.now() - look.since)
        return Sighting(look.identity, look.record, age, look.size)

    def break_lock(self, identity: str) -> None:
        """Remove exactly the lock that was seen, for a person who knows that its owner is gone.

        Raises `ConflictError` if it is another by now; no lock at all is fine.
        """
        try:
            removed = ownfile.remove(self._path, identity)
        except OSError as exc:
            raise failures.failed(self._store.url, self._key, "remove", exc) from exc
        if not removed:
            raise ConflictError(
                f"{self._key} in {self._store.url} changed hands meanwhile; look again"
            )

    def _look(self) -> _Look | None:
        looked = self._clock.monotonic()
        try:
            fd = ownfile.open_lock(self._path)
        except FileNotFoundError:
            return None
        except PermissionError:
            return self._look_from_outside(looked)
        try:
            status = ownfile.check_regular(os.fstat(fd))
            data = os.read(fd, _MAX_RECORD_BYTES)
        finally:
            os.close(fd)
        try:
            record = msgspec.json.decode(data, type=Record)
        except msgspec.DecodeError:
            record = None
        return _Look(ownfile.identity(status), record, status.st_ctime, status.st_size, looked)

    def _look_from_outside(self, looked: float) -> _Look | None:
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return None
        return _Look(ownfile.identity(status), None, status.st_ctime, status.st_size, looked)

    def _is_over(self, look: _Look) -> bool:
        limit = self._limits[look.record is None]
        if look.record is not None and process.is_dead(look.record.process, here=self._myself()):
            return True
        unchanged = self._observer.unchanged_for(self._key, look.identity, looked=look.looked)
        if limit is None:
            return False
        # A command that ends soon sees it once.  By the store's clock it must be old, and by ours
        # too: where they differ much, one of them is wrong.
        return unchanged >= limit or (
            self._clock.time() - look.since >= limit and self._store.now() - look.since >= limit
        )
