"""Claims and artifacts from a shell: what is printed, kept and refused."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from tapstore.cli.running import Running
from tapstore.sessions.opening import open as open_session
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "-r", "reviewer", "--phase", "coding")
    return tmp_path


@pytest.fixture
def claim(session):  # noqa: ARG001
    return ok("claim", "coder", "--agent", "c1").out.strip()


# Claims


def test_claim_prints_the_id_alone_so_that_a_shell_can_keep_it(session):
    called = ok("claim", "coder", "--agent", "c1")
    held = open_session(str(session)).tapfile.slots("coder")[0].claim
    assert called.out == f"{held.id}\n"
    assert "goes stale in 60 s" in called.err


def test_a_claim_made_by_one_process_is_ended_by_another(claim):
    ok("complete", "--phase", "review", env={"TAPSTORE_CLAIM": claim})
    assert ok("phase").out == "review\n"


def test_a_claim_without_heartbeats_goes_stale_and_is_taken_over():
    ok("claim", "coder", "--agent", "c1", "--ttl", "10ms")
    called = ok("claim", "coder", "--agent", "c2", "--wait", "20s", "--json")
    assert called.json["agent"] == "c2"


def test_one_heartbeat_is_one_file(session, claim):
    ok("heartbeat", "--claim", claim)
    (name,) = os.listdir(session / ".tap" / "heartbeats")
    assert name.endswith(claim)


def test_a_heartbeat_for_a_claim_that_ended_is_refused(claim):
    ok("release", "--claim", claim)
    assert call("heartbeat", "--claim", claim).status == 5


def test_heartbeats_end_with_the_process_they_are_for(claim):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        threading.Timer(0.1, process.stdin.close).start()
        assert call("heartbeat", "--while", str(process.pid), "--claim", claim).status == 0


def test_heartbeats_for_a_process_that_is_gone_end_at_once(claim):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert call("heartbeat", "--while", str(process.pid), "--claim", claim).status == 0


@pytest.mark.parametrize(
    ("ending", "status"),
    [(["complete", "--claim"], 0), (["fail", "no", "--claim"], 0), (["reset", "coder"], 5)],
)
def test_heartbeats_tell_whether_the_claim_was_ended_or_taken_back(ending, status):
    claim = ok("claim", "coder", "--agent", "c1", "--ttl", "300ms").out.strip()
    beats = heartbeats_of_this_process(claim)
    ok(*ending, *([claim] if ending[-1] == "--claim" else []))
    assert beats() == status


def test_heartbeats_that_come_after_completion_are_no_error(claim):
    ok("complete", "--claim", claim)
    assert call("heartbeat", "--while", str(os.getpid()), "--claim", claim).status == 0


def test_heartbeats_that_come_after_a_reset_are_refused(claim):
    ok("reset", "coder")
    assert call("heartbeat", "--while", str(os.getpid()), "--claim", claim).status == 5


def heartbeats_of_this_process(claim):
    """Begin them in a thread; the result waits for their end and returns the exit code."""
    found = []
    arguments = ["heartbeat", "--while", str(os.getpid()), "--claim", claim]

    def beat():
        from tapstore.cli.app import run

        found.append(run(arguments))

    thread = threading.Thread(target=beat)
    thread.start()

    def end():
        thread.join(20)
        return found[0]

    return end


def test_takeover_fences_off_the_same_agent(claim):
    assert call("claim", "coder", "--agent", "c1").status == 4
    ok("claim", "coder", "--agent", "c1", "--takeover")
    assert call("complete", "--claim", claim).status == 5


def test_a_claim_can_be_tied_to_a_phase():
    assert call("claim", "coder", "--expected", "review").status == 3


@pytest.mark.usefixtures("claim")
def test_reset_names_the_token_that_it_is_for():
    called = call("reset", "coder", "--token", "99")
    assert called.status == 5
    assert "under token 2, not under token 99" in called.err


def test_the_watchdog_says_what_it_took_back():
    ok("claim", "coder", "--agent", "c1", "--ttl", "10ms")
    deadline = time.monotonic() + 20
    while not (out := ok("watchdog", "--once").out):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert out.startswith("coder taken back from c1, pending now: no sign of life from c1")


# Artifacts


def test_complete_publishes_several_files_in_one_commit(session, claim):
    for name in ("a.py", "b.txt"):
        (session / name).write_text(name)
    ok("complete", "--publish", "a.py:type=code,consumer=reviewer", "--publish", "b.txt:name=c.txt",
       "--claim", claim)  # fmt: skip
    assert len(ok("log", "--json").jsons) == 3
    found = ok("artifacts", "--json").json["artifacts"]
    assert [(a["name"], a["type"], a["consumer"]) for a in found] == [
        ("a.py", "code", ["reviewer"]),
        ("c.txt", "", []),
    ]


def test_standard_input_is_published_as_it_is():
    ok("publish", "-", "--as", "raw.bin", stdin=b"\x00\xff\r\n")
    assert ok("fetch", "raw.bin", "-o", "-").data == b"\x00\xff\r\n"


def test_a_file_named_like_a_uri_is_a_file(session):
    (session / "s3:").mkdir()
    (session / "s3:" / "x").write_text("local")
    ok("publish", "s3://x", "--as", "x")
    assert ok("fetch", "x", "-o", "-").data == b"local"


def test_a_directory_comes_back_as_one(session):
    (session / "src" / "sub").mkdir(parents=True)
    (session / "src" / "sub" / "f.txt").write_text("deep")
    ok("publish", "src", "--as", "tree")
    ok("fetch", "tree", "-o", "copy")
    assert (session / "copy" / "sub" / "f.txt").read_text() == "deep"


def test_fetch_writes_its_name_into_the_present_folder(session, tmp_path, monkeypatch):
    ok("publish", "-", "--as", "x.txt", stdin=b"x")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert ok("fetch", "x.txt", "-w", str(session)).out == f"{other}/x.txt\n"
    assert (other / "x.txt").read_bytes() == b"x"


def test_fetch_replaces_no_file_that_it_was_not_told_to(session):
    ok("publish", "-", "--as", "x.txt", stdin=b"theirs")
    (session / "x.txt").write_text("mine")
    assert call("fetch", "x.txt").status == 4
    assert (session / "x.txt").read_text() == "mine"


def test_fetch_replaces_the_file_that_it_was_told_to(session):
    ok("publish", "-", "--as", "x.txt", stdin=b"theirs")
    (session / "x.txt").write_text("mine")
    ok("fetch", "x.txt", "-o", "x.txt")
    assert (session / "x.txt").read_text() == "theirs"


@pytest.mark.parametrize("output", ["copy", "-"])
def test_damaged_bytes_exit_with_7_and_name_both_sums(session, output):
    artifact = ok("publish", "-", "--as", "x.txt", "--json", stdin=b"right").json["artifact"]
    (session / artifact["path"]).write_text("wrong")
    called = call("fetch", "x.txt", "-o", output)
    assert (called.status, called.data) == (7, b"")
    assert called.err.count("sha256:") == 2
    assert not (session / "copy").exists()


def test_validate_reads_the_bytes_when_asked(session):
    artifact = ok("publish", "-", "--as", "x.txt", "--json", stdin=b"right").json["artifact"]
    (session / artifact["path"]).write_text("wrong")
    assert call("validate").status == 0
    called = call("validate", "--artifacts")
    assert called.status == 7
    assert called.out.startswith("artifact ")


def test_validate_finds_a_file_that_is_gone(session):
    artifact = ok("publish", "-", "--as", "x.txt", "--json", stdin=b"right").json["artifact"]
    (session / artifact["path"]).unlink()
    called = call("validate")
    assert called.status == 7
    assert "is gone; restore it from a copy" in called.out


def test_validate_finds_a_log_record_that_was_replaced(session):
    ok("phase", "next")
    ok("phase", "last")
    (record,) = session.glob(".tap/*/log/*/*2")
    record.write_text(record.read_text().replace("next", "nexd"))
    called = call("validate")
    assert called.status == 7
    assert "log record 3 does not follow record 2" in called.out


def test_validate_finds_a_tapfile_that_is_half_written(session):
    tapfile = session / ".tap" / "Tapfile"
    tapfile.write_text(tapfile.read_text()[:40])
    called = call("validate")
    assert called.status == 7
    assert called.out.startswith("Tapfile ")


# Locks


def test_a_locked_command_finds_its_token(capfd):
    program = "import os; print(os.environ['TAPSTORE_LOCK_TOKEN'])"
    for token in ("1\n", "2\n"):
        ok("lock", "gpu", "--", sys.executable, "-c", program)
        assert capfd.readouterr().out == token


def test_lock_exits_with_what_its_command_exits_with():
    assert call("lock", "gpu", "--", sys.executable, "-c", "raise SystemExit(23)").status == 23


def test_a_command_that_was_killed_exits_as_a_shell_would_say():
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert call("lock", "gpu", "--", sys.executable, "-c", program).status == 137


@pytest.mark.parametrize(("command", "status"), [("./missing", 127), ("./plain", 126)])
def test_a_command_that_cannot_be_started_exits_as_a_shell_would_say(session, command, status):
    (session / "plain").write_text("")
    assert call("lock", "gpu", "--", command).status == status


def test_a_lock_that_is_held_is_not_had_and_its_holder_is_named(session):
    with open_session(str(session)).lock("gpu", ttl=30, agent="other", reason="training"):
        called = call("lock", "gpu", "--", "true")
    assert called.status == 4
    assert "other" in called.err


def test_who_holds_what_is_shown(session):
    with open_session(str(session)).lock("gpu", ttl=30, agent="other", reason="training"):
        (held,) = ok("locks", "--json").json["locks"]
    assert (held["name"], held["agent"], held["reason"]) == ("gpu", "other", "training")


def test_a_command_whose_lock_is_lost_is_stopped():
    def force():
        deadline = time.monotonic() + 20
        while not (held := ok("locks", "--json").json["locks"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ok("locks", "release", "gpu", "--generation", str(held[0]["generation"]))

    with subprocess.Popen(
        [sys.executable, "-m", "tapstore", "lock", "gpu", "--ttl", "600ms", "--",
         sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        force()
        assert process.wait(20) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties processes together")
def test_a_command_does_not_go_on_when_who_holds_its_lock_is_killed():
    program = "print('begun', flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-m", "tapstore", "lock", "gpu", "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "begun\n"
        process.kill()
        # It is nobody's child any more; its end of the pipe is closed when it is gone.
        assert select.select([process.stdout], [], [], 20)[0]
        assert process.stdout.read() == ""


def test_a_signal_is_passed_on_to_the_command():
    program = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        "print('ready', flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "tapstore", "lock", "gpu", "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 7
    assert ok("locks", "--json").json["locks"] == []


def test_a_command_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("tapstore.cli.running.GRACE_SECONDS", 0.1)
    running = Running()
    ready = tmp_path / "ready"
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "open(sys.argv[1], 'x').close(); time.sleep(60)"
    )

    def stop():
        deadline = time.monotonic() + 20
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        running.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    assert running.run([sys.executable, "-c", program, str(ready)], os.environ) == 137
    thread.join()
