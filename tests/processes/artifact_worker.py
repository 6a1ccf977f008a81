"""Publishes and fetches in a process of its own: `artifact_worker.py COMMAND ARGS…`.

race ROOT NAME       for each line on standard input publish different bytes at that one path
crash ROOT WHAT      be killed at each system call that changes files, and say what was left
stream ROOT BYTES    publish a stream and fetch it, and tell the peak of memory before and after
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tapstore.artifacts.fetch import fetch_to
from tapstore.artifacts.model import to_doc
from tapstore.artifacts.publish import stage
from tapstore.keys import TEMP_MARK
from tapstore.stores.local import LocalStore

CHANGES = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
"""Audit events of what may leave something behind."""


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def signed(body: bytes) -> bytes:
    """Bytes that tell whether they are whole."""
    return hashlib.sha256(body).digest() + body


def is_whole(data: bytes) -> bool:
    return hashlib.sha256(data[32:]).digest() == data[:32]


def race(root: str, name: str) -> None:
    store = LocalStore(root, durability="none")
    for line in sys.stdin:
        path = line.strip()
        data = signed(random.randbytes(random.choice([10, 1_000, 100_000, 2_000_000])))
        sources = [data, io.BytesIO(data), Unseekable(iter([data]))]
        artifact = stage(store, random.choice(sources), name="x", phase="p", path=path, suffix=name)
        say(artifact=to_doc(artifact), checksum="sha256:" + hashlib.sha256(data).hexdigest())


class Unseekable(io.RawIOBase):
    """A stream made of chunks."""

    def __init__(self, chunks: object) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def crash(root: str, what: str) -> None:
    for step in itertools.count(1):
        folder = Path(root) / str(step)
        folder.mkdir(parents=True)
        survived = _killed_at(step, lambda folder=folder: JOBS[what](folder))
        left = _visible(folder)
        result = JOBS[what](folder)
        say(step=step, survived=survived, left=left, result=result, after=_visible(folder))
        if survived:
            return


def _visible(folder: Path) -> dict[str, str]:
    """The sums of all files that do not have the name of an unfinished write."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and TEMP_MARK not in str(path)
    }


def _killed_at(step: int, job: Callable[[], object]) -> bool:
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, args: tuple[object, ...]) -> None:
            nonlocal seen
            # Reading changes nothing.
            if event in CHANGES and not (event == "open" and not args[2] & os.O_CREAT):
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        job()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
        raise SystemExit(f"{job} failed at step {step}")
    return os.waitstatus_to_exitcode(status) == 0


def _publish_file(folder: Path) -> str:
    source = Unseekable(iter([b"x" * 100_000] * 3))
    return stage(LocalStore(folder), source, name="x.py", phase="p", suffix="c1").path


def _publish_taken(folder: Path) -> str:
    (folder / "artifacts/p").mkdir(parents=True, exist_ok=True)
    (folder / "artifacts/p/x.py").write_bytes(b"other")
    return _publish_file(folder)


def _publish_tree(folder: Path) -> str:
    return stage(LocalStore(folder), _tree(folder), name="tree", phase="p", suffix="c1").path


def _tree(folder: Path) -> Path:
    tree = folder.parent / "tree"
    if not tree.exists():
        (tree / "sub").mkdir(parents=True)
        (tree / "a").write_bytes(b"one")
        (tree / "sub/b").write_bytes(b"two")
    return tree


def _fetch_file(folder: Path) -> str:
    store = LocalStore(folder / "session")
    artifact = stage(store, b"new" * 100_000, name="x", phase="p", suffix="c1")
    return _relative(folder, fetch_to(store, artifact, folder / "out/x"))


def _fetch_tree(folder: Path) -> str:
    store = LocalStore(folder / "session")
    artifact = stage(store, _tree(folder), name="tree", phase="p", suffix="c1")
    if (folder / "out/tree").exists():
        return "out/tree"
    return _relative(folder, fetch_to(store, artifact, folder / "out/tree"))


def _relative(folder: Path, path: str) -> str:
    return str(Path(path).relative_to(folder))


JOBS = {
    "publish-file": _publish_file,
    "publish-taken": _publish_taken,
    "publish-tree": _publish_tree,
    "fetch-file": _fetch_file,
    "fetch-tree": _fetch_tree,
}


def stream(root: str, size: str) -> None:
    store = LocalStore(Path(root) / "session", durability="none")
    stage(store, b"warm", name="warm", phase="p", suffix="c1")
    before = _peak_bytes()
    chunks = int(size) // 1_000_000
    source = Unseekable(bytes([i % 256]) * 1_000_000 for i in range(chunks))
    artifact = stage(store, source, name="x", phase="p", suffix="c1")
    fetch_to(store, artifact, Path(root) / "x")
    say(size=artifact.size, peak=_peak_bytes() - before)


def _peak_bytes() -> int:
    # Not getrusage: that also counts the process that this one was forked from.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell the peak of memory")


if __name__ == "__main__":
    {"race": race, "crash": crash, "stream": stream}[sys.argv[1]](*sys.argv[2:])
