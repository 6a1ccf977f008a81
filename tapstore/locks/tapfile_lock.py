"""`.tap/locks/tapfile.lock`: the lock file of the original protocol, created exclusively.

Plain programs create it empty and remove it.  tapstore's own has a record in it from the moment
that it can be seen, so that everybody can tell whose it is and whether its owner is dead.

No commit rests on it: it only keeps writers of the *Tapfile* apart from programs that know no
compare-and-set.  A lock that a dead tapstore process left behind is removed; that of another
program only if a person, or the session's policy, says so.  What remains: between the last look
at a lock that is removed and its removal, another host could have removed it and a third taken
it.  Then two programs edit at once; whoever of tapstore's is displaced notices before it
publishes, a plain program does not.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import AlreadyExistsError, ConflictError, NotFoundError
from tapstore.types import CREATE, Owner

STALE_SECONDS = 10.0
"""tapstore holds the lock for one commit.  Unchanged for so long its owner is stopped or dead."""

MIN_PAUSE_SECONDS = 0.0003
MAX_PAUSE_SECONDS = 0.008


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What tapstore writes into its lock."""

    agent: str
    token: str
    """Random: tells one holding from the next."""

    host: str = ""
    boot: str = ""
    """Identity of this boot of the host."""

    pid: int = 0
    started: str = ""
    """When the process began, in the kernel's ticks: a pid may be used again."""


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


class TapfileLock:
    """One user of the lock file; not reentrant, and not for several threads at once."""

    def __init__(
        self,
        store: Store,
        key: str,
        owner: Owner,
        *,
        clock: Clock = SYSTEM_CLOCK,
        foreign_stale_after: float | None = None,
    ) -> None:
        """`foreign_stale_after`: seconds after which another program's lock is removed."""
        self._store = store
        self._key = key
        self._owner = owner
        self._clock = clock
        self._foreign_stale_after = foreign_stale_after
        self._data = b""
        self._given_up_on = ""
        """Identity of a lock that we have waited for in vain."""

    # Holding

    def acquire(self, wait: float) -> bool:
        """Take the lock within `wait` seconds; False if somebody else has it all the time.

        Who has once waited in vain for a lock does not wait for the same holding again.
        """
        self._data = msgspec.json.encode(self._record())
        deadline = self._clock.monotonic() + wait
        pause = MIN_PAUSE_SECONDS
        seen, since = "", 0.0
        while True:
            with suppress(AlreadyExistsError):
                self._store.put(self._key, self._data, CREATE)
                self._given_up_on = ""
                return True
            now = self._clock.monotonic()
            # Looking costs more than trying; most locks are gone in a moment.
            if pause > MAX_PAUSE_SECONDS / 4 or now >= deadline:
                sighting = self.inspect()
                if sighting is None:
                    continue
                if sighting.identity != seen:
                    seen, since = sighting.identity, now
                if self._is_dead(sighting, now - since) and self._remove(sighting.identity):
                    continue
                if now >= deadline or sighting.identity == self._given_up_on:
                    self._given_up_on = sighting.identity
                    return False
            self._clock.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 1.5, MAX_PAUSE_SECONDS)

    def is_ours(self) -> bool:
        """Whether the lock that was acquired is still there."""
        try:
            return self._store.get(self._key).data == self._data
        except NotFoundError:
            return False

    def release(self) -> None:
        """Remove the lock if it is still ours."""
        if self.is_ours():
            self._store.delete(self._key)

    def _record(self) -> Record:
        return Record(
            agent=self._owner.agent,
            token=secrets.token_hex(8),
            host=self._owner.host,
            boot=_boot_id(),
            pid=os.getpid(),
            started=_started(os.getpid()),
        )

    # Judging and removing

    def inspect(self) -> Sighting | None:
        """The lock as it is, or None if nobody holds it."""
        try:
            got = self._store.get(self._key)
        except NotFoundError:
            return None
        try:
            record = msgspec.json.decode(got.data, type=Record)
        except msgspec.DecodeError:
            record = None
        return Sighting(
            identity=got.info.version if record is None else record.token,
            record=record,
            age_seconds=max(0.0, self._store.now() - got.info.modified),
            size=len(got.data),
        )

    def break_lock(self, identity: str) -> None:
        """Remove exactly the lock that was seen, for a person who knows that its owner is gone.

        Raises `ConflictError` if it is another by now; no lock at all is fine.
        """
        if not self._remove(identity):
            raise ConflictError(
                f"{self._key} in {self._store.url} changed hands meanwhile; look again"
            )

    def _is_dead(self, sighting: Sighting, unchanged_seconds: float) -> bool:
        record = sighting.record
        if record is None:
            limit = self._foreign_stale_after
            return limit is not None and sighting.age_seconds >= limit
        if unchanged_seconds >= STALE_SECONDS:
            return True
        here = record.host == socket.gethostname() and record.boot == _boot_id() != ""
        return here and record.started != "" and _started(record.pid) != record.started

    def _remove(self, identity: str) -> bool:
        """Remove the lock with this identity; False if it is another one."""
        with self._one_remover_a_host():
            sighting = self.inspect()
            if sighting is None:
                return True
            if sighting.identity != identity:
                return False
            path = self._store.local_path(self._key)
            private = f"{os.path.dirname(path)}/.tapstore-tmp-{secrets.token_hex(8)}"
            try:
                os.rename(path, private)
            except FileNotFoundError:
                return True
            if self._is(private, sighting):
                os.unlink(private)
                return True
            # Another host removed it, and somebody took it, since we looked: give it back.
            with suppress(FileExistsError):
                os.link(private, path)
            os.unlink(private)
            return False

    def _is(self, path: str, sighting: Sighting) -> bool:
        data = Path(path).read_bytes()
        if sighting.record is None:
            return len(data) == sighting.size
        return data == msgspec.json.encode(sighting.record)

    @contextmanager
    def _one_remover_a_host(self) -> Iterator[None]:
        # Two that judge the same lock dead: the second would remove the lock of who came after
        # the first.  The kernel lets go of this when its holder dies.
        try:
            import fcntl
        except ImportError:  # no such thing on this system: the private name remains
            yield
            return
        fd = os.open(self._store.local_path(self._key) + ".remover", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with suppress(OSError):  # a mount without locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this host began; empty if there is none, or no way to know."""
    try:
        # Field 22; the second may contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
