"""What tapstore is held against makes the system calls of a commit, and no other ones."""

import os
import re

import pytest

from benchmarks.bare import INTERVAL
from benchmarks.calls import described, recording
from benchmarks.cases import ALONE

OURS = {case.name: case for case in ALONE if case.floor}
FLOORS = {case.name: case for case in ALONE}


def calls_of(make, directory, *, fsync):
    directory.mkdir()
    way = make(fsync=fsync)
    way.create(directory)
    # From the start: what is made again goes through the functions that were found then.
    with recording() as calls:
        way.open(directory)
        way.commit("w00", "one-0")
        calls.clear()
        way.commit("w00", "two-0")
    return [re.sub("[0-9]{12}", "<number>", line) for line in described(calls, directory)]


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("name", OURS)
def test_the_bare_calls_are_those_of_a_commit(name, fsync, tmp_path):
    case = OURS[name]
    ours = calls_of(case.make, tmp_path / "ours", fsync=fsync)
    bare = calls_of(FLOORS[case.floor].make, tmp_path / "bare", fsync=fsync)
    assert bare == ours


def test_each_bare_commit_makes_a_record_and_a_content_of_its_own(tmp_path):
    bare = ALONE[0].make(fsync=False)
    bare.create(tmp_path)
    bare.open(tmp_path)

    def files():
        return {path for path in tmp_path.rglob("*") if path.parent.name != "artifacts"}

    before = files()
    for number in range(5):
        bare.commit("w00", f"{number}")
    made = [path.parent.name for path in files() - before]
    assert sorted(made) == ["000000000"] * 5 + ["revisions"] * 5


def test_bare_commits_keep_as_many_contents_as_a_session_does(tmp_path):
    kept = []
    for number, case in enumerate(ALONE[:2]):
        directory = tmp_path / str(number)
        directory.mkdir()
        way = case.make(fsync=False)
        way.create(directory)
        way.open(directory)
        for commit in range(200):
            way.commit("w00", f"{commit}")
        kept.append(len(list(directory.glob(".tap/*/revisions/*"))))
    # They collect at other numbers: the bare ones begin after those that were recorded.
    assert abs(kept[0] - kept[1]) <= INTERVAL


def test_a_recording_shows_what_was_not_there(tmp_path):
    with recording() as calls, pytest.raises(FileNotFoundError):
        os.open(tmp_path / "nothing", os.O_RDONLY)
    assert described(calls, tmp_path) == ["nothing: openat (not there)"]


def test_a_recording_changes_nothing_afterwards():
    before = (os.open, os.link, os.close)
    with recording():
        pass
    assert (os.open, os.link, os.close) == before
