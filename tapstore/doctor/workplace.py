"""A prefix of its own for everything that an examination writes, and its removal.

All keys lie below `.tapstore-doctor/<run>/`.  `clean` removes those of this run; what a run that
crashed left is removed by a later one, when its process is known to have ended or it is too old
to be under way.

Not promised: that nothing stays where deleting is not allowed, or after a crash until then.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
from contextlib import suppress

import msgspec

from tapstore.abc import Store
from tapstore.errors import TapstoreError
from tapstore.locks import process
from tapstore.locks.process import Process
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, OVERWRITE, ObjectInfo, PutMode, PutResult, Update

FOLDER = ".tapstore-doctor"

RUN_SECONDS = 900.0
"""No run takes so long; what is older belongs to none that is under way."""

PEERS = "peers"
"""The folder that runs on several machines share; names there have that of the run."""

CARD = "card-"

_RUN = re.compile("[0-9a-f]{16}")


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a run."""

    host: str = msgspec.field(default_factory=socket.gethostname)
    process: Process = msgspec.field(default_factory=process.myself)


class Workplace:
    """The keys of one run in one store."""

    def __init__(self, store: Store) -> None:
        self.name = secrets.token_hex(8)
        self.prefix = f"{FOLDER}/{self.name}/"
        self._store = store
        self._given: set[str] = set()
        self._new_folder = _missing_folder(store)

    def key(self, name: str) -> str:
        """The key for something of this run; `clean` removes it."""
        key = self.prefix + name
        self._given.add(key)
        return key

    def begin(self) -> None:
        """Leave word who is at work here."""
        self._store.put(self.key("who"), msgspec.json.encode(Who()), OVERWRITE)

    def watched(self, store: Store) -> Store:
        """`store`; `clean` removes all that is written through it."""
        return _WatchedStore(store, self._given)

    def clean(self) -> tuple[str, ...]:
        """Remove what this run wrote; return the keys that could not be removed."""
        found = set(self._given)
        # Listings may lag, or not be allowed; the keys that were given out are known.
        with suppress(TapstoreError):
            found |= {info.key for info in self._store.list(self.prefix)}
        stuck = _remove(self._store, found, last=self.prefix + "who")
        self._remove_folders()
        return tuple(sorted(stuck))

    def remove_leftovers(self) -> tuple[str, ...]:
        """Remove what runs left that are over, as far as that can be told; return the keys."""
        left: dict[str, list[ObjectInfo]] = {}
        for info in self._store.list(f"{FOLDER}/"):
            left.setdefault(_word(info.key), []).append(info)
        left.pop(f"{self.prefix}who", None)
        now = self._store.now() if left else 0.0
        removed: list[str] = []
        for word, infos in sorted(left.items()):
            too_old = max(info.modified for info in infos) < now - RUN_SECONDS
            if too_old or self._is_over(word):
                keys = {info.key for info in infos}
                stuck = _remove(self._store, keys, last=word)
                removed += sorted(keys - stuck)
                if not stuck:
                    self._remove_temporary(word.split("/")[1])
        return tuple(removed)

    def _is_over(self, word: str) -> bool:
        try:
            who = msgspec.json.decode(self._store.get(word).data, type=Who)
        except (TapstoreError, msgspec.DecodeError):
            return False
        return process.is_dead(who.process, here=process.myself())

    def _remove_folders(self) -> None:
        """Remove the folders that were made for the run, where there are folders."""
        if not self._store_has_files():
            return
        self._remove_temporary(self.name)
        top = self._store.local_path(FOLDER)
        # Those that are not empty stay.  A run under way makes its folders again if need be.
        below = (folder for folder, _, _ in os.walk(top, topdown=False))
        for folder in (*below, *self._new_folder):
            with suppress(OSError):
                os.rmdir(folder)

    def _remove_temporary(self, run: str) -> None:
        # Whoever is stopped in the middle of a write leaves what is no key, a temporary file.
        if run != PEERS and self._store_has_files():
            shutil.rmtree(self._store.local_path(f"{FOLDER}/{run}"), ignore_errors=True)

    def _store_has_files(self) -> bool:
        try:
            self._store.local_path(FOLDER)
        except TapstoreError:
            return False
        return True


class _WatchedStore(WrapperStore):
    """Notes what is written: a listing that lags does not show it when it is to be removed."""

    def __init__(self, inner: Store, written: set[str]) -> None:
        super().__init__(inner)
        self._written = written

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        self._written.add(key)
        return super().put(key, data, mode)


def _missing_folder(store: Store) -> tuple[str, ...]:
    """The folders that the first write will make, the innermost first."""
    try:
        folder = os.path.dirname(store.local_path(FOLDER))
    except TapstoreError:
        return ()
    missing = []
    while folder and not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(missing)


def _word(key: str) -> str:
    """The key under which whoever wrote `key` has left word who it is."""
    _, run, name = key.split("/", 2)
    if run != PEERS:
        return f"{FOLDER}/{run}/who"
    found = _RUN.search(name)
    return f"{FOLDER}/{PEERS}/{CARD}{found.group()}" if found else key


def _remove(store: Store, keys: set[str], last: str) -> set[str]:
    """Delete `keys`, `last` at the end; return those that could not be deleted."""
    stuck = set()
    for key in sorted(keys, key=lambda key: (key == last, key)):
        try:
            store.delete(key)
        except TapstoreError:
            stuck.add(key)
    return stuck
