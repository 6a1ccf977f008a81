"""One file of SQLite: transactions, and what its errors are for tapstore."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.errors import OutcomeUnknownError, StoreError

BUSY_SECONDS = 30.0


class Database:
    """A connection for each transaction: nothing is shared by threads, or with a forked child."""

    def __init__(self, file: str, schema: str) -> None:
        self.file = file
        self.url = f"sqlite://{file}"
        self._schema = schema

    @contextmanager
    def transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        """All of the block happens, or nothing; nobody else writes meanwhile."""
        with self._errors(what):
            connection = sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._errors(what):
                connection.execute(self._schema)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as exc:
                raise OutcomeUnknownError(
                    f"cannot tell whether {what} in {self.url} happened: {exc}; look"
                ) from exc
        finally:
            connection.close()  # a transaction that was not committed ends here

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            error = StoreError(f"cannot {what} in {self.url}: {exc}")
            busy = exc.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            error.errno = errno.EAGAIN if busy else errno.EIO  # EAGAIN is tried again
            raise error from exc
