"""A part of a store as a store of its own: every key gets a prefix.

Closing it closes the inner store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from msgspec.structs import replace

from tapstore.abc import Store
from tapstore.keys import check_key, check_prefix
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, GetResult, ObjectInfo, PutMode, PutResult, Update


class PrefixStore(WrapperStore):
    """`PrefixStore(store, "a/b")` has the key `c` where `store` has `a/b/c`."""

    def __init__(self, inner: Store, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = check_key(prefix.strip("/")) + "/"
        self.url = f"{inner.url.rstrip('/')}/{self._prefix[:-1]}"

    @property
    def identity(self) -> str:
        return f"{self.inner.identity.rstrip('/')}/{self._prefix[:-1]}"

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        found = self.inner.get(self._full(key), start=start, end=end)
        return replace(found, info=replace(found.info, key=key))

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        found = self.inner.get_if_changed(self._full(key), version)
        return None if found is None else replace(found, info=replace(found.info, key=key))

    def head(self, key: str) -> ObjectInfo:
        return replace(self.inner.head(self._full(key)), key=key)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        return self.inner.put(self._full(key), data, mode)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self.inner.delete(self._full(key), version=version)

    def drop_empty_folders(self, key: str, *, below: str) -> None:
        self.inner.drop_empty_folders(self._full(key), below=self._prefix + below)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        found = self.inner.list(
            self._prefix + prefix, start_after=self._prefix + start_after if start_after else ""
        )
        return (replace(info, key=info.key[len(self._prefix) :]) for info in found)

    def children(self, prefix: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self.inner.children(self._prefix + prefix)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        return self.inner.upload(self._full(key), source, mode)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        return self.inner.open(self._full(key), start=start)

    def local_path(self, key: str) -> str:
        return self.inner.local_path(self._full(key))

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        """Sweeps the whole inner store; names outside of the prefix are not shown."""
        swept = self.inner.sweep(older_than_seconds, dry_run=dry_run)
        return tuple(
            name.removeprefix(self._prefix) for name in swept if name.startswith(self._prefix)
        )

    def _full(self, key: str) -> str:
        # A bad key makes a bad whole, which the inner store refuses.
        return self._prefix + key
