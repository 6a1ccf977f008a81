"""Agents of the original protocol and agents of tapstore in the same session.

The plain agents (`tests/plain_agents`) know nothing of tapstore: an empty lock file created with
O_EXCL, YAML loaded and dumped whole, written in place or by rename.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

import tapstore
from tapstore.sessions import history
from tapstore.tapfile import format
from tests.plain_agents import launch

WORKER = Path(__file__).with_name("commit_worker.py")


def plain_document(session):
    return yaml.safe_load(Path(session.store.local_path(".tap/Tapfile")).read_bytes())


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles=["coder", "reviewer"], phase="requirements_defined",
        fields={"counter": 0, "note": "kept"},
    ) as session:  # fmt: skip
        yield session


def loop(session, tmp_path, count):
    """Three plain agents count `count` times each, two tapstore processes count meanwhile."""
    place = session.store.root
    outputs = [tmp_path / f"{name}.out" for name in ("t1", "t2")]
    workers = []
    for output in outputs:
        with output.open("wb") as file:
            workers.append(
                subprocess.Popen(
                    [sys.executable, str(WORKER), place, output.stem],
                    stdin=subprocess.PIPE,
                    stdout=file,
                )
            )
    options = ("--poll", 0.002, "--keep", 50)
    with (
        launch.python("increment", place, count, "--agent", "p1", *options) as p1,
        launch.python("increment", place, count, "--agent", "p2", "--rename", *options) as p2,
        launch.shell("increment", place, count, "sh1", 0.01) as sh1,
    ):
        for agent in (p1, p2, sh1):
            events = agent.finish(timeout=1800)
            assert [e for e in events if e["event"] == "lost"] == []
            assert len(agent.attempts()) == count
    for worker in workers:
        worker.stdin.close()
        assert worker.wait(60) == 0
    return sum(output.read_text().count('"ok"') for output in outputs)


def check_loop(session, count, own):
    document = plain_document(session)
    state = session.tapfile
    for agent in ("p1", "p2", "sh1"):
        assert state.extra[f"counter_{agent}"] == count, agent
        assert document[f"counter_{agent}"] == count, agent
    assert state.extra["counter"] == own
    assert state.extra["note"] == "kept"
    assert [p.status for p in state.participants] == ["pending", "pending"]
    assert list(history.verify(session.state.log)) == []
    conflicts = Path(session.store.local_path(".tap/conflicts"))
    assert not conflicts.exists() or not list(conflicts.iterdir())


@pytest.mark.timeout(170)
def test_plain_and_tapstore_agents_in_loops_lose_no_update_and_no_field(session, tmp_path):
    own = loop(session, tmp_path, 100)
    assert own > 50
    check_loop(session, 100, own)


@pytest.mark.soak
@pytest.mark.timeout(7000)
def test_the_same_with_twenty_thousand_commits(session, tmp_path):
    own = loop(session, tmp_path, 5000)
    assert own > 5000
    check_loop(session, 5000, own)


@pytest.mark.timeout(170)
def test_plain_agents_lose_nothing_while_tapstore_agents_are_killed(session, tmp_path):
    count = 250
    place = session.store.root
    workers = []

    def start():
        with (tmp_path / f"k{len(workers)}.out").open("wb") as file:
            command = [sys.executable, str(WORKER), place, f"k{len(workers)}"]
            workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file))

    for _ in range(3):
        start()
    options = ("--poll", 0.002)
    generator = random.Random(os.urandom(8))
    with (
        launch.python("increment", place, count, "--agent", "p1", *options) as p1,
        launch.python("increment", place, count, "--agent", "p2", "--rename", *options) as p2,
    ):
        while p1.process.poll() is None or p2.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                p1.process.wait(generator.uniform(0.01, 0.15))
            victim = generator.choice(workers)
            if victim.poll() is None:
                victim.kill()
                start()
        for agent in (p1, p2):
            assert [e for e in agent.finish() if e["event"] == "lost"] == []
    for worker in workers:
        worker.stdin.close()
        worker.wait(60)
    state = session.tapfile
    assert (state.extra["counter_p1"], state.extra["counter_p2"]) == (count, count)
    assert sorted(state.extra["attempts"]) == sorted(p1.attempts() + p2.attempts())
    landed = Counter(e.reason for e in session.log() if e.by[:1] == "k")
    for output in tmp_path.glob("k*.out"):
        for line in output.read_text().splitlines():
            record = json.loads(line)
            assert landed[record["attempt"]] == 1 or record["outcome"] != "ok"
    assert state.extra["counter"] == landed.total()
    assert list(history.verify(session.state.log)) == []
    conflicts = Path(session.store.local_path(".tap/conflicts"))
    assert not conflicts.exists() or not list(conflicts.iterdir())


def test_a_plain_coder_and_a_tapstore_reviewer_work_together(session):
    with launch.python(
        "code", session.store.root, "--consumer", "reviewer", "--poll", 0.01
    ) as coder:
        coder.finish()
    session.wait_for(phase="awaiting_review", completed="coder", timeout=10)
    with session.claim("reviewer", agent="r1") as claim:
        (artifact,) = session.artifacts
        text = session.artifacts[artifact].read_text()
        claim.publish("report", text.encode(), type="report")
        claim.complete(phase="review_completed")
    assert plain_document(session)["current_phase"] == "review_completed"


def test_a_tapstore_coder_and_a_plain_reviewer_that_holds_the_lock_while_it_works(session):
    with session.claim("coder", agent="coder-01") as claim:
        claim.publish("x.py", b"print(1)\n", type="code", consumers=["plain-reviewer"])
        claim.complete(phase="awaiting_review")
    with launch.python(
        "review", session.store.root, "--agent", "plain-reviewer", "--poll", 0.01, "--gate", "-"
    ) as reviewer:
        reviewer.wait_for("working")
        # Commits do not wait for it longer than a moment.
        session.edit(lambda d: d.update(counter=41))
        reviewer.go_on()
        reviewer.finish()
    state = session.tapfile
    assert state.slots("reviewer")[0].status == "completed"
    assert state.current_phase == "review_completed"
    assert state.extra["counter"] == 41
    assert any(a.type == "report" for a in state.artifacts)
    assert (
        format.parse(Path(session.store.local_path(".tap/Tapfile")).read_bytes())["counter"] == 41
    )


def wait_until_working(session):
    """It says so while it still holds the lock, and nobody imports before it lets go."""
    for _ in session.watch(after=0, timeout=10):
        if session.tapfile.slots("coder")[0].status == "working":
            return
    raise AssertionError("the coder did not go to work")


@pytest.mark.parametrize("stale", [(), ("--stale",)], ids=["looks-again", "writes-its-old-copy"])
def test_a_plain_zombie_that_completes_after_a_reset_is_not_applied(session, stale):
    with launch.python(
        "zombie", session.store.root, "--gate", "-", "--poll", 0.01, *stale
    ) as zombie:
        zombie.wait_for("working")
        wait_until_working(session)
        session.reset("coder", reason="a person lost patience")
        with session.claim("coder", agent="coder-02") as claim:
            zombie.go_on()
            zombie.finish()
            assert session.tapfile.slots("coder")[0].agent_id == "coder-02"
            claim.publish("mine.py", b"mine")
            claim.complete(phase="awaiting_review")
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.agent_id) == ("completed", "coder-02")
    assert [a.name for a in session.tapfile.artifacts] == ["mine.py"]
    assert list(Path(session.store.local_path(".tap/conflicts")).iterdir())


def test_a_plain_agent_that_works_longer_than_any_ttl_is_not_reset(session):
    with launch.python("code", session.store.root, "--gate", "-", "--poll", 0.01) as coder:
        coder.wait_for("working")
        wait_until_working(session)
        judged = session.judge()
        assert [j.health.value for j in judged] == ["unjudged"]
        assert session.sweep() == []
        coder.go_on()
        coder.finish()
    assert session.tapfile.slots("coder")[0].status == "completed"
