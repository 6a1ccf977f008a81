"""Several processes publish at one path, again and again, while somebody looks."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tapstore.artifacts.fetch import read_bytes
from tapstore.artifacts.model import from_doc
from tapstore.errors import NotFoundError
from tapstore.stores.local import LocalStore
from tests.processes.artifact_worker import is_whole

WORKER = Path(__file__).with_name("artifact_worker.py")


def race(root, *, publishers, rounds):
    workers = [
        subprocess.Popen(
            [sys.executable, WORKER, "race", root, f"c{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(publishers)
    ]
    try:
        for number in range(rounds):
            for worker in workers:
                worker.stdin.write(f"artifacts/p/x-{number}.bin\n")
                worker.stdin.flush()
            yield [json.loads(worker.stdout.readline()) for worker in workers]
    finally:
        for worker in workers:
            worker.communicate()
    assert [worker.returncode for worker in workers] == [0] * publishers


class Onlooker(threading.Thread):
    """Reads whatever shows, and keeps what was not whole."""

    def __init__(self, root):
        super().__init__()
        self._store = LocalStore(root)
        self._ended = threading.Event()
        self.looks = 0
        self.partial = []

    def run(self):
        while not self._ended.is_set():
            newest = sorted(self._store.list("artifacts/p/"), key=lambda info: info.modified)
            for info in newest[-4:]:
                try:
                    data = self._store.get(info.key).data
                except NotFoundError:
                    continue
                self.looks += 1
                if not is_whole(data):
                    self.partial.append(info.key)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()


def check(root, *, publishers, rounds):
    store = LocalStore(root)
    with Onlooker(root) as onlooker:
        published = [
            (number, result)
            for number, results in enumerate(race(root, publishers=publishers, rounds=rounds))
            for result in results
        ]
    assert len(published) == publishers * rounds
    first_paths = 0
    for number, result in published:
        artifact = from_doc(result["artifact"])
        assert artifact.checksum == result["checksum"]
        read_bytes(store, artifact)
        first_paths += artifact.path == f"artifacts/p/x-{number}.bin"
    # Each has its own path, and each asked path went to exactly one.
    assert len({result["artifact"]["path"] for _, result in published}) == len(published)
    assert first_paths == rounds
    assert onlooker.looks > rounds
    assert onlooker.partial == []


def test_publishers_of_one_path_keep_their_bytes_and_nobody_sees_a_part(tmp_path):
    check(tmp_path, publishers=3, rounds=40)


@pytest.mark.soak
def test_publishers_of_one_path_keep_their_bytes_for_long(tmp_path):
    check(tmp_path, publishers=4, rounds=500)
