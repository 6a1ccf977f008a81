"""The least that a commit of tapstore costs: its system calls, and nothing else.

One commit of a real session is recorded, then its calls are made again and again with the same
bytes, under the next numbers.  As often as tapstore does, old contents are removed.  No rules, no
parsing, no hashes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.calls import Call, described, recording
from benchmarks.ours import Editing
from benchmarks.ways import WORKERS, Way

_NUMBER = re.compile(r"(.*/)([0-9]{12})(-[0-9a-f]+)?")
_WARM_UP = 3

KEEP, INTERVAL = 64, 32
"""How many contents tapstore keeps, and after how many commits it removes the others."""


class Bare(Way):
    """The calls of one commit of another way, which is made by `make`."""

    def __init__(self, *, fsync: bool, make: Callable[..., Editing]) -> None:
        super().__init__(fsync=fsync)
        self._way = make(fsync=fsync)

    def create(self, directory: Path) -> None:
        self._way.create(directory)

    def open(self, directory: Path) -> None:
        self._way.open(directory)
        for number in range(_WARM_UP):
            self._way.commit(WORKERS[0], f"warm-{number}")
        with recording() as calls:
            self._way.commit(WORKERS[0], "recorded-0")
        self.lines = described(calls, directory)
        self.calls = len(calls)
        self._steps = [_Step.of(call) for call in calls]
        links = [step.paths[1] for step in self._steps if step.name == "link"]
        (self._content,) = (name for name in links if "/revisions/" in name.path)
        self._count = 0

    def commit(self, worker: str, attempt: str) -> None:  # noqa: ARG002 - it commits nothing
        self._count = count = self._count + 1
        files: dict[int, int] = {}
        for name, function, paths, args, fd, missing in self._steps:
            if missing:
                try:
                    function(paths[0].at(count), *args)
                except FileNotFoundError:
                    continue
                raise FileExistsError(paths[0].at(count))
            if not paths:
                function(files.get(fd, fd), *args)
            elif name == "open":
                files[fd] = function(paths[0].at(count), *args)
            else:
                function(*[path.at(count) for path in paths], *args)
        if count % INTERVAL == 0:
            self._collect(count - KEEP)

    def _collect(self, through: int) -> None:
        with os.scandir(os.path.dirname(self._content.path)) as found:
            list(found)
        for count in range(max(1, through - INTERVAL + 1), through + 1):
            os.unlink(self._content.at(count))


class _Name(NamedTuple):
    """A path; one with the number of a commit in it is another one at each commit."""

    path: str
    number: int = 0
    rest: str = ""

    @classmethod
    def of(cls, path: str) -> _Name:
        match = _NUMBER.fullmatch(path)
        return cls(path) if match is None else cls(match[1], int(match[2]), match[3] or "")

    def at(self, count: int) -> str:
        if self.number == 0:
            return self.path
        return f"{self.path}{self.number + count:012d}{self.rest}"


class _Step(NamedTuple):
    name: str
    function: Callable[..., Any]
    paths: tuple[_Name, ...]
    args: tuple[Any, ...]
    fd: int
    missing: bool

    @classmethod
    def of(cls, call: Call) -> _Step:
        paths = tuple(map(_Name.of, call.paths))
        fd = -1 if call.fd is None else call.fd
        return cls(call.name, call.function, paths, call.args, fd, call.missing)
