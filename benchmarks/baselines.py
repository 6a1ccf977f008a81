"""How people share a state file without tapstore, and the least that a durable commit costs.

A baseline does what a benchmark asks of tapstore: one read-modify-write of a document of about
2 kB that records who committed what.  Each worker writes its own entry only, so its count tells
whether an update was lost.

None of these survives the death of a lock holder (the O_EXCL file stays behind), fences one that
was paused, or keeps a history; they are measured under the best of conditions.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import yaml


class Recorded(NamedTuple):
    """What the document says about one worker."""

    commits: int
    last_attempt: str


class Baseline(ABC):
    """One way to share a document.  Make one in each process; the directory is what they share."""

    name: str

    def __init__(self, *, fsync: bool) -> None:
        self.fsync = fsync

    @abstractmethod
    def setup(self, directory: Path) -> None:
        """Use this directory; make the document if it is not there yet.

        Once alone before any other process does it, since the first document is not contended.
        """

    @abstractmethod
    def commit(self, worker: str, attempt: str) -> None:
        """Record the attempt and return when it is written, however long others take."""

    @abstractmethod
    def recorded(self) -> dict[str, Recorded]:
        """What the document says, by worker."""


def first_document() -> dict[str, Any]:
    """A session with two agents and some artifacts, as in the original Tapfile protocol."""
    return {
        "version": "1.0",
        "session_id": "benchmark",
        "participants": [
            {
                "role": role,
                "agent_id": f"{role}-01",
                "status": "working",
                "last_activity": "2024-04-15T10:30:00Z",
            }
            for role in ("coder", "reviewer")
        ],
        "current_phase": "coding_in_progress",
        "artifacts": [
            {
                "name": f"module_{number}.py",
                "path": f"artifacts/phase_1/module_{number}.py",
                "type": "code",
                "producer": "coder-01",
                "consumer": ["reviewer-01"],
                "checksum": f"sha256:{number:064x}",
            }
            for number in range(6)
        ],
        "commits": {},
    }


def record(document: dict[str, Any], worker: str, attempt: str) -> None:
    """The modification that every benchmark makes."""
    entry = document["commits"].setdefault(worker, {"count": 0})
    entry["count"] += 1
    entry["attempt"] = attempt


def _recorded(document: dict[str, Any]) -> dict[str, Recorded]:
    return {
        worker: Recorded(entry["count"], entry["attempt"])
        for worker, entry in document["commits"].items()
    }


def _replace(path: Path, data: bytes, *, fsync: bool) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if fsync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if fsync:
        _sync_folder(path.parent)


def _sync_folder(folder: str | os.PathLike[str]) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class ExclusiveFileYaml(Baseline):
    """The original protocol: a lock file made with O_EXCL and polled, YAML in pure Python."""

    def __init__(self, *, fsync: bool, poll_seconds: float) -> None:
        super().__init__(fsync=fsync)
        self.name = f"O_EXCL + YAML, {poll_seconds * 1000:g} ms poll"
        self._poll_seconds = poll_seconds

    def setup(self, directory: Path) -> None:
        self._tapfile = directory / "Tapfile"
        self._lock_file = directory / "tapfile.lock"
        if not self._tapfile.exists():
            self._write(first_document())

    def commit(self, worker: str, attempt: str) -> None:
        with self._locked():
            document = self._read()
            record(document, worker, attempt)
            self._write(document)

    def recorded(self) -> dict[str, Recorded]:
        return _recorded(self._read())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            try:
                os.close(os.open(self._lock_file, os.O_CREAT | os.O_EXCL | os.O_RDWR))
            except FileExistsError:
                time.sleep(self._poll_seconds)
            else:
                break
        try:
            yield
        finally:
            os.unlink(self._lock_file)

    # The loaders in pure Python are what `yaml.safe_load` and `yaml.dump` take.
    def _read(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.load(self._tapfile.read_bytes(), Loader=yaml.SafeLoader)
        return document

    def _write(self, document: dict[str, Any]) -> None:
        text = yaml.dump(document, Dumper=yaml.SafeDumper, default_flow_style=False)
        _replace(self._tapfile, text.encode(), fsync=self.fsync)


class FileLockJson(Baseline):
    """What a careful Python programmer does: `filelock` (flock), JSON, write aside and rename."""

    name = "filelock + JSON"

    def setup(self, directory: Path) -> None:
        self._file = directory / "state.json"
        self._lock = filelock.FileLock(directory / "state.lock")
        if not self._file.exists():
            self._write(first_document())

    def commit(self, worker: str, attempt: str) -> None:
        with self._lock:
            document = self._read()
            record(document, worker, attempt)
            self._write(document)

    def recorded(self) -> dict[str, Recorded]:
        return _recorded(self._read())

    def _read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._file.read_bytes())
        return document

    def _write(self, document: dict[str, Any]) -> None:
        _replace(self._file, json.dumps(document).encode(), fsync=self.fsync)


BASELINES: dict[str, Callable[..., Baseline]] = {
    "excl-yaml-10ms": partial(ExclusiveFileYaml, poll_seconds=0.01),
    "excl-yaml-100ms": partial(ExclusiveFileYaml, poll_seconds=0.1),
    "filelock-json": FileLockJson,
}
"""By a short name; each is made with `fsync=True` or `fsync=False`."""


BARE_CALLS = """\
lock:    open(O_CREAT|O_EXCL) close
look:    open (the next record is not there)
content: open(O_CREAT|O_EXCL) write [fsync] close [fsync of its folder]
record:  open(O_CREAT|O_EXCL) write [fsync] close link unlink [fsync of its folder]
view:    open write [fsync] close rename [fsync of its folder]
lock:    unlink"""
"""What `bare` calls, for reports; in brackets: with fsync only."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def bare_setup(directory: Path) -> None:
    """Make the folders that `bare` writes into."""
    for folder in ("log", "revisions"):
        (directory / folder).mkdir()


def bare(
    directory: str, number: int, content: bytes, record: bytes, *, fsync: bool, lock: bool
) -> None:
    """The system calls of one uncontended durable commit, and nothing else.

    No rules, no parsing, no hashes: the floor under any library that keeps each content, commits
    by `link` and shows the newest content as a file.  `lock`: with the O_EXCL file around it.
    """
    log, revisions = f"{directory}/log", f"{directory}/revisions"
    if lock:
        os.close(os.open(f"{directory}/tapfile.lock", _NEW))
    try:
        os.close(os.open(f"{log}/{number}", os.O_RDONLY))
    except FileNotFoundError:
        pass
    else:
        raise FileExistsError(f"{log}/{number} is there: every commit needs a number of its own")
    _write_new(f"{revisions}/{number}", content, fsync=fsync)
    if fsync:
        _sync_folder(revisions)
    _write_new(f"{log}/tmp", record, fsync=fsync)
    os.link(f"{log}/tmp", f"{log}/{number}")
    os.unlink(f"{log}/tmp")
    if fsync:
        _sync_folder(log)
    _write_new(f"{directory}/view.tmp", content, fsync=fsync)
    os.rename(f"{directory}/view.tmp", f"{directory}/view")
    if fsync:
        _sync_folder(directory)
    if lock:
        os.unlink(f"{directory}/tapfile.lock")


def _write_new(path: str, data: bytes, *, fsync: bool) -> None:
    fd = os.open(path, _NEW, 0o666)
    try:
        os.write(fd, data)
        if fsync:
            os.fsync(fd)
    finally:
        os.close(fd)
