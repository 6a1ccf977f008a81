"""The history of a document whose newest state is kept elsewhere: records, several to an object.

A segment is created exclusively, never changed and never deleted, and is named by its first
record.  Whoever finds one where it wanted to begin goes on behind its end, so any number of
writers may log the same records at the same time: each is there once, in order, without a hole.

It does not decide what is committed: only committed records may be appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, FormatError, NotFoundError
from tapstore.record import Head, parse
from tapstore.types import CREATE

MAX_RECORDS = 64
"""In one segment, so that a record is found by one listing that begins so far before it."""

_CACHED = 32
_PAGE = 1000
_DIGITS = 12


class Segments:
    """Records below `prefix` of a store.  Safe to use from several threads."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/log/"
        # Of what never changes any copy is right, so threads need not agree on it.
        self._cache: OrderedDict[int, tuple[Head, ...]] = OrderedDict()
        self._names: list[int] = []

    def _key(self, first: int) -> str:
        return f"{self._prefix}{first:0{_DIGITS}d}"

    # Writing

    def append(self, first: int, records: Sequence[bytes]) -> int:
        """Log committed records, of which `first` is the number of the first one.

        Record `first - 1` must be logged.  Returns the number of the last that is logged then,
        by us or by others; it is less than that of the last one given only if there are more
        than fit into a segment.  Raises `FormatError` if another history is logged there.
        """
        part = records[:MAX_RECORDS]
        try:
            self._store.put(self._key(first), b"\n".join(part) + b"\n", CREATE)
            return first + len(part) - 1
        except AlreadyExistsError:
            there = self._load(first)
        for head, data in zip(there, records, strict=False):
            ours = parse(data, head.n, where="a record to be logged")
            if ours.digest != head.digest:
                raise FormatError(
                    f"{self._store.url}: revision {head.n} in {self._key(first)} is another one "
                    "than the Tapfile says; an older Tapfile was put back: restore the newest one"
                )
        return there[-1].n

    # Reading

    def at(self, n: int) -> Head | None:
        """Record number n, or None if it is not logged (yet)."""
        # A copy: the thread that logs may load one meanwhile.
        for first, heads in tuple(self._cache.items()):
            if first <= n < first + len(heads):
                return heads[n - first]
        for look in (self._seen, self._listed):
            first = look(n)
            if first:
                heads = self._load(first)
                if n <= heads[-1].n:
                    return heads[n - first]
        return None

    def _seen(self, n: int) -> int:
        """The last segment known of that begins at or before record n; 0 if there is none."""
        names = self._names
        index = bisect_right(names, n)
        return names[index - 1] if index else 0

    def _listed(self, n: int) -> int:
        """The same, after a look; for one request a whole page of names is learnt."""
        names = list(islice(self._firsts(before=n), _PAGE))
        self._names = sorted({*self._names, *names})
        return self._seen(n)

    def records(self, *, after: int = 0) -> Iterator[Head]:
        """The logged records from `after` + 1 on.  Raises `FormatError` at a hole."""
        due = after + 1
        for first in self._firsts(before=due):
            if first > due:
                raise FormatError(
                    f"{self._store.url}: log record {due} is missing below {self._prefix}; "
                    "restore it from a backup"
                )
            heads = self._load(first)
            yield from islice(heads, due - first, None)
            due = max(due, heads[-1].n + 1)

    def _firsts(self, *, before: int) -> Iterator[int]:
        """The names of the segments, from the one on that holds record `before`.

        If that is not logged yet, from the last one on.
        """
        last = None
        begin = max(0, before - MAX_RECORDS)
        for info in self._store.list(self._prefix, start_after=self._key(begin)):
            name = info.key.rpartition("/")[2]
            if not name.isdecimal():
                continue
            # Of those that begin at or before the record only the last can hold it.
            if last is not None and int(name) > before:
                yield last
                last = None
            if int(name) > before:
                yield int(name)
            else:
                last = int(name)
        if last is not None:
            yield last

    def _load(self, first: int) -> tuple[Head, ...]:
        found = self._cache.get(first)
        if found is None:
            key = self._key(first)
            try:
                lines = self._store.get(key).data.splitlines()
            except NotFoundError as exc:
                raise FormatError(
                    f"{self._store.url}: {key} was there and is gone; restore it from a backup"
                ) from exc
            where = f"{self._store.url}: {key}"
            found = tuple(parse(line, first + i, where=where) for i, line in enumerate(lines))
            if not 0 < len(found) <= MAX_RECORDS:
                raise FormatError(f"{where} has {len(found)} records; restore it from a backup")
            self._cache[first] = found
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return found
