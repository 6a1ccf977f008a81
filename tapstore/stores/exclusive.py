"""Finds out whether an fsspec filesystem creates files exclusively.

A filesystem that accepts `mode="create"` may still ignore it, or look first and write then, so
acceptance counts for nothing.  Refused are: by structure, what inherits fsspec's own
look-then-write; by name, what is known to race too rarely to be caught; by trial, what lets a
second create through, what raises anything but FileExistsError, what has no or several winners
in a race of threads, or shows a part of what is being written.

A trial can refute, not prove: a window of microseconds may stay hidden.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from tapstore.keys import TEMP_MARK
from tapstore.stores.fileservers import FileServer

_THREADS = 4
_ROUNDS = 3
_START_SECONDS = 30
_BLOCK = 16 * 1024


def why_not(fs: Any, base: str) -> str:
    """Return why creation is not exclusive, or "" if nothing speaks against it.

    Writes and removes a few small objects whose path begins with `base`.  Errors of the
    filesystem itself are passed on.
    """
    reason = _by_structure(fs)
    if reason:
        return reason
    paths = [f"{base}{TEMP_MARK}{os.urandom(8).hex()}" for _ in range(1 + _ROUNDS)]
    try:
        reason = _by_trial(fs, paths[0]) or _by_race(fs, paths[1:])
        if not reason and isinstance(fs, FileServer):
            reason = fs.why_unreliable(base)
        return reason
    except (NotImplementedError, TypeError, ValueError) as exc:
        return f"it refuses mode='create' ({exc or type(exc).__name__})"
    finally:
        for path in paths:
            try:
                fs.rm_file(path)
            except (FileNotFoundError, NotImplementedError):
                pass


def _by_structure(fs: Any) -> str:
    if isinstance(fs, MemoryFileSystem):
        return "it looks and writes in two steps; open memory://name, which is tapstore's own"
    method = "_pipe_file" if isinstance(fs, AsyncFileSystem) else "pipe_file"
    inherited = AsyncFileSystem if isinstance(fs, AsyncFileSystem) else AbstractFileSystem
    if getattr(type(fs), method, None) is getattr(inherited, method):
        return "it looks and writes in two steps (pipe_file is the one of fsspec's base class)"
    return ""


def _by_trial(fs: Any, path: str) -> str:
    if not _create(fs, path, b"first"):
        return "it refuses to create what is not there"
    # An empty payload takes another way through some filesystems.
    for second in (b"second", b""):
        if _create(fs, path, second) or _read(fs, path) != b"first":
            return "it accepts mode='create' and overwrites what is there"
    return ""


def _by_race(fs: Any, paths: list[str]) -> str:
    # Where no further thread can be started, those that were wait for it.
    start = threading.Barrier(_THREADS, timeout=_START_SECONDS)
    payloads = [bytes([65 + number]) * _BLOCK for number in range(_THREADS)]

    def contend(path: str, payload: bytes) -> tuple[bool, bytes]:
        start.wait()
        won = _create(fs, path, payload)
        return won, _read(fs, path)

    with ThreadPoolExecutor(_THREADS) as pool:
        for path in paths:
            results = list(pool.map(contend, [path] * _THREADS, payloads))
            winners = [payload for payload, (won, _) in zip(payloads, results, strict=True) if won]
            if len(winners) != 1:
                return f"{len(winners)} of {_THREADS} concurrent creates of one file succeeded"
            if any(seen != winners[0] for _, seen in results):
                return "a file that is being created shows a part of its content"
    return ""


def _create(fs: Any, path: str, data: bytes) -> bool:
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _read(fs: Any, path: str) -> bytes:
    fs.invalidate_cache()
    found: bytes = fs.cat_file(path)
    return found
