"""How people share a state file without tapstore.

None of these survives the death of a lock holder (the O_EXCL file stays behind), fences one that
was paused, or keeps a history; they are measured under the best of conditions.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import yaml

from benchmarks.ways import SharedWay, count, first_document, miscounted


def _replace(path: Path, data: bytes, *, fsync: bool) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if fsync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if fsync:
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class ExclusiveFileYaml(SharedWay):
    """The original protocol: a lock file made with O_EXCL and polled, YAML in pure Python."""

    def __init__(self, *, fsync: bool, poll_seconds: float) -> None:
        super().__init__(fsync=fsync)
        self.attempts: int = 0
        self._poll_seconds = poll_seconds

    def create(self, directory: Path) -> None:
        self.open(directory)
        self._write(first_document())

    def open(self, directory: Path) -> None:
        self._tapfile = directory / "Tapfile"
        self._lock_file = directory / "tapfile.lock"

    def commit(self, worker: str, attempt: str) -> None:  # noqa: ARG002 - no history
        with self._locked():
            document = self._read()
            count(document, worker)
            self._write(document)

    def missing(self, acknowledged: Mapping[str, Sequence[str]]) -> int:
        return miscounted(self._read(), acknowledged)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            self.attempts += 1
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


class FileLockJson(SharedWay):
    """What a careful Python programmer does: `filelock` (flock), JSON, write aside and rename."""

    attempts = None

    def create(self, directory: Path) -> None:
        self.open(directory)
        self._write(first_document())

    def open(self, directory: Path) -> None:
        self._file = directory / "state.json"
        self._lock = filelock.FileLock(directory / "state.lock")

    def commit(self, worker: str, attempt: str) -> None:  # noqa: ARG002 - no history
        with self._lock:
            document = self._read()
            count(document, worker)
            self._write(document)

    def missing(self, acknowledged: Mapping[str, Sequence[str]]) -> int:
        return miscounted(self._read(), acknowledged)

    def _read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._file.read_bytes())
        return document

    def _write(self, document: dict[str, Any]) -> None:
        _replace(self._file, json.dumps(document).encode(), fsync=self.fsync)
