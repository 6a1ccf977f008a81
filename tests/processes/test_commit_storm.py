"""Commits by processes that are killed and stopped at random.

Judged by the id of every single attempt: a sum alone can hide a lost commit behind another one
that landed although it was refused.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tapstore
from tapstore.sessions import history
from tapstore.tapfile import format

WORKER = Path(__file__).with_name("commit_worker.py")
SECONDS = 10


class Worker:
    def __init__(self, url, name, folder):
        self.name = name
        self.errors = folder / f"{name}.err"
        self.output = folder / f"{name}.out"
        with self.output.open("ab") as out, self.errors.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), url, name],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        assert self.process.wait(60) in (0, -signal.SIGKILL), self.errors.read_text()

    def outcomes(self):
        seen = {}
        for line in self.output.read_text().splitlines():
            record = json.loads(line)
            seen[record["attempt"]] = record["outcome"]
        return seen


def watch_tapfile(path, until):
    """Read the view without pause: it is never partial, empty or unparsable."""
    reads = 0
    while time.monotonic() < until:
        data = path.read_bytes()
        document = format.parse(data)
        assert document["session_id"] == "storm"
        reads += 1
        yield reads


def storm(url, folder, seconds, *, workers=8):
    generator = random.Random(os.urandom(8))
    names = iter(range(1_000_000))
    alive = [Worker(url, f"w{next(names)}", folder) for _ in range(workers)]
    everyone = list(alive)
    reader = watch_tapfile(Path(url) / ".tap" / "Tapfile", time.monotonic() + seconds)
    next_blow = time.monotonic() + 1
    stopped = []
    for _ in reader:
        now = time.monotonic()
        for entry in [e for e in stopped if e[0] <= now]:
            stopped.remove(entry)
            entry[1].process.send_signal(signal.SIGCONT)
        if now < next_blow:
            continue
        next_blow = now + generator.uniform(0.02, 0.2)
        victim = generator.choice(alive)
        if generator.random() < 0.5:
            victim.process.send_signal(signal.SIGSTOP)
            stopped.append((now + generator.uniform(0.01, 1.5), victim))
        else:
            victim.process.kill()
            victim.process.wait()
            victim.process.stdin.close()
            alive.remove(victim)
            fresh = Worker(url, f"w{next(names)}", folder)
            alive.append(fresh)
            everyone.append(fresh)
    for worker in alive:
        worker.end()
    return everyone


def check(session, workers):
    landed = Counter(
        entry.reason
        for entry in session.log()
        if "edit" in entry.operations and entry.by[:1] == "w"
    )
    outcomes = {}
    for worker in workers:
        outcomes |= worker.outcomes()
    acknowledged = {a for a, outcome in outcomes.items() if outcome == "ok"}
    refused = {a for a, outcome in outcomes.items() if outcome == "refused"}
    errors = "\n".join(w.errors.read_text() for w in workers)
    assert len(acknowledged) > 100, errors
    assert [a for a in acknowledged if landed[a] != 1] == [], "acknowledged, but not there once"
    assert [a for a in refused if landed[a]] == [], "refused, but there"
    assert [a for a in landed if landed[a] > 1 or a not in outcomes] == [], "there twice"
    assert sum(1 for o in outcomes.values() if o == "unknown") == 0
    assert session.tapfile.extra["counter"] == sum(landed.values())
    assert list(history.verify(session.state.log)) == []


CASES = [
    pytest.param("disk", 1, True, id="disk-keep1-foreign"),
    pytest.param("tmpfs", 2, True, id="tmpfs-keep2-foreign"),
    pytest.param("disk", 2, False, id="disk-keep2-own"),
    pytest.param("tmpfs", 1, False, id="tmpfs-keep1-own"),
]


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("place", "keep", "foreign"), CASES)
def test_every_acknowledged_commit_is_there_once_under_kill_and_stop(
    place, keep, foreign, tmp_path, tmpfs_path
):
    run(tmp_path if place == "disk" else tmpfs_path, tmp_path, keep, foreign, SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("place", "keep", "foreign"), CASES)
def test_the_same_for_ten_minutes(place, keep, foreign, tmp_path, tmpfs_path):
    run(tmp_path if place == "disk" else tmpfs_path, tmp_path, keep, foreign, 600)


def run(place, folder, keep, foreign, seconds):
    url = str(place / "storm")
    with tapstore.create(
        url, session_id="storm", fields={"counter": 0}, keep_revisions=keep, foreign=foreign,
        tapfile_format="json",
    ) as session:  # fmt: skip
        workers = storm(url, folder, seconds)
        check(session, workers)
