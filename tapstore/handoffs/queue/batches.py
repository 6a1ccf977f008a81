"""Several messages accepted and completed as one.

A batch is a list of names, written first; attempts that name the batch then say what of it was to
be had.  It is completed by the creation of one more name, with the time; whoever finds that name
completes the rest of its attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tapstore.abc import Store
from tapstore.clock import format_time
from tapstore.errors import AlreadyExistsError
from tapstore.handoffs.names import is_name
from tapstore.handoffs.queue import records
from tapstore.handoffs.queue.places import BATCH_MARK, Places
from tapstore.sessions.config import new_id
from tapstore.types import CREATE, ObjectInfo

_CLOSED = ".done"

_YEAR_10000 = 253_402_300_800.0


class Batches:
    """The batches of one mailbox, as one agent makes them."""

    def __init__(self, store: Store, places: Places, *, agent: str) -> None:
        self._store = store
        self._places = places
        self._agent = agent

    def begin(self, members: Sequence[str]) -> str:
        """Write down what is about to be accepted as one; returns the id of the batch."""
        at = format_time(self._store.now()).replace("-", "").replace(":", "")
        batch = f"{BATCH_MARK}{at}_{new_id()}"
        lines = "".join(f"{name}\n" for name in members)
        self._store.put(self._key(batch), f"{self._agent}\n{lines}".encode(), CREATE)
        return batch

    def begun(self, seen: Mapping[str, ObjectInfo]) -> Iterator[tuple[str, list[str]]]:
        """This agent's batches that are not closed, with the names of their members."""
        for batch in seen:
            if batch.endswith(_CLOSED) or batch + _CLOSED in seen:
                continue
            found = records.fetch(self._store, self._key(batch))
            if found is None:
                continue
            agent, *members = found.data.decode(errors="replace").splitlines() or [""]
            if agent == self._agent:
                yield batch, [name for name in members if is_name(name)]

    def close(self, batch: str, at: float) -> float:
        """Complete it as one, at `at`, or at the time at which that was done already."""
        try:
            self._store.put(self._key(batch + _CLOSED), f"{at!r}\n".encode(), CREATE)
        except AlreadyExistsError:
            return self.closed_at(batch) or at
        return at

    def closed_at(self, batch: str, seen: Mapping[str, ObjectInfo] | None = None) -> float | None:
        """When it was completed as one; None if it was not.  `seen` saves a look."""
        if seen is not None and batch + _CLOSED not in seen:
            return None
        found = records.fetch(self._store, self._key(batch + _CLOSED))
        if found is None:
            return None
        try:
            at = float(found.data)
        except ValueError:
            at = -1.0
        return at if 0 <= at < _YEAR_10000 else found.info.modified

    def drop(self, batch: str) -> None:
        """Remove what says that there was a batch; no attempt of it is left."""
        self._store.delete(self._key(batch))
        self._store.delete(self._key(batch + _CLOSED))

    def _key(self, name: str) -> str:
        return f"{self._places.in_process}{name}"
