"""The baselines are worth comparing with: they lose nothing under contention."""

import json
import multiprocessing
from pathlib import Path

import pytest

from benchmarks.baselines import BASELINES, Recorded, bare, bare_setup, first_document, record

WORKERS, COMMITS = 3, 15


def work(name: str, directory: Path, worker: str) -> None:
    baseline = BASELINES[name](fsync=False)
    baseline.setup(directory)
    for number in range(COMMITS):
        baseline.commit(worker, f"{worker}-{number}")


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_loses_no_commit_of_several_processes(name, tmp_path):
    baseline = BASELINES[name](fsync=False)
    baseline.setup(tmp_path)
    context = multiprocessing.get_context("spawn")
    workers = [f"w{number}" for number in range(WORKERS)]
    processes = [context.Process(target=work, args=(name, tmp_path, w)) for w in workers]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert baseline.recorded() == {w: Recorded(COMMITS, f"{w}-{COMMITS - 1}") for w in workers}


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_syncs_when_it_is_told_to(name, tmp_path):
    baseline = BASELINES[name](fsync=True)
    baseline.setup(tmp_path)
    baseline.commit("w", "w-0")
    assert baseline.recorded() == {"w": Recorded(1, "w-0")}


def test_the_document_is_of_about_two_kilobytes():
    document = first_document()
    for number in range(8):
        record(document, f"w{number}", f"w{number}-000001")
    assert 1_500 < len(json.dumps(document)) < 2_500


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("fsync", [False, True])
def test_the_bare_calls_leave_history_and_view(tmp_path, fsync, lock):
    bare_setup(tmp_path)
    bare(str(tmp_path), 1, b"content 1", b"record 1", fsync=fsync, lock=lock)
    bare(str(tmp_path), 2, b"content 2", b"record 2", fsync=fsync, lock=lock)
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == {
        "log/1": b"record 1",
        "log/2": b"record 2",
        "revisions/1": b"content 1",
        "revisions/2": b"content 2",
        "view": b"content 2",
    }
