"""The command line, on a session whose artifacts lie in another place."""

from __future__ import annotations

import os
import shutil
import time

import pytest

import tapstore
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The present folder; artifacts of more than 5 bytes lie in `big`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_text("small")
    (tmp_path / "large.txt").write_text("large!")
    ok(
        "init", "-w", "s", "--role", "coder", "--phase", "p",
        "--artifacts", "big", "--artifacts-above", "5B",
    )  # fmt: skip
    monkeypatch.setenv("TAPSTORE_URL", "s")
    return tmp_path


@pytest.fixture
def large(here):
    """The file of a published artifact in the other place."""
    path = ok("publish", "large.txt", "--json").json["artifact"]["path"]
    assert path.startswith(f"file://{here}/big/")
    return here / path.removeprefix(f"file://{here}/")


def test_what_is_larger_lies_there_and_is_fetched_from_there(here, large):
    assert large.read_text() == "large!"
    assert ok("publish", "small.txt", "--json").json["artifact"]["path"] == "artifacts/p/small.txt"
    for name in ("large.txt", "small.txt"):
        ok("fetch", name, "-o", "copy.txt")
        assert (here / "copy.txt").read_text() == (here / name).read_text()


@pytest.mark.parametrize(
    ("size", "count"), [("10", 10), ("5kB", 5000), ("1.5 MB", 1_500_000), ("64MiB", 64 << 20)]
)
def test_a_size_may_have_a_unit(size, count):
    ok("init", "-w", "other", "--artifacts", "big", "--artifacts-above", size)
    with tapstore.open("other") as session:
        assert session.config.artifacts_above_bytes == count


@pytest.mark.parametrize("size", ["", "-1", "iB", "5XB", "5 i", "MB"])
def test_what_is_no_size_is_refused(size):
    refused = call("init", "-w", "other", "--artifacts", "big", "--artifacts-above", size)
    assert refused.status == 2
    assert "10MB" in refused.err


def test_validate_finds_what_was_damaged_there(large):
    assert ok("validate", "--artifacts").out
    os.chmod(large, 0o600)
    large.write_text("LARGE!")
    ok("validate")
    found = call("validate", "--artifacts", "--json")
    assert found.status == 7
    assert "was registered with sha256:" in found.json["findings"][0]["message"]


def test_validate_finds_what_is_too_short_or_gone_there(large):
    os.chmod(large, 0o600)
    large.write_text("la")
    found = call("validate", "--json")
    assert "has 2 bytes" in found.json["findings"][0]["message"]
    large.unlink()
    found = call("validate", "--json")
    assert f"file://{large} is gone" in found.json["findings"][0]["message"]


def grow_old(folder):
    long_ago = time.time() - 2 * 86400
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))


def test_gc_shows_and_removes_what_nobody_needs_there(here, large):
    with tapstore.open("s") as session:
        session.stage("orphan.txt", b"orphan!")
    grow_old(here)
    orphan = large.with_name("orphan.txt")
    listed = ok("gc", "--json").json
    assert [(g["kind"], g["key"]) for g in listed["found"]] == [("artifact", f"file://{orphan}")]
    assert orphan.exists()
    ok("gc", "--yes")
    assert not orphan.exists()
    assert large.exists()


def test_gc_in_a_copy_says_that_it_leaves_those_of_the_original_alone(here, large):
    shutil.copytree("s", "copy")
    ok("publish", "large.txt", "--as", "second.txt")
    grow_old(here)
    found = ok("gc", "-w", "copy", "--yes")
    assert "may be a copy" in found.err
    assert large.with_name("second.txt").exists()


def test_without_the_place_status_works_and_publishing_fails_cleanly(large):
    shutil.rmtree("big")
    before = ok("log", "--json").out
    failed = call("publish", "large.txt", "--as", "x", "--json")
    assert failed.status == 9
    assert "is it mounted" in failed.error["message"]
    assert ok("log", "--json").out == before
    assert ok("status", "--json").json["artifacts"]
    ok("publish", "small.txt")
    assert not large.exists()


def test_options_for_the_place_come_from_the_configuration_file(here, monkeypatch):
    monkeypatch.delenv("TAPSTORE_URL")
    (here / "tapstore.toml").write_text("[tapstore.storage_options.file]\nnonsense = 1\n")
    refused = call("init", "-w", "memory://cli-artifact-place/s", "--artifacts", "big", "--json")
    assert refused.status == 7
    assert "nonsense" in refused.error["message"]


def test_status_says_where_the_bytes_go(here):
    shown = ok("status", "--json").json
    place = f"file://{here}/big"
    assert (shown["artifacts_place"], shown["artifacts_above_bytes"]) == (place, 5)
    assert f"new artifacts of more than 5 bytes go to {place}" in ok("status").out.splitlines()
    ok("init", "-w", "plain")
    shown = ok("status", "-w", "plain", "--json").json
    assert (shown["artifacts_place"], shown["artifacts_above_bytes"]) == (None, None)


def examined(called):
    return {each["probe"]: each for each in called.json["findings"] if "artifacts" in each["probe"]}


@pytest.mark.usefixtures("large")
def test_doctor_tries_the_place_out_and_leaves_it_as_it_was(here):
    before = {path: path.stat().st_mtime_ns for path in (here / "big").rglob("*") if path.is_file()}
    found = examined(ok("doctor", "--json"))
    assert {probe: each["severity"] for probe, each in found.items() if "mount" not in probe} == {
        "artifacts-reach": "ok",
        "artifacts-permissions": "ok",
        "artifacts-exclusive-creation": "ok",
        "artifacts-files": "ok",
    }
    assert found["artifacts-mount"]["values"]["point"]
    after = {path: path.stat().st_mtime_ns for path in (here / "big").rglob("*") if path.is_file()}
    assert after == before
    assert not list((here / "big").rglob(".tapstore-doctor*"))


def test_doctor_writes_nothing_where_the_place_is_not_mounted(here):
    (here / "big").rename(here / "unmounted")
    called = call("doctor", "--json")
    assert called.status == 9
    found = examined(called)
    assert found.keys() == {"artifacts-reach"}
    assert "is it mounted" in found["artifacts-reach"]["seen"]
    assert not (here / "big").exists()


def test_doctor_says_that_the_artifacts_of_a_copy_are_those_of_the_original():
    shutil.copytree("s", "copy")
    assert examined(ok("doctor", "copy", "--json"))["artifacts-reach"]["severity"] == "note"
