"""The place that is examined, seen through two connections, as two agents would see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tapstore.abc import Clock, Store
from tapstore.doctor.workplace import Workplace
from tapstore.errors import StoreError, TapstoreError
from tapstore.stores.retry import TRANSIENT
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import Finding, Severity

Probe = Callable[["Subject"], Finding]

FIRST_REPLY_ATTEMPTS = 3


@dataclass
class Subject:
    """What a probe gets.  It writes below `work` alone."""

    store: Store
    """As sessions use it: lost replies are looked up, and refusals for a moment repeated."""

    other: Store
    """The same place through a connection of its own."""

    work: Workplace
    clock: Clock

    @property
    def raw(self) -> Store:
        """The store without what repeats and waits."""
        return innermost(self.store)

    def close(self) -> None:
        self.store.close()
        if self.other is not self.store:
            self.other.close()


def innermost(store: Store) -> Store:
    while isinstance(store, WrapperStore):
        store = store.inner
    return store


def patiently(subject: Subject, action: Callable[[], object]) -> None:
    """Do `action` up to three times: one refusal for a moment says nothing about a place."""
    for attempt in range(FIRST_REPLY_ATTEMPTS):
        try:
            action()
            return
        except StoreError as exc:
            if exc.errno not in TRANSIENT or attempt == FIRST_REPLY_ATTEMPTS - 1:
                raise
            subject.clock.sleep(0.2 * 2**attempt)


def tried(
    name: str, probes: Callable[[], Iterable[Finding]], severity: Severity = "fatal"
) -> Iterator[Finding]:
    """What `probes` finds; that it fails is a finding, too, as bad as `severity` says."""
    try:
        yield from probes()
    except (TapstoreError, OSError) as exc:
        yield Finding(name, severity, f"it could not be tried: {exc}")
