"""The conformance suites of tapstore, as the authors of tapstore-sqlite would run them."""

import sqlite3
from contextlib import closing

import pytest
from tapstore_sqlite import SqliteLocks, SqliteStore

import tapstore
from tapstore import registry
from tapstore.clock import SYSTEM_CLOCK
from tapstore.testing.locks import LockPlace, LockServiceTests
from tapstore.testing.place import Place
from tapstore.testing.stores import StoreTests
from tapstore.types import Capabilities


class FilePlace(Place):
    def __init__(self, folder):
        self.file = str(folder / "place.db")
        self.url = f"sqlite://{self.file}/below"

    def open(self):
        return registry.open_store(self.url)

    def read(self, key):
        found = self._sql("SELECT data FROM objects WHERE key=?", f"below/{key}")
        return found[0][0] if found else None

    def write(self, key, data):
        self._sql("REPLACE INTO objects VALUES (?, ?, 'from-elsewhere', 1.0)", f"below/{key}", data)

    def names(self):
        return {key.removeprefix("below/") for [key] in self._sql("SELECT key FROM objects")}

    def _sql(self, query, *values):
        with closing(sqlite3.connect(self.file, timeout=30)) as db, db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB NOT NULL,"
                " version TEXT NOT NULL, modified REAL NOT NULL)"
            )
            return db.execute(query, values).fetchall()


class TestSqliteStore(StoreTests):
    capabilities = Capabilities(create=True, update=True, conditional_delete=True, files=False)

    @pytest.fixture
    def place(self, tmp_path):
        return FilePlace(tmp_path)


class LeaseFile(LockPlace):
    def __init__(self, folder):
        self.file = str(folder / "locks.db")

    def open(self, clock):
        return SqliteLocks(self.file, "conformance", clock=clock)

    def spoil(self, name):
        list(self.open(SYSTEM_CLOCK).names())  # makes the table
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute("REPLACE INTO leases VALUES ('conformance', ?, 'no record')", [name])


class TestSqliteLocks(LockServiceTests):
    @pytest.fixture
    def place(self, tmp_path):
        return LeaseFile(tmp_path)


def test_a_session_lies_in_it_and_uses_its_locks(tmp_path):
    url, locks = f"sqlite://{tmp_path}/place.db/review", f"sqlite://{tmp_path}/locks.db"
    session = tapstore.create(url, roles=["coder"], phase="one", locks=locks)
    with session.claim("coder", agent="c") as claim:
        claim.publish("a.py", b"1")
        claim.complete(phase="two")
    with session.lock("gpu-0", ttl=30), pytest.raises(tapstore.LeaseUnavailableError):
        tapstore.open(url).lock("gpu-0", ttl=30)
    assert tapstore.open(url).phase == "two"
    store = session.store
    while hasattr(store, "inner"):
        store = store.inner
    assert isinstance(store, SqliteStore)
