"""The ways that are compared lose nothing under contention, and a loss would be noticed."""

import json

import pytest
import yaml

from benchmarks import contended
from benchmarks.cases import ALONE, ORIGINAL_10, SHARED
from benchmarks.places import Place
from benchmarks.ways import WORKERS, first_document

# Python 3.12 and newer warn of forking where there are threads, as under pytest-xdist.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.fixture
def place(tmp_path):
    return Place("disk", tmp_path, "any", fsync=False)


def test_no_way_loses_a_commit_of_several_processes(place):
    with contended.workers(3) as pipes:
        runs = [contended.run(pipes, way, place=place, seconds=0.2) for way in SHARED]
    assert {run.way: run.lost for run in runs} == dict.fromkeys(SHARED, 0)
    assert [run.way for run in runs if len(run.waits) < 3] == []


@pytest.mark.parametrize("name", SHARED)
def test_a_commit_that_was_acknowledged_but_is_not_there_is_missed(name, tmp_path):
    way = SHARED[name](fsync=False)
    way.create(tmp_path)
    way.open(tmp_path)
    way.commit("w00", "w00-0")
    assert way.missing({"w00": ["w00-0"], "w01": []}) == 0
    assert way.missing({"w00": ["w00-0"], "w01": ["w01-0"]}) == 1


def test_a_commit_that_is_undone_by_an_older_document_is_missed(tmp_path):
    way = SHARED[ORIGINAL_10](fsync=False)
    way.create(tmp_path)
    way.open(tmp_path)
    old = (tmp_path / "Tapfile").read_bytes()
    way.commit("w00", "w00-0")
    (tmp_path / "Tapfile").write_bytes(old)
    way.commit("w01", "w01-0")
    assert way.missing({"w00": ["w00-0"], "w01": ["w01-0"]}) == 1


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("fsync", [False, True])
def test_a_way_syncs_if_it_is_told_to(name, fsync, tmp_path, monkeypatch):
    way = SHARED[name](fsync=fsync)
    way.create(tmp_path)
    way.open(tmp_path)
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    way.commit("w00", "w00-0")
    assert bool(synced) == fsync


def test_the_document_is_of_about_two_kilobytes():
    assert 1_500 < len(json.dumps(first_document())) < 2_500


def test_all_ways_share_documents_of_about_the_same_size(tmp_path):
    sizes = {}
    for number, (name, make) in enumerate(SHARED.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        make(fsync=False).create(directory)
        (file,) = [f for f in directory.rglob("*") if f.name in ("Tapfile", "state.json")]
        sizes[name] = len(json.dumps(yaml.safe_load(file.read_bytes()), default=str))
    assert max(sizes.values()) < 1.3 * min(sizes.values()), sizes


def test_the_document_does_not_grow_with_the_workers(tmp_path):
    way = SHARED[ORIGINAL_10](fsync=False)
    way.create(tmp_path)
    way.open(tmp_path)
    before = len((tmp_path / "Tapfile").read_bytes())
    for worker in WORKERS:
        way.commit(worker, f"{worker}-0")
    assert len((tmp_path / "Tapfile").read_bytes()) == before


def test_each_case_is_held_against_one_that_is_measured():
    names = [case.name for case in ALONE]
    assert len(set(names)) == len(names)
    assert {case.floor for case in ALONE if case.floor} <= set(names)
