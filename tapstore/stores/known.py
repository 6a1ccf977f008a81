"""A store of which is remembered what it can do, so that it need not be tried out again."""

from __future__ import annotations

from tapstore.abc import Store
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import Capabilities


class KnownStore(WrapperStore):
    """`inner`, which was found to have these capabilities."""

    def __init__(self, inner: Store, capabilities: Capabilities) -> None:
        super().__init__(inner)
        self._known = capabilities

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return self._known
