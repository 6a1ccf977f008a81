"""What happened to each task: a chain of records, each created exclusively and never deleted.

Record n+1 is created by somebody who has read record n; of any number of them one succeeds, also
if another was paused in between.  So a task is taken by one claim at a time, is taken again only
after that claim ended, and its attempts are counted where no crash loses them.  The claim itself
is decided by the session; that it ended is looked up there and then written down here.

The files that people drop decide nothing.  They may be gone, or still be there, by the time that
a record says so.
"""

from __future__ import annotations

import msgspec

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, FormatError, NotFoundError, OutcomeUnknownError
from tapstore.types import CREATE

_DIGITS = 6


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all records."""

    at: str
    file: str
    """Key of the task file, for people."""


class Taken(Event, frozen=True, kw_only=True, omit_defaults=True, tag="taken"):
    """A claim works on it, as long as that claim lives."""

    claim: str
    fence: int
    """Revision that granted the claim: what ended it is later in the log."""

    agent: str
    attempt: int


class Ended(Event, frozen=True, kw_only=True, omit_defaults=True, tag="ended"):
    """The claim ended without doing it: the next may take it."""

    claim: str
    fate: str
    """`failed`, `released`, `reset` or `lost` (taken over)."""

    attempts: int
    """How many are used up."""

    reason: str = ""


class Done(Event, frozen=True, kw_only=True, omit_defaults=True, tag="done"):
    """The claim completed."""

    claim: str
    stamp: str
    """Which file is to be removed: one with another stamp was dropped since."""


class Aside(Event, frozen=True, kw_only=True, omit_defaults=True, tag="aside"):
    """Nobody will do it."""

    reason: str
    stamp: str


AnyEvent = Taken | Ended | Done | Aside

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode


class TaskBook:
    """The chains of all tasks below one prefix.  Keeps no state but the store."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def _key(self, digest: str, n: int) -> str:
        return f"{self._prefix}/{digest}/{n:0{_DIGITS}d}"

    def last(self, digest: str) -> tuple[int, AnyEvent | None]:
        """The number of the newest record of a task, and the record; (0, None) if it has none."""
        n, event = self._listed(digest)
        # The listing is only a hint: on NFS it may lag behind what is there.
        while (following := self._at(digest, n + 1)) is not None:
            n, event = n + 1, following
        return n, event

    def _listed(self, digest: str) -> tuple[int, AnyEvent | None]:
        names = self._store.children(f"{self._prefix}/{digest}/")
        highest = max((int(name) for name in names if name.isdecimal()), default=0)
        return (highest, self._at(digest, highest)) if highest else (0, None)

    def _at(self, digest: str, n: int) -> AnyEvent | None:
        key = self._key(digest, n)
        try:
            return _decode(self._store.get(key).data)
        except NotFoundError:
            return None
        except msgspec.DecodeError as exc:
            raise FormatError(
                f"{self._store.url}: {key} is damaged ({exc}); restore it from a backup"
            ) from exc

    def append(self, digest: str, n: int, event: AnyEvent) -> bool:
        """Create record n; False if somebody else has created another one under that number."""
        key, data = self._key(digest, n), _encode(event)
        try:
            self._store.put(key, data, CREATE)
        except AlreadyExistsError:
            # Ours, if a reply was lost: the claim in it makes the bytes unique where it matters.
            return self._store.get(key).data == data
        except OutcomeUnknownError:
            if self._at(digest, n) is None:
                raise
            return self._store.get(key).data == data
        return True
