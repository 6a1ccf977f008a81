"""Looking again at a folder; tests/nfs shows what it is good for."""

import os

import pytest

from tapstore.stores.freshness import refresh
from tapstore.stores.local import LocalStore


def test_a_folder_that_is_there_is_there(tmp_path):
    assert refresh(str(tmp_path))


@pytest.mark.parametrize("missing", ["a", "a/b/c", "file/below"])
def test_what_is_no_folder_is_not_there(tmp_path, missing):
    (tmp_path / "file").touch()
    assert not refresh(str(tmp_path / missing))


def test_the_root_is_the_end_of_the_search(monkeypatch):
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    assert not refresh("/a/b")


def test_what_a_first_look_missed_a_second_one_finds(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.put("a/b", b"data")
    opened, missed = os.open, []

    def forgetful(path, *arguments):
        if str(path).endswith("a/b") and not missed:
            missed.append(path)
            raise FileNotFoundError(2, "remembered as absent", path)
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", forgetful)
    assert store.get("a/b").data == b"data"
    assert missed
