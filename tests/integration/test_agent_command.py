"""Agents that run real commands, in a session on a disk."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import tapstore
from tapstore.agents import AgentSpec, CommandHandler, Ending, Need, Worker, WorkFilter, logs
from tapstore.errors import TapstoreError
from tapstore.sessions.config import new_id

RUFF = str(Path(sys.executable).with_name("ruff"))
HOSTILE = ["$(touch x); rm -rf .py", "-rf", "--config=x.py", "a b.py", "`id`.py", "名前.py", "&"]


@pytest.fixture
def session(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder", "reviewer"], phase="p") as session:
        yield session


def publish(session, name="x.py", data=b"print(1)\n"):
    claim = session.claim("coder", agent="coder-1")
    claim.publish(name, data, type="code", consumers=["reviewer"])
    claim.release()


def run(session, *argv, role="reviewer", then="", wait=0, ttl=None, **options):
    spec = AgentSpec(agent="a1", work=WorkFilter(role=role), then=then, ttl=ttl)
    handler = CommandHandler(argv=argv, **{"grace": 0.3, **options})
    return Worker(session, spec, handler).run_once(wait=wait)


def sh(script, *arguments):
    return ("sh", "-c", script, "sh", *arguments)


def log_of(session):
    return b"".join(logs.read(session, "a1")).decode()


def wait_until(condition, *, within=20):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# Input


def test_inputs_are_files_with_the_names_of_their_artifacts(session):
    publish(session, "x.py", b"one")
    outcome = run(session, *sh('cat "$@"', "{inputs}"), stdout_as="out")
    assert outcome.ending is Ending.COMPLETED
    assert session.artifacts["out"].read_bytes() == b"one"


def test_two_inputs_of_one_name_are_two_files(session):
    publish(session, "x.py", b"one")
    session.set_phase("q")
    publish(session, "x.py", b"two")
    run(session, *sh('echo $#; cat "$@"', "{inputs}"), stdout_as="out")
    assert session.artifacts["out"].read_bytes() == b"2\nonetwo"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_nothing_but_a_name(session, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish(session, name)
    before = sorted(os.listdir(tmp_path))
    outcome = run(session, "cat", "{inputs}", stdout_as="out")
    assert outcome.ending is Ending.COMPLETED
    assert session.artifacts["out"].read_bytes() == b"print(1)\n"
    assert sorted(os.listdir(tmp_path)) == before


def test_a_name_that_leads_out_of_the_folder_does_not(session, tmp_path):
    publish(session)
    session.edit(
        lambda d: d["artifacts"].append(d["artifacts"][0] | {"name": "../../../../escaped"})
    )
    outcome = run(session, "cat", "{inputs}", stdout_as="out")
    assert outcome.ending is Ending.COMPLETED
    assert session.artifacts["out"].read_bytes() == b"print(1)\n" * 2
    assert not list(tmp_path.rglob("escaped"))


def test_a_damaged_input_fails_the_work_and_runs_nothing(session, tmp_path):
    publish(session)
    (tmp_path / "s/artifacts/p/x.py").write_bytes(b"print(2)\n")
    outcome = run(session, *sh(f"touch {tmp_path}/ran"))
    assert outcome.ending is Ending.FAILED
    assert "sha256:" in outcome.reason
    assert "coder-1" in outcome.reason
    assert not (tmp_path / "ran").exists()


def test_the_work_is_described_on_standard_input(session):
    publish(session)
    run(session, "cat", stdout_as="out")
    said = json.loads(session.artifacts["out"].read_bytes())
    assert (said["session_id"], said["role"], said["agent"]) == ("s", "reviewer", "a1")
    assert said["task"] is None
    (artifact,) = said["artifacts"]
    assert artifact["name"] == "x.py"
    assert artifact["local_path"].endswith("/x.py")


def test_the_environment_names_session_claim_and_folders(session):
    publish(session)
    run(session, *sh("env | grep ^TAPSTORE_ | grep -v _REQUIRE_ALL | sort"), stdout_as="out")
    lines = session.artifacts["out"].read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found["TAPSTORE_URL"] == session.url
    assert (found["TAPSTORE_SESSION"], found["TAPSTORE_ROLE"]) == ("s", "reviewer")
    assert found["TAPSTORE_AGENT"] == "a1"
    assert set(found) == {
        "TAPSTORE_URL", "TAPSTORE_SESSION", "TAPSTORE_ROLE", "TAPSTORE_AGENT", "TAPSTORE_CLAIM",
        "TAPSTORE_TOKEN", "TAPSTORE_WORK", "TAPSTORE_OUTPUT_DIR", "TAPSTORE_OUTPUT",
    }  # fmt: skip


def test_a_command_that_reads_nothing_may_get_much(session):
    claim = session.claim("coder", agent="coder-1")
    claim.publish("x", b"", consumers=["reviewer"], metadata={"long": "x" * 500_000})
    claim.release()
    assert run(session, "true").ending is Ending.COMPLETED


def test_no_descriptor_of_ours_is_inherited(session):
    publish(session)
    with session.lock("gpu", ttl=30):
        run(session, *sh("ls -l /proc/self/fd"), stdout_as="out")
    lines = session.artifacts["out"].read_text().splitlines()[1:]
    numbers = {int(line.split(" -> ")[0].split()[-1]) for line in lines}
    assert numbers <= {0, 1, 2, 3}  # 3: `ls` looking


def test_short_names_if_the_command_runs_where_its_inputs_lie(session):
    publish(session, "x.py", b"import os\n")
    outcome = run(
        session, RUFF, "check", "--output-format=concise", "{inputs}",
        ok_exit=frozenset((0, 1)), stdout_as="out", chdir=True,
    )  # fmt: skip
    assert outcome.ending is Ending.COMPLETED
    assert session.artifacts["out"].read_text().startswith("x.py:1:8: F401")


# Output


def test_files_and_folders_in_the_output_folder_are_published(session):
    publish(session)
    script = 'cd "$TAPSTORE_OUTPUT_DIR"; echo 1 > a.txt; mkdir d; echo 2 > d/b.txt'
    run(session, *sh(script), type="report", consumers=("coder",))
    found = {a.name: (a.type, a.consumer, a.manifest) for a in session.tapfile.artifacts}
    assert found["a.txt"] == ("report", ("coder",), False)
    assert found["d"] == ("report", ("coder",), True)


def test_everything_is_in_the_commit_that_completes(session):
    publish(session)
    run(session, *sh("echo 1; echo 2 > $TAPSTORE_OUTPUT_DIR/b"), stdout_as="a", then="done")
    last = list(session.log())[-1]
    assert last.operations == ("complete",)
    assert last.phase == ("p", "done")
    assert {"a", "b"} <= {a.name for a in session.tapfile.artifacts}


@pytest.mark.parametrize("script", ["ln -s /etc/passwd x", "mkfifo x"])
def test_only_files_and_folders_are_published(session, script):
    publish(session)
    outcome = run(session, *sh(f'cd "$TAPSTORE_OUTPUT_DIR"; {script}'))
    assert outcome.ending is Ending.FAILED
    assert "neither a file nor a folder" in outcome.reason
    assert [a.name for a in session.tapfile.artifacts] == ["x.py"]


def test_output_of_a_failed_command_is_not_published(session):
    publish(session)
    outcome = run(session, *sh('echo 1 | tee "$TAPSTORE_OUTPUT_DIR/a"; exit 3'), stdout_as="b")
    assert outcome.ending is Ending.FAILED
    assert [a.name for a in session.tapfile.artifacts] == ["x.py"]


def test_output_is_in_the_log_while_the_command_runs(session, tmp_path):
    publish(session)
    gate = tmp_path / "gate"
    script = f"echo before; echo to stderr >&2; while ! test -e {gate}; do sleep 0.02; done"
    thread = threading.Thread(target=run, args=(session, *sh(script)))
    thread.start()
    try:
        wait_until(lambda: "a1" in logs.agents(session) and "to stderr" in log_of(session))
    finally:
        gate.touch()
        thread.join()
    assert "exit code 0" in log_of(session)


def test_a_log_is_followed(session):
    publish(session)
    run(session, *sh("echo one"))
    pieces = logs.read(session, "a1", follow=True, idle=30)
    assert b"one" in next(pieces)
    session.reopen("reviewer")
    run(session, *sh("echo two"))
    assert b"two" in b"".join(next(pieces) for _ in range(1))


def test_without_files_each_run_has_its_log(tmp_path):
    del tmp_path
    with tapstore.create(f"memory://{new_id()}/s", roles=["reviewer"], phase="p") as session:
        spec = AgentSpec(agent="a1", work=WorkFilter(role="reviewer", when_phase="p"))
        for word in ("one", "two"):
            handler = CommandHandler(argv=("echo", word))
            assert Worker(session, spec, handler).run_once(wait=0).ending is Ending.COMPLETED
            session.reopen("reviewer")
        text = log_of(session)
        assert text.index("\none\n") < text.index("\ntwo\n")


# How it ends


def test_a_linter_with_findings_completes_its_review(session):
    publish(session, HOSTILE[0], b"import os\n")
    outcome = run(
        session, RUFF, "check", "{inputs}", ok_exit=frozenset((0, 1)), stdout_as="review.txt",
        then="reviewed",
    )  # fmt: skip
    assert outcome.ending is Ending.COMPLETED
    assert "F401" in session.artifacts["review.txt"].read_text()
    assert session.phase == "reviewed"


def test_another_exit_code_fails_the_work_with_the_tail_of_the_output(session):
    publish(session)
    outcome = run(session, *sh("for i in $(seq 50); do echo line $i; done; exit 3"))
    assert outcome.ending is Ending.FAILED
    reason = session.tapfile.slots("reviewer")[0].reason
    assert reason.startswith("exit code 3: ")
    assert reason.endswith("line 49\nline 50")
    assert "line 10\n" not in reason


def test_a_signal_that_ends_the_command_is_named(session):
    publish(session)
    assert run(session, *sh("kill -SEGV $$")).reason.startswith("signal SIGSEGV")


def test_a_script_without_its_interpreter_fails_the_work(session, tmp_path):
    publish(session)
    script = tmp_path / "agent"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    outcome = run(session, str(script))
    assert outcome.ending is Ending.FAILED
    assert "exit code 127" in outcome.reason


def test_a_time_out_ends_the_command_and_fails_the_work(session, tmp_path):
    publish(session)
    script = f"trap 'echo bye; touch {tmp_path}/asked; exit 0' TERM; echo on; sleep 60 & wait"
    outcome = run(session, *sh(script), timeout=0.5, grace=10)
    assert outcome.ending is Ending.FAILED
    assert outcome.reason.startswith("timed out after 0.5 s: on")
    assert (tmp_path / "asked").exists()


def test_a_command_that_does_not_listen_is_killed_with_all_it_started(session, tmp_path):
    publish(session)
    script = f"trap '' TERM; (trap '' TERM; echo $$ > {tmp_path}/pid; sleep 60) & sleep 60"
    outcome = run(session, *sh(script), timeout=0.3)
    assert outcome.ending is Ending.FAILED
    wait_until(lambda: not _group_exists(int((tmp_path / "pid").read_text())))


def test_what_a_command_leaves_in_the_background_ends_with_it(session, tmp_path):
    publish(session)
    outcome = run(session, *sh(f"echo $$ > {tmp_path}/pid; sleep 60 & echo done"))
    assert outcome.ending is Ending.COMPLETED
    wait_until(lambda: not _group_exists(int((tmp_path / "pid").read_text())))


def test_a_daemon_that_keeps_the_pipe_open_does_not_keep_us(session):
    publish(session)
    started = time.monotonic()
    outcome = run(session, *sh("setsid sleep 20 & echo done"), stdout_as="out")
    assert outcome.ending is Ending.COMPLETED
    assert time.monotonic() - started < 15


def _group_exists(number):
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_being_stopped_releases_the_work_and_ends_the_command(session, tmp_path):
    publish(session)
    spec = AgentSpec(agent="a1", work=WorkFilter(role="reviewer"))
    handler = CommandHandler(argv=sh(f"touch {tmp_path}/on; exec sleep 60"))
    worker = Worker(session, spec, handler)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(worker.run_once()))
    thread.start()
    wait_until((tmp_path / "on").exists)
    worker.stop()
    thread.join(timeout=20)
    assert outcomes[0].ending is Ending.RELEASED
    slot = session.tapfile.slots("reviewer")[0]
    assert (slot.status, slot.attempt) == ("pending", 0)


def test_a_lost_claim_kills_the_command_at_once_and_publishes_nothing(session, tmp_path):
    publish(session)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; echo 1; sleep 60"
    results = []
    thread = threading.Thread(
        target=lambda: results.append(run(session, *sh(script), ttl=0.6, stdout_as="out", grace=60))
    )
    thread.start()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    session.reset("reviewer")
    thread.join(timeout=20)
    assert results[0].ending is Ending.LOST
    assert "out" not in session.artifacts
    wait_until(lambda: not _group_exists(int((tmp_path / "pid").read_text())), within=5)


def test_a_command_may_use_the_claim_itself(session):
    publish(session)
    script = (
        "import os, tapstore\n"
        "session = tapstore.open(os.environ['TAPSTORE_URL'])\n"
        "claim = session.resume_claim(os.environ['TAPSTORE_CLAIM'])\n"
        "claim.publish('early.txt', b'1')\n"
        "claim.complete(phase='mine')\n"
    )
    outcome = run(session, sys.executable, "-c", script, then="ours")
    assert outcome.ending is Ending.COMPLETED
    assert session.phase == "mine"
    assert "early.txt" in session.artifacts


def test_a_command_that_ended_its_claim_may_finish(session, tmp_path):
    publish(session)
    script = (
        "import os, pathlib, tapstore, time\n"
        "session = tapstore.open(os.environ['TAPSTORE_URL'])\n"
        "session.resume_claim(os.environ['TAPSTORE_CLAIM']).fail('my own reason')\n"
        "time.sleep(1)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'finished').touch()\n"
    )
    outcome = run(session, sys.executable, "-c", script, ttl=0.6)
    assert (outcome.ending, outcome.reason) == (Ending.FAILED, "my own reason")
    assert (tmp_path / "finished").exists()
    assert session.tapfile.slots("reviewer")[0].reason == "my own reason"


# Tasks


TASK = {
    "task_id": "s",
    "requirement": "$(touch pwned) `id` {inputs} 'quoted'",
    "output_artifact_name": "x.py",
    "output_path": "artifacts/phase_1/x.py",
}


def drop(session, document=TASK):
    Path(session.store.local_path("inbox/coder/task.json")).write_text(json.dumps(document))


def test_a_task_is_done_by_a_filter(session):
    drop(session)
    script = "import json, sys; print(json.load(sys.stdin)['requirement'])"
    outcome = run(session, sys.executable, "-c", script, role="coder", then="coded")
    assert (outcome.ending, outcome.task_id) == (Ending.COMPLETED, "s")
    artifact = session.tapfile.artifact("x.py")
    assert (artifact.path, artifact.phase) == ("artifacts/phase_1/x.py", "phase_1")
    assert session.artifacts["x.py"].read_text().strip() == TASK["requirement"]


def test_a_requirement_reaches_the_command_as_one_argument(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drop(session)
    run(session, "printf", "%s|", "{requirement}", "end", role="coder")
    assert session.artifacts["x.py"].read_text() == TASK["requirement"] + "|end|"
    assert not (tmp_path / "pwned").exists()


def test_the_file_that_the_task_names_is_its_result(session):
    drop(session)
    script = 'echo chatter; echo 1 > "$1"; echo 2 > "$TAPSTORE_OUTPUT_DIR/notes"'
    run(session, *sh(script, "{output}"), role="coder")
    assert session.artifacts["x.py"].read_text() == "1\n"
    assert session.artifacts["notes"].read_text() == "2\n"
    assert session.tapfile.artifact("x.py").path == "artifacts/phase_1/x.py"


def test_the_task_decides_the_name_of_what_is_printed(session):
    drop(session)
    run(session, "echo", "1", role="coder", stdout_as="default.txt")
    assert [a.name for a in session.tapfile.artifacts] == ["x.py"]


def test_a_result_that_can_not_be_told_fails_the_work(session):
    drop(session)
    outcome = run(session, *sh('echo 1 > "$TAPSTORE_OUTPUT_DIR/y.py"'), role="coder")
    assert outcome.ending is Ending.FAILED
    assert "wants 'x.py', but the command left y.py" in outcome.reason


def test_a_task_without_any_result_fails(session):
    drop(session)
    outcome = run(session, "true", role="coder")
    assert "printed nothing" in outcome.reason


def test_a_failed_task_stays_for_the_next_round(session):
    drop(session)
    run(session, "false", role="coder")
    session.reopen("coder")
    assert run(session, "echo", "1", role="coder").ending is Ending.COMPLETED
    assert (Path(session.store.local_path("inbox/coder/.done/task.json"))).exists()


def test_needs_are_inputs(session):
    publish(session, "x.py", b"one")
    spec = AgentSpec(
        agent="a1", work=WorkFilter(role="reviewer", needs=(Need(type="code"),), when_phase="p")
    )
    handler = CommandHandler(argv=("cat", "{inputs}"), stdout_as="out")
    assert Worker(session, spec, handler).run_once(wait=0).ending is Ending.COMPLETED
    assert session.artifacts["out"].read_bytes() == b"one"


def test_nothing_is_left_in_the_temporary_folder(session, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    publish(session)
    run(session, *sh('mkdir "$TAPSTORE_OUTPUT_DIR/d"; exit 1'))
    assert os.listdir(tmp_path / "tmp") == []


def test_a_log_that_can_not_be_written_fails_the_work(session, tmp_path):
    publish(session)
    (tmp_path / "s/logs/a1.log").mkdir()
    outcome = run(session, "true")
    assert outcome.ending is Ending.FAILED
    assert isinstance(outcome.error, TapstoreError)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
