"""A store in the memory of this process: the model that every other store is compared with.

It promises nothing across processes, and forgets everything when the process ends.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO
from urllib.parse import urlsplit

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import InvalidKeyError
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

_PAGE = 1000
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    version: str
    modified: float


class _Space:
    """The objects of one name, and the one mutex that makes each operation on them atomic."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.objects: dict[str, _Object] = {}
        self.keys: list[str] = []
        """The keys of `objects`, sorted: code points order like their UTF-8 bytes."""
        self.writes = 0


_spaces: dict[str, _Space] = {}
_spaces_mutex = threading.Lock()


class MemoryStore(Store):
    """Bytes under a mutex, with native Update and conditional delete.

    `memory://name/folder` is shared by all who open it in this process: `name` is the space,
    `folder` a prefix in it.  `MemoryStore()` is private.
    """

    capabilities = Capabilities(create=True, update=True, conditional_delete=True, files=False)

    def __init__(self, url: str = "memory://", *, clock: Clock = SYSTEM_CLOCK) -> None:
        parts = urlsplit(url)
        if parts.scheme != "memory":
            raise InvalidKeyError(f"not a memory URL: {url!r}; write memory://name")
        folder = parts.path.strip("/")
        self._base = check_key(folder) + "/" if folder else ""
        self.url = f"memory://{parts.netloc}/{folder}".rstrip("/") if parts.netloc else "memory://"
        self._clock = clock
        if parts.netloc:
            with _spaces_mutex:
                self._space = _spaces.setdefault(parts.netloc, _Space())
        else:
            self._space = _Space()

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        check_key(key)
        failures.check_range(start, end)
        found = self._find(key)
        return GetResult(data=found.data[start:end], info=_info(key, found))

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return _info(key, self._find(key))

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        content = bytes(data)
        space, name = self._space, self._base + key
        with space.mutex:
            present = space.objects.get(name)
            if mode is CREATE and present is not None:
                raise failures.already_exists(self.url, key)
            if isinstance(mode, Update):
                self._compare(key, mode.version, present)
            space.writes += 1
            written = _Object(content, str(space.writes), self._clock.time())
            if present is None:
                insort(space.keys, name)
            space.objects[name] = written
        return PutResult(version=written.version, modified=written.modified)

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        space, name = self._space, self._base + key
        with space.mutex:
            present = space.objects.get(name)
            if present is None:
                return
            if version is not None:
                self._compare(key, version, present)
            del space.objects[name]
            del space.keys[bisect_left(space.keys, name)]

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._list(self._base + prefix, self._base + start_after)

    def _list(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        space = self._space
        while True:
            with space.mutex:
                first = max(bisect_left(space.keys, prefix), bisect_right(space.keys, after))
                page = space.keys[first : first + _PAGE]
                found = [
                    _info(name[len(self._base) :], space.objects[name])
                    for name in page
                    if name.startswith(prefix)
                ]
            yield from found
            if len(found) < _PAGE:
                return
            after = page[-1]

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._children(self._base + prefix)

    def _children(self, folder: str) -> Iterator[str]:
        space = self._space
        at = folder
        while True:
            with space.mutex:
                index = bisect_left(space.keys, at)
                name = space.keys[index] if index < len(space.keys) else ""
            if not name.startswith(folder) or not name:
                return
            child, slash, _ = name[len(folder) :].partition("/")
            yield child + slash
            # "0" follows "/": the smallest name after everything below this child.
            at = f"{folder}{child}0" if slash else f"{name}\0"

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        check_key(key)
        # Asked until it has no more: an unbuffered source may give less than it is asked for.
        return self.put(key, b"".join(iter(partial(source.read, _CHUNK), b"")), mode)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        return io.BytesIO(self.get(key, start=start).data)

    def now(self) -> float:
        return self._clock.time()

    def _find(self, key: str) -> _Object:
        present = self._space.objects.get(self._base + key)
        if present is None:
            raise failures.not_found(self.url, key)
        return present

    def _compare(self, key: str, version: str, present: _Object | None) -> None:
        found = None if present is None else present.version
        if found != version:
            raise failures.conflict(self.url, key, expected=version, found=found)


def _info(key: str, stored: _Object) -> ObjectInfo:
    return ObjectInfo(
        key=key, size=len(stored.data), version=stored.version, modified=stored.modified
    )
