"""A store in a file of SQLite, for agents on one host."""

from __future__ import annotations

import io
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import BinaryIO

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.keys import check_key, check_prefix
from tapstore.types import (
    CREATE,
    Capabilities,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)
from tapstore_sqlite.database import Database

PAGE = 1000
CHUNK = 1 << 20

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects
    (key TEXT PRIMARY KEY, data BLOB NOT NULL, version TEXT NOT NULL, modified REAL NOT NULL)
"""
COLUMNS = "key, length(data), version, modified"


class SqliteStore(Store):
    """Objects are rows; each call is a transaction."""

    capabilities = Capabilities(create=True, update=True, conditional_delete=True, files=False)

    def __init__(self, file: str, prefix: str, *, clock: Clock) -> None:
        self._database = Database(file, SCHEMA)
        self._base = check_key(prefix) + "/" if prefix else ""
        self._clock = clock
        self.url = f"{self._database.url}/{prefix}".rstrip("/")

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        check_key(key)
        failures.check_range(start, end)
        with self._database.transaction(f"read {key!r}") as db:
            info = self._info(db, key)
            [data] = db.execute(
                "SELECT data FROM objects WHERE key=?", [self._base + key]
            ).fetchone()
        return GetResult(data=data[start:end], info=info)

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        with self._database.transaction(f"read {key!r}") as db:
            return self._info(db, key)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        return self._write(key, io.BytesIO(data), len(data), mode)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        check_key(key)
        # Complete before the transaction begins: a slow source must not stop all others.
        with tempfile.TemporaryFile() as whole:
            for chunk in iter(partial(source.read, CHUNK), b""):
                whole.write(chunk)
            size = whole.tell()
            whole.seek(0)
            return self._write(key, whole, size, mode)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        check_key(key)
        whole = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            with self._database.transaction(f"read {key!r}") as db:
                self._info(db, key)
                with db.blobopen("objects", "data", self._row(db, key), readonly=True) as blob:
                    for chunk in iter(partial(blob.read, CHUNK), b""):
                        whole.write(chunk)
            whole.seek(start)
        except BaseException:
            whole.close()
            raise
        return whole

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        with self._database.transaction(f"delete {key!r}") as db:
            found = self._version(db, key)
            if version is not None and found not in (None, version):
                raise failures.conflict(self.url, key, expected=version, found=found)
            db.execute("DELETE FROM objects WHERE key=?", [self._base + key])

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._list(self._base + prefix, self._base + start_after)

    def _list(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        query = f"SELECT {COLUMNS} FROM objects WHERE key>=? AND key>? ORDER BY key LIMIT {PAGE}"
        while True:
            with self._database.transaction("list") as db:
                page = db.execute(query, [prefix, after]).fetchall()
            for name, *rest in page:
                if not name.startswith(prefix):
                    return
                yield ObjectInfo(name[len(self._base) :], *rest)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._children(self._base + prefix)

    def _children(self, folder: str) -> Iterator[str]:
        at = folder
        while True:
            with self._database.transaction("list") as db:
                found = db.execute(
                    "SELECT key FROM objects WHERE key>=? ORDER BY key LIMIT 1", [at]
                ).fetchone()
            if found is None or not found[0].startswith(folder):
                return
            child, slash, _ = found[0][len(folder) :].partition("/")
            yield child + slash
            # "0" follows "/": the smallest name after everything below this child.
            at = f"{folder}{child}0" if slash else f"{folder}{child}\1"

    def now(self) -> float:
        return self._clock.time()

    def _write(self, key: str, source: BinaryIO, size: int, mode: PutMode | Update) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        version, name = secrets.token_hex(8), self._base + key
        with self._database.transaction(f"write {key!r}") as db:
            present = self._version(db, key)
            if mode is CREATE and present is not None:
                raise failures.already_exists(self.url, key)
            if isinstance(mode, Update) and present != mode.version:
                raise failures.conflict(self.url, key, expected=mode.version, found=present)
            modified = self._clock.time()
            db.execute(
                "REPLACE INTO objects VALUES (?, zeroblob(?), ?, ?)",
                [name, size, version, modified],
            )
            with db.blobopen("objects", "data", self._row(db, key)) as blob:
                for chunk in iter(partial(source.read, CHUNK), b""):
                    blob.write(chunk)
        return PutResult(version=version, modified=modified)

    def _info(self, db: sqlite3.Connection, key: str) -> ObjectInfo:
        found = db.execute(
            f"SELECT {COLUMNS} FROM objects WHERE key=?", [self._base + key]
        ).fetchone()
        if found is None:
            raise failures.not_found(self.url, key)
        return ObjectInfo(key, *found[1:])

    def _version(self, db: sqlite3.Connection, key: str) -> str | None:
        found = db.execute("SELECT version FROM objects WHERE key=?", [self._base + key]).fetchone()
        return None if found is None else found[0]

    def _row(self, db: sqlite3.Connection, key: str) -> int:
        [row] = db.execute("SELECT rowid FROM objects WHERE key=?", [self._base + key]).fetchone()
        return row
