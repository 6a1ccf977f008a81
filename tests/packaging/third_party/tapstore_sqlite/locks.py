"""Leases in a file of SQLite, for agents on one host.

A holder is taken to be dead when its record stayed the same for a ttl on the contender's clock;
by one look, when the record is older than that by the host's own clock, which is the writer's.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from tapstore.abc import Clock, LockService
from tapstore.clock import format_time
from tapstore.errors import LeaseUnavailableError, NotFoundError
from tapstore.keys import check_name
from tapstore.locks import words
from tapstore.types import Holder, Lease, Owner
from tapstore_sqlite.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS leases
    (scope TEXT, name TEXT, record TEXT NOT NULL, PRIMARY KEY (scope, name))
"""
LONGEST_TTL_SECONDS = 7 * 86_400
POLL_SECONDS = 0.05

Record = dict[str, Any]
"""`generation`, `token`, `owner`, `ttl`, `since`, `beat`, `reason`, and `ended`: how and when."""


class SqliteLocks(LockService):
    """The leases of one `scope`; each call is a transaction."""

    def __init__(self, file: str, scope: str, *, clock: Clock) -> None:
        self._database = Database(file, SCHEMA)
        self._scope = scope
        self._clock = clock

    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        check_name(name, "lease")
        if not 0 < ttl <= LONGEST_TTL_SECONDS:
            raise ValueError(f"ttl must be more than 0 s and at most a week, not {ttl}")
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait must be 0 or more seconds, or None, not {wait}")
        clock = self._clock
        deadline = None if wait is None else clock.monotonic() + wait
        seen, since = None, 0.0
        while True:
            started = clock.monotonic()
            with self._database.transaction(f"acquire lease {name!r}") as db:
                found = self._read(db, name)
                sight = found and (found["token"], found["beat"])
                if sight != seen:
                    seen, since = sight, started
                if found is None or found["ended"] or self._is_dead(found, started - since):
                    return self._grant(db, name, owner, ttl, reason, found, started)
            assert found is not None
            refusal: LeaseUnavailableError = words.unavailable(
                _holder(name, found), owner, ended=False
            )
            left = POLL_SECONDS if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                raise refusal
            clock.sleep(min(left, POLL_SECONDS))

    def renew(self, lease: Lease) -> Lease:
        started = self._clock.monotonic()
        with self._database.transaction(f"renew lease {lease.name!r}") as db:
            found = self._read(db, lease.name)
            if found is None:
                raise words.lost(lease, "it was never granted here")
            if found["token"] != lease.token:
                raise words.lost(lease, f"it was passed on to {found['owner']['agent']}")
            if found["ended"]:
                raise words.lost(lease, found["ended"])
            self._write(db, lease.name, {**found, "beat": self._clock.time()})
        return replace(lease, expires=started + lease.ttl_seconds)

    def release(self, lease: Lease) -> None:
        with self._database.transaction(f"release lease {lease.name!r}") as db:
            found = self._read(db, lease.name)
            if found is not None and found["token"] == lease.token and not found["ended"]:
                # The record stays: generations go on from it.
                self._write(db, lease.name, {**found, "ended": self._ended("released")})

    def inspect(self, name: str) -> Holder | None:
        with self._database.transaction(f"look at lease {name!r}") as db:
            found = self._read(db, name)
        return None if found is None or found["ended"] else _holder(name, found)

    def names(self) -> Iterator[str]:
        query = "SELECT name, record FROM leases WHERE scope=? ORDER BY name"
        with self._database.transaction("list leases") as db:
            rows = db.execute(query, [self._scope]).fetchall()
        for name, text in rows:
            try:
                held = not _parse(text)["ended"]
            except ValueError:
                held = True  # `inspect` tells what is wrong with it
            if held:
                yield name

    def force_release(self, name: str, generation: int) -> None:
        with self._database.transaction(f"end lease {name!r}") as db:
            found = self._read(db, name)
            if found is None or found["ended"]:
                raise NotFoundError(f"nobody holds lease {name!r} in {self._database.url}")
            if found["generation"] != generation:
                raise words.other_generation(
                    name, generation, found["generation"], _holder(name, found)
                )
            self._write(db, name, {**found, "ended": self._ended("ended by force")})

    def _is_dead(self, record: Record, unchanged_seconds: float) -> bool:
        age = self._clock.time() - record["beat"]
        return unchanged_seconds >= record["ttl"] or age > record["ttl"]

    def _grant(
        self,
        db: sqlite3.Connection,
        name: str,
        owner: Owner,
        ttl: float,
        reason: str,
        before: Record | None,
        started: float,
    ) -> Lease:
        now = self._clock.time()
        generation = 1 + (before["generation"] if before else 0)
        token = secrets.token_hex(16)
        self._write(db, name, {
            "generation": generation, "token": token, "owner": asdict(owner), "ttl": ttl,
            "since": now, "beat": now, "reason": reason, "ended": "",
        })  # fmt: skip
        return Lease(name, generation, token, owner, ttl, started + ttl, reason)

    def _ended(self, how: str) -> str:
        return f"it was {how} at {format_time(self._clock.time())}"

    def _read(self, db: sqlite3.Connection, name: str) -> Record | None:
        query = "SELECT record FROM leases WHERE scope=? AND name=?"
        row = db.execute(query, [self._scope, name]).fetchone()
        try:
            return None if row is None else _parse(row[0])
        except ValueError as exc:
            fault = f"{self._database.url} has no record of lease {name!r} but {row[0][:40]!r}"
            raise words.unreadable(name, fault, "delete that row of the table") from exc

    def _write(self, db: sqlite3.Connection, name: str, record: Record) -> None:
        db.execute("REPLACE INTO leases VALUES (?, ?, ?)", [self._scope, name, json.dumps(record)])


def _parse(text: str) -> Record:
    """Raises ValueError for what is no record."""
    record = json.loads(text)
    try:
        _holder("", record)
        if not isinstance(record["ended"], str) or not isinstance(record["token"], str):
            raise ValueError("wrong types")
        return record
    except (KeyError, TypeError) as exc:
        raise ValueError(str(exc)) from exc


def _holder(name: str, record: Record) -> Holder:
    return Holder(
        name=name,
        generation=int(record["generation"]),
        owner=Owner(**record["owner"]),
        ttl_seconds=float(record["ttl"]),
        since=float(record["since"]),
        beat=float(record["beat"]),
        reason=record["reason"],
    )
