"""`tapstore doctor` as people and programs call it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.cli_calls import call, ok
from tests.integration.test_cli_golden import lacks
from tests.places import exfat
from tests.servers.process import ServerMissingError

GOLDEN = Path(__file__).parents[1] / "format" / "doctor.json"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

SCREEN = 24
"""Lines of a terminal that nobody has enlarged."""


@pytest.fixture
def start():
    """Starts `tapstore doctor` as a process; what runs at the end is killed."""
    with ExitStack() as stack:

        def started(*arguments):
            process = subprocess.Popen(
                [sys.executable, "-m", "tapstore", "doctor", *arguments],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def wait_for(process, probe):
    """Read what it prints, up to this finding."""
    for line in process.stdout:
        if f" {probe} " in line[:30]:
            return
    raise AssertionError(f"{probe} was not printed")


def finding(called, probe):
    return next(each for each in called.json["findings"] if each["probe"] == probe)


# The contract


def shape(value, key=""):
    """`value` with words for what differs from place to place and from run to run."""
    if isinstance(value, dict):
        return {name: shape(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each, key) for each in value]
    if key in ("url", "summary", "seen", "means", "change", "why"):
        return f"<{key}>"
    # A slow machine takes fewer samples.
    return "<number>" if isinstance(value, float) or key == "samples" else value


def test_what_json_prints_is_a_contract(tmp_path):
    called = ok("doctor", str(tmp_path / "place"), "--json")
    printed = shape(called.json)
    # What a mount is worth saying differs from machine to machine.
    printed["findings"] = [each for each in printed["findings"] if each["probe"] != "mount"]
    printed["verdict"] = printed["verdict"].replace("warning", "ok").replace("note", "ok")
    assert list(lacks(json.loads(GOLDEN.read_text("utf-8")), printed, "doctor")) == []


def test_each_key_and_each_probe_is_documented(tmp_path):
    printed = ok("doctor", str(tmp_path), "--json").json
    reference = REFERENCE.read_text("utf-8")
    section = reference.partition("### `tapstore doctor`")[2].partition("\n### ")[0]
    named = {*printed, *printed["findings"][0], *printed["capabilities"]}
    assert {key for key in named if f"`{key}`" not in section} == set()
    how_to = (REFERENCE.parents[1] / "how-to" / "doctor.md").read_text("utf-8")
    source = Path(__file__).parents[2]
    files = [
        *(source / "tapstore" / "doctor").glob("*.py"),
        *source.glob("backends/*/tapstore_*/checkup.py"),
    ]
    text = "".join(file.read_text("utf-8") for file in files)
    probes = set(re.findall(r'^    (?:name|return Finding\() ?=? ?"([a-z-]+)"', text, re.M))
    probes |= set(re.findall(r'^[A-Z_]+ = "([a-z]+(?:-[a-z]+)*)"$', text, re.M))
    assert {probe for probe in probes if f"`{probe}`" not in how_to} == set()


# For people


def test_the_verdict_is_the_last_line_of_one_screen(tmp_path):
    lines = ok("doctor", str(tmp_path)).out.splitlines()
    assert len(lines) <= SCREEN
    assert lines[-2:] == ["", f"file://{tmp_path} can be used with locks=o_excl"] or (
        "warning" in lines[-1]
    )
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 100


def test_nothing_is_left_and_no_session_is_made(tmp_path):
    ok("doctor", str(tmp_path / "new"), "--race")
    assert os.listdir(tmp_path) == []


def test_without_a_url_the_session_here_is_examined(tmp_path, monkeypatch):
    ok("init", "-w", str(tmp_path), "--role", "coder", "--id", "review")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    called = ok("doctor", "--json")
    assert called.json["session_id"] == "review"
    assert finding(called, "session")["severity"] == "ok"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("url", ["memory://doctor/x", "tmpfs"])
def test_other_places(url, request):
    if url == "tmpfs":
        url = str(request.getfixturevalue("tmpfs_path"))
    called = ok("doctor", url, "--race", "--json")
    assert finding(called, "race")["severity"] == "ok"
    assert called.json["suits"] == ("store" if url.startswith("memory") else "o_excl")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").touch()
    called = call("doctor", str(tmp_path / "file"))
    assert called.status == 9
    assert "FATAL   reach" in called.out


def test_a_disk_without_links_behind_fuse_is_fatal_as_making_a_session_there_is():
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(exfat.mounted())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        called = call("doctor", f"{disk}/place", "--json")
        assert call("init", "-w", f"{disk}/other", "--role", "r").status == called.status == 3
        assert finding(called, "exclusive-creation")["severity"] == "fatal"
        assert finding(called, "files")["values"] == {"failed": "link"}
        assert called.json["suits"] is None
        assert not os.path.exists(f"{disk}/place")


def test_a_malformed_url_is_a_malformed_call():
    called = call("doctor", "memory://", "--json")
    assert (called.status, called.error["type"]) == (2, "InvalidKeyError")


# Locks


def test_a_malformed_lock_service_is_refused_before_anything_is_tried(tmp_path):
    called = call("doctor", str(tmp_path), "--locks", "redis://h:hunter2@x:99999", "--json")
    assert (called.status, called.out) == (2, "")
    assert "hunter2" not in called.err


def test_a_lock_service_that_the_place_cannot_carry_is_fatal(tmp_path):
    called = call("doctor", str(tmp_path), "--locks", "store", "--json")
    assert called.status == 3
    assert "lacks the capability 'update'" in finding(called, "locks")["seen"]


def test_a_redis_that_may_evict_and_forgets_is_warned_of(valkey, tmp_path):
    with valkey.client() as client:
        before = set(client.keys("*"))
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            called = ok("doctor", str(tmp_path), "--locks", valkey.url, "--json")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")
        assert finding(called, "redis-eviction")["severity"] == "warning"
        assert finding(called, "redis-eviction")["values"]["maxmemory_policy"] == "allkeys-lru"
        assert finding(called, "redis-persistence")["severity"] == "warning"
        assert finding(called, "locks")["severity"] == "ok"
        deadline = iter(range(200))
        while set(client.keys("*")) != before:  # they expire
            assert next(deadline) < 199


def test_a_redis_that_keeps_its_data_is_not_warned_of(redis_server, tmp_path):
    with redis_server.client() as client:
        client.config_set("appendonly", "yes")
        try:
            called = ok("doctor", str(tmp_path), "--locks", redis_server.url, "--json")
        finally:
            client.config_set("appendonly", "no")
    assert finding(called, "redis-persistence")["severity"] == "ok"
    assert finding(called, "redis-eviction")["severity"] == "ok"


def test_who_may_only_use_leases_is_told_what_cannot_be_seen(redis_server, tmp_path):
    rights = (
        "on >{} ~tapstore:* &tapstore:* +evalsha +eval +time +type +hgetall +hset +hdel +sadd "
        "+srem +smembers +zadd +zrem +zrange +zrevrange +zrangebyscore +zscore +zrank +zcard "
        "+pexpire +publish +subscribe"
    ).format("s3cret-pass")
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", *rights.split())
        before = set(client.keys("*"))
        try:
            called = ok(
                "doctor", str(tmp_path), "--locks", redis_server.url, "--json",
                env={"TAPSTORE_REDIS_USERNAME": "agent", "TAPSTORE_REDIS_PASSWORD": "s3cret-pass"},
            )  # fmt: skip
        finally:
            client.execute_command("ACL", "DELUSER", "agent")
        deadline = iter(range(200))
        while set(client.keys("*")) != before:
            assert next(deadline) < 199
    assert "+info" in finding(called, "redis-server")["change"]
    assert finding(called, "locks")["severity"] == "ok"
    assert "s3cret-pass" not in called.out + called.err


def test_a_redis_that_is_away_is_fatal_and_shows_no_password(tmp_path):
    called = call("doctor", str(tmp_path), "--locks", "redis://:hunter2@127.0.0.1:1/0", "--json")
    assert called.status == 9
    assert finding(called, "locks-reach")["severity"] == "fatal"
    assert "hunter2" not in called.out + called.err


# Several machines


def test_peers_find_each_other_and_agree(start, tmp_path):
    running = [start(str(tmp_path), "--peers", "--json") for _ in range(3)]
    printed = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    for each in printed:
        [met] = [f for f in each["findings"] if f["probe"] == "peers"]
        assert (met["severity"], met["values"]) == (
            "ok", {"peers": 2, "creations": 30, "updates": 0},
        )  # fmt: skip
        [apart] = [f for f in each["findings"] if f["probe"] == "peer-clocks"]
        assert apart["severity"] == "ok"
    assert os.listdir(tmp_path) == []


def test_who_stays_alone_is_told_so(tmp_path):
    called = ok("doctor", str(tmp_path), "--peers", "--wait", "1", "--json")
    alone = finding(called, "peers")
    assert (alone["severity"], alone["values"]) == ("warning", {"peers": 0})
    assert os.listdir(tmp_path) == []


def test_a_card_of_somebody_who_is_gone_is_no_peer(start, tmp_path):
    first = start(str(tmp_path), "--peers", "--wait", "60")
    cards = tmp_path / ".tapstore-doctor" / "peers"
    while not (cards.is_dir() and os.listdir(cards)):
        assert first.poll() is None
    first.kill()
    first.communicate()
    called = ok("doctor", str(tmp_path), "--peers", "--wait", "1", "--json")
    assert finding(called, "peers")["values"] == {"peers": 0}


# Interruptions


@pytest.mark.parametrize("arguments", [(), ("--race",), ("--peers",)])
def test_ctrl_c_leaves_nothing(start, tmp_path, arguments):
    process = start(str(tmp_path), *arguments)
    # Before what takes longest.
    wait_for(process, "locks" if arguments else "permissions")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert os.listdir(tmp_path) == []


def test_what_a_crash_left_the_next_run_removes(start, tmp_path):
    process = start(str(tmp_path), "--race")
    wait_for(process, "exclusive-creation")
    process.kill()
    process.communicate()
    assert os.listdir(tmp_path) == [".tapstore-doctor"]
    called = ok("doctor", str(tmp_path), "--json")
    assert finding(called, "leftovers")["severity"] == "note"
    assert os.listdir(tmp_path) == []


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        new = shape(ok("doctor", f"{folder}/place", "--json").json)
        new["findings"] = [each for each in new["findings"] if each["probe"] != "mount"]
        GOLDEN.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n")
