"""Records which system calls on files a piece of code makes.

What goes through `os` and `flock` is seen.  Of what tapstore does strace shows nothing else but
getrandom and getpid, which are left out.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

_BY_PATH = ("open", "link", "rename", "replace", "unlink", "stat", "lstat", "mkdir", "readlink")
_BY_FD = ("read", "write", "fsync", "fstat", "utime", "ftruncate", "pread", "lseek", "close")
_SYSTEM_NAMES = {
    "open": "openat", "replace": "rename", "stat": "newfstatat", "lstat": "newfstatat",
    "utime": "utimensat",
}  # fmt: skip
_RANDOM = re.compile(r"[0-9a-f]{16}")


class Call(NamedTuple):
    """One call."""

    name: str
    function: Callable[..., Any]
    paths: tuple[str, ...]
    """What it is about, or `fd` is."""

    args: tuple[Any, ...]
    """The other arguments."""

    fd: int | None
    """Of the file that it opens or uses."""

    missing: bool
    """The file was not there."""


@contextmanager
def recording() -> Iterator[list[Call]]:
    """Note the calls of the block."""
    calls: list[Call] = []

    def by_path(name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def call(*args: Any) -> Any:
            paths = tuple(os.fspath(arg) for arg in args if isinstance(arg, (str, Path)))
            rest = args[len(paths) :]
            try:
                result = function(*args)
            except FileNotFoundError:
                calls.append(Call(name, function, paths, rest, None, True))
                raise
            fd = result if name == "open" else None
            calls.append(Call(name, function, paths, rest, fd, False))
            return result

        return call

    def by_fd(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *args: Any) -> Any:
            calls.append(Call(name, function, (), args, fd, False))
            return function(fd, *args)

        return call

    with ExitStack() as stack:
        # What is collected meanwhile may close and remove files that have nothing to do with it.
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        for name in _BY_PATH:
            stack.enter_context(mock.patch.object(os, name, by_path(name)))
        for name in _BY_FD:
            stack.enter_context(mock.patch.object(os, name, by_fd(name, getattr(os, name))))
        stack.enter_context(mock.patch.object(fcntl, "flock", by_fd("flock", fcntl.flock)))
        yield calls


def described(calls: list[Call], directory: Path) -> list[str]:
    """A line for each file and what is done to it in a row; paths relative to `directory`."""
    opened: dict[int, str] = {}
    lines: list[tuple[str, list[str]]] = []
    for call in calls:
        about = " ".join(_RANDOM.sub("*", os.path.relpath(path, directory)) for path in call.paths)
        if call.fd is not None:
            about = opened.setdefault(call.fd, about or "(a file that stays open)")
            if call.name == "open":
                about = opened[call.fd] = " ".join(
                    _RANDOM.sub("*", os.path.relpath(path, directory)) for path in call.paths
                )
        name = _SYSTEM_NAMES.get(call.name, call.name) + (" (not there)" if call.missing else "")
        if not lines or lines[-1][0] != about:
            lines.append((about, []))
        lines[-1][1].append(name)
    return [f"{about}: {', '.join(names)}" for about, names in lines]
