"""Killed at each system call that changes files: nothing half-written is ever seen."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("artifact_worker.py")

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="os.fork and SIGKILL are needed to crash at a system call"
)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    @functools.cache
    def run(what):
        root = tmp_path_factory.mktemp(what)
        done = subprocess.run(
            [sys.executable, WORKER, "crash", root, what],
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


JOBS = {
    "publish-file": "artifacts/p/x.py",
    "publish-taken": "artifacts/p/x~c1.py",
    "publish-tree": "artifacts/p/tree",
    "fetch-file": "out/x",
    "fetch-tree": "out/tree",
}
all_jobs = pytest.mark.parametrize("what", JOBS)


@all_jobs
def test_there_are_steps_to_be_killed_at(crashes, what):
    steps = crashes(what)
    assert len(steps) > 3
    assert [step["survived"] for step in steps] == [False] * (len(steps) - 1) + [True]


@all_jobs
def test_whatever_is_seen_after_a_crash_is_whole(crashes, what):
    for step in crashes(what):
        assert step["left"].items() <= step["after"].items(), step


@all_jobs
def test_the_next_attempt_ends_where_one_without_a_crash_does(crashes, what):
    steps = crashes(what)
    assert {step["result"] for step in steps} == {JOBS[what]}
    assert all(step["after"] == steps[-1]["after"] for step in steps)


def test_a_manifest_that_is_seen_has_all_its_files(crashes):
    for step in crashes("publish-tree"):
        if JOBS["publish-tree"] in step["left"]:
            assert step["left"] == step["after"]


def test_a_tree_is_seen_as_a_whole_or_not_at_all(crashes):
    for step in crashes("fetch-tree"):
        assert sum(name.startswith("out/") for name in step["left"]) in (0, 2)
