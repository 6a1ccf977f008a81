"""A store whose listings are out of date, as those of some places are now and then.

Only listings: what lies under a key that one knows is always what is there.  That is what
`Store.list` allows, and what nothing in tapstore may rely on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapstore.abc import Store
from tapstore.keys import check_prefix
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import ObjectInfo


class StaleListings(WrapperStore):
    """Passes calls on to `inner`; from `freeze` to `thaw` listings show what was there before."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._frozen: list[ObjectInfo] | None = None

    def freeze(self) -> None:
        """From now on, list what is there now."""
        self._frozen = list(self.inner.list())

    def thaw(self) -> None:
        """From now on, list what is there then."""
        self._frozen = None

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        if self._frozen is None:
            return self.inner.list(prefix, start_after=start_after)
        check_prefix(prefix)
        after = start_after.encode()
        return (
            info
            for info in self._frozen
            if info.key.startswith(prefix) and info.key.encode() > after
        )

    def children(self, prefix: str = "") -> Iterator[str]:
        if self._frozen is None:
            return self.inner.children(prefix)
        check_prefix(prefix)
        names = set()
        for info in self._frozen:
            if info.key.startswith(prefix):
                name, folder, _ = info.key[len(prefix) :].partition("/")
                names.add(name + folder)
        return iter(sorted(names, key=str.encode))
