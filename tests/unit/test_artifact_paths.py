import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import (
    alternatives,
    check_beside,
    check_name,
    check_path,
    check_phase,
    default_path,
    describe,
)
from tapstore.errors import InvalidKeyError
from tapstore.keys import is_key


def test_the_default_path_names_phase_and_artifact():
    assert default_path("phase_1", "x.py") == "artifacts/phase_1/x.py"


def test_without_a_phase_the_artifact_lies_directly_in_the_folder():
    assert default_path("", "x.py") == "artifacts/x.py"


@pytest.mark.parametrize(
    "path",
    ["artifacts/p/x.py", "out/report.md", "$(touch x); rm -rf .py", "artifacts/p/.gitignore",
     "taps/.tap", "artifacts/.objects.txt", "日本語/結果.md"],
)  # fmt: skip
def test_ordinary_paths_pass(path):
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "'..'"),
        ("artifacts/../.tap/Tapfile", "'..'"),
        ("/etc/passwd", "absolute"),
        ("artifacts/p/x\0.py", "not portable"),
        ("artifacts\\p\\x.py", "not portable"),
        ("artifacts/p/CON", "reserved name"),
        ("artifacts/p/aux.txt", "reserved name"),
        ("artifacts/p/x.", "ends in a dot"),
        ("artifacts//x", "segment ''"),
        ("./artifacts/p/x", "segment '.'"),
        ("artifacts/p/cafe\u0301", "normal form"),
        ("artifacts/p/" + "x" * 201, "longer than"),
        (".tap/Tapfile", "keeps for itself"),
        (".tap", "keeps for itself"),
        (".TAP/Tapfile", "keeps for itself"),
        ("inbox/coder/task.json", "keeps for itself"),
        ("Logs/a.log", "keeps for itself"),
        ("handoffs/x", "keeps for itself"),
        ("artifacts/.objects/aa/x", "keeps for itself"),
        ("artifacts/.collected", "keeps for itself"),
        (".git/config", "git keeps for itself"),
        (".GIT", "git keeps for itself"),
        ("artifacts", "has to be"),
    ],
)
def test_paths_that_leave_their_place_are_refused_with_the_reason(path, reason):
    with pytest.raises(InvalidKeyError, match=reason):
        check_path(path)


def test_a_file_below_another_artifact_is_refused():
    with pytest.raises(InvalidKeyError, match=r"needs the folder 'artifacts/p/a'"):
        check_path("artifacts/p/a/b", registered=["artifacts/p/a"])


def test_a_file_above_another_artifact_is_refused():
    with pytest.raises(InvalidKeyError, match=r"'artifacts/p/a/b' needs a folder"):
        check_path("artifacts/p/a", registered=["artifacts/p/a/b"])


def test_a_name_that_only_begins_alike_may_stand_beside():
    check_beside("artifacts/p/a.txt", ["artifacts/p/a", "artifacts/p/a.txt", "artifacts/p/ab/c"])


def test_uris_stand_beside_nothing():
    check_beside("s3://bucket/a/b", ["s3://bucket/a", "s3:"])


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a\nb", "nul", "x:y", " x", "x" * 121, "語" * 67, "\ud800"]
)
def test_names_that_cannot_be_files_are_refused(name):
    with pytest.raises(InvalidKeyError, match="artifact name"):
        check_name(name)


def test_a_phase_with_a_slash_is_refused():
    with pytest.raises(InvalidKeyError, match=r"phase 'a/b' contains '/'"):
        check_phase("a/b")


@pytest.mark.parametrize(
    ("path", "second", "third"),
    [
        ("a/x.py", "a/x~c1.py", "a/x~c1-2.py"),
        ("a/x.tar.gz", "a/x.tar~c1.gz", "a/x.tar~c1-2.gz"),
        ("a.d/Makefile", "a.d/Makefile~c1", "a.d/Makefile~c1-2"),
        (".gitignore", ".gitignore~c1", ".gitignore~c1-2"),
    ],
)
def test_the_suffix_stands_before_the_extension(path, second, third):
    assert list(itertools.islice(alternatives(path, "c1"), 3)) == [path, second, third]


@given(st.text(st.sampled_from("ab.~-"), min_size=1, max_size=8).filter(is_key))
def test_all_alternatives_are_different_keys(path):
    names = list(alternatives(path, "c1"))
    assert len(set(names)) == len(names)
    assert all(map(is_key, names))


def test_a_name_without_room_for_the_suffix_is_refused_before_anything_is_written():
    with pytest.raises(InvalidKeyError, match="longer than"):
        alternatives("artifacts/p/" + "x" * 190, "0123456789abcdef")


@pytest.mark.parametrize("suffix", ["", "a/b", "..", "a.b", "~", "x" * 65, "ä"])
def test_a_suffix_that_would_change_the_path_is_refused(suffix):
    with pytest.raises(InvalidKeyError, match="suffix"):
        alternatives("a/x.py", suffix)


def test_a_description_cannot_garble_a_terminal():
    hostile = Artifact(name="a\x1b[2J", path="p\n", producer="\x1b]0;", phase="\r")
    assert describe(hostile).isprintable()


def test_a_description_shows_no_credentials():
    artifact = Artifact(name="m", path="s3://key:secret@bucket/m?token=secret")
    assert "secret" not in describe(artifact)
