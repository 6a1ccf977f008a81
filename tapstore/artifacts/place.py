"""Puts bytes under the first of several names that is free, or holds these very bytes already.

Create-only: nothing that is there is changed.  A crash leaves nothing, an unfinished write of
the store's own, or whole bytes under a name that nobody registered (see `collect`).

Relying on a file that was there before is safe only if no collector may be about to delete it:
it is registered, as the caller says, or younger than `REUSE_SECONDS`.  Whoever places has to
register within `COMMIT_SECONDS`, unless a live claim covers it; collectors spare what is younger
than both together (`collect.MIN_AGE`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tapstore.abc import Store
from tapstore.artifacts.condemned import is_condemned
from tapstore.artifacts.paths import FOLDER, parents
from tapstore.artifacts.sources import BytesContent, Content
from tapstore.artifacts.streams import CHUNK_BYTES, HashingReader, Meter, buffered
from tapstore.errors import (
    AlreadyExistsError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.types import CREATE, OVERWRITE, ObjectInfo, PutMode

REUSE_SECONDS = 300.0
COMMIT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where bytes are, and what they are: summed up as they were stored."""

    key: str
    checksum: str
    size: int


def place(
    store: Store,
    names: Iterable[str],
    content: Content,
    *,
    registered: Callable[[str], bool],
    unique: Callable[[str], str],
    expected: str = "",
    meter: Meter | None = None,
) -> Placed:
    """Store the bytes of `content`; return the name that was taken, with the sum as stored.

    Where the place cannot create so large an object exclusively, `unique` makes of a name one to
    which nobody else writes other bytes.  With `expected`, bytes of another checksum are refused
    (`ConflictError`) and nothing is stored.  Safe to repeat: it finds what an earlier attempt left.
    """
    name = ""
    for name in names:
        placed = _create(store, name, content, unique, expected, meter)
        created = placed is not None
        if placed is None:
            placed = _find(store, name, content, registered, meter)
        if placed is None:
            continue
        if not is_condemned(store, placed.key):
            return placed
        if created:
            # Nobody else relies on it: they see the record that we saw.
            store.delete(placed.key)
    raise AlreadyExistsError(
        f"{name!r} and all names before it are taken in {store.url} by other bytes; "
        "nothing was written: publish under another name, or under a new claim"
    )


def _create(
    store: Store,
    name: str,
    content: Content,
    unique: Callable[[str], str],
    expected: str,
    meter: Meter | None,
) -> Placed | None:
    before = meter.done if meter is not None else 0
    # A look first: most places would take all the bytes before they say that the name is taken.
    if not isinstance(content, BytesContent) and _look(store, name) is not None:
        return None
    try:
        return _upload(store, name, content, CREATE, expected, meter)
    except (AlreadyExistsError, UnsupportedOperationError) as exc:
        if meter is not None:
            meter.done = before
        if isinstance(exc, AlreadyExistsError):
            return None
        # Some places cannot create exclusively what takes several requests.
        if not store.capabilities.create:
            raise
    return _upload(store, unique(name), content, OVERWRITE, expected, meter)


def _upload(
    store: Store, name: str, content: Content, mode: PutMode, expected: str, meter: Meter | None
) -> Placed:
    with content.open() as stream:
        reader = HashingReader(stream, content.what, expected=expected, meter=meter)
        store.upload(name, buffered(reader), mode)
        return Placed(key=name, checksum=reader.checksum, size=reader.size)


def _find(
    store: Store,
    name: str,
    content: Content,
    registered: Callable[[str], bool],
    meter: Meter | None,
) -> Placed | None:
    """What lies at `name`, if these are the same bytes and will stay."""
    info = _look(store, name)
    if info is None or not _stays(store, info, registered):
        return None
    size = content.size()
    if size is not None and size != info.size:
        return None
    with content.open() as stream:
        ours = read_through(HashingReader(stream, content.what))
    try:
        with store.open(name) as stored:
            theirs = read_through(HashingReader(stored, f"{name!r} in {store.url}"))
    except NotFoundError:
        # Collected meanwhile.
        return None
    # Again, because reading a large file takes its time.
    if ours.checksum != theirs.checksum or not _stays(store, info, registered):
        return None
    if meter is not None:
        meter.add(theirs.size)
    return Placed(key=name, checksum=theirs.checksum, size=theirs.size)


def _stays(store: Store, info: ObjectInfo, registered: Callable[[str], bool]) -> bool:
    return registered(info.key) or store.now() - info.modified < REUSE_SECONDS


def read_through(reader: HashingReader) -> HashingReader:
    """Read to the end, for the sum."""
    buffer = bytearray(CHUNK_BYTES)
    while reader.readinto(buffer):
        pass
    return reader


def _look(store: Store, key: str) -> ObjectInfo | None:
    try:
        return store.head(key)
    except NotFoundError:
        return None


def check_surroundings(store: Store, path: str) -> None:
    """Refuse a file where something needs a folder, either way round, by what the store holds.

    For people, not for safety: two publishers may pass at once, and the registration decides.
    """
    for parent in parents(path):
        if parent != FOLDER and _is_file(store, parent):
            raise InvalidKeyError(
                f"artifact path {path!r} needs the folder {parent!r}, "
                f"but that is a file in {store.url}: choose another path"
            )
    below = next(iter(store.children(path + "/")), None)
    if below is not None:
        raise InvalidKeyError(
            f"artifact path {path!r} would be a file, but it is a folder in {store.url} that "
            f"holds {below!r}: choose another path"
        )


def _is_file(store: Store, key: str) -> bool:
    try:
        return _look(store, key) is not None
    except StoreError as exc:
        # So says a place that has real folders of one.
        if exc.errno == errno.EISDIR:
            return False
        raise
