"""What is measured and what it is compared with, under the names that reports use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from benchmarks.bare import Bare
from benchmarks.baselines import ExclusiveFileYaml, FileLockJson
from benchmarks.ours import Editing, Stepping
from benchmarks.ways import SharedWay, Way

WITH_LOCK = "tapstore, YAML, tapfile.lock"
WITHOUT_LOCK = "tapstore, JSON"
ORIGINAL_10 = "original way, 10 ms poll"
ORIGINAL_100 = "original way, 100 ms poll"
FILELOCK = "filelock + JSON"

# The original way: the original protocol's own, O_EXCL and YAML in pure Python.
SHARED: dict[str, Callable[..., SharedWay]] = {
    WITH_LOCK: partial(Editing, format="yaml", foreign=True),
    WITHOUT_LOCK: partial(Editing, format="json", foreign=False),
    ORIGINAL_10: partial(ExclusiveFileYaml, poll_seconds=0.01),
    ORIGINAL_100: partial(ExclusiveFileYaml, poll_seconds=0.1),
    FILELOCK: FileLockJson,
}
"""Several processes at once.  Each is made with `fsync=True` or `fsync=False`."""

OURS = (WITH_LOCK, WITHOUT_LOCK)
ORIGINALS = (ORIGINAL_10, ORIGINAL_100)


class Alone(NamedTuple):
    """One process, nobody else: a way to commit, and what it is held against."""

    name: str
    make: Callable[..., Way]
    floor: str | None = None
    """Name of the case that makes the same system calls and nothing else."""


def _pairs() -> list[Alone]:
    pairs = []
    for what, way in (("edit a field", Editing), ("set the phase", Stepping)):
        for label, make in (
            ("JSON", partial(way, format="json", foreign=False)),
            ("JSON, tapfile.lock", partial(way, format="json", foreign=True)),
            ("YAML, tapfile.lock", partial(way, format="yaml", foreign=True)),
        ):
            name = f"tapstore: {what}, {label}"
            pairs.append(Alone(f"calls of {name}", partial(Bare, make=make)))
            pairs.append(Alone(name, make, floor=f"calls of {name}"))
    return pairs


ALONE = [
    *_pairs(),
    Alone(FILELOCK, FileLockJson),
    Alone("original way", partial(ExclusiveFileYaml, poll_seconds=0.01)),
]
