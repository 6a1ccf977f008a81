"""A store that passes everything on to another one: the base of the wrappers.

It promises what the inner store promises, and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from tapstore.abc import Store
from tapstore.types import (
    CREATE,
    Capabilities,
    Finding,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)


class WrapperStore(Store):
    """Passes every call on to `inner`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url

    # Asked when needed: some stores find out by writing.
    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return self.inner.capabilities

    @property
    def identity(self) -> str:
        return self.inner.identity

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        return self.inner.get(key, start=start, end=end)

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        return self.inner.get_if_changed(key, version)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        return self.inner.put(key, data, mode)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self.inner.delete(key, version=version)

    def drop_empty_folders(self, key: str, *, below: str) -> None:
        self.inner.drop_empty_folders(key, below=below)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after=start_after)

    def children(self, prefix: str = "") -> Iterator[str]:
        return self.inner.children(prefix)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        return self.inner.upload(key, source, mode)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        return self.inner.open(key, start=start)

    def now(self) -> float:
        return self.inner.now()

    def local_path(self, key: str) -> str:
        return self.inner.local_path(key)

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        return self.inner.sweep(older_than_seconds, dry_run=dry_run)

    def checkup(self) -> Iterator[Finding]:
        return self.inner.checkup()

    def close(self) -> None:
        self.inner.close()
