"""Two machines and one bucket: the pipeline of the demo, with each agent killed once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest

from tests.servers import machines
from tests.servers.process import ServerMissingError

TAPSTORE = [sys.executable, "-m", "tapstore"]
RUFF = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]

CODER = """\
import json, os, sys, time
task = json.load(sys.stdin)
with open(os.environ["MARK"], "w") as mark:
    mark.write(os.environ["TAPSTORE_LOCK_TOKEN"])
time.sleep(float(os.environ["SECONDS"]))
with open(task["output"], "w") as file:
    file.write("def even(n: int) -> bool:\\n    return n % 2 is 0\\n")
"""

SLOW = "import sys, time; print('reads', flush=True); time.sleep(600)"


@pytest.fixture
def net():
    try:
        with machines.network() as made:
            yield made
    except ServerMissingError as missing:
        pytest.skip(str(missing))


class Team:
    """What the test does on its machines."""

    def __init__(self, url, env):
        self.url, self.env = url, env

    def ok(self, machine, *arguments):
        done = machine.run([*TAPSTORE, *arguments], self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def agent(self, machine, name, *arguments, **env):
        command = [*TAPSTORE, "agent", "run", "--agent", name, "--once", *arguments]
        return machine.start(command, self.env | env, out=f"{name}.out")

    def status(self, machine):
        return json.loads(self.ok(machine, "status", "--json"))

    def wait_until(self, machine, slot, status, agent):
        deadline = time.monotonic() + 60
        while True:
            slots = {each["slot"]: each for each in self.status(machine)["slots"]}
            if (slots[slot]["status"], slots[slot]["agent"]) == (status, agent):
                return
            assert time.monotonic() < deadline, slots
            time.sleep(0.1)


@pytest.fixture(params=["seaweedfs", "radosgw"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["store", "redis"])
def locks(request, net):
    if request.param == "store":
        return "store"
    redis = request.getfixturevalue("valkey")
    return f"redis://{net.reach(redis.port)}/0"


@pytest.mark.timeout(400)
def test_the_pipeline_comes_out_right_though_each_agent_is_killed_once(net, server, locks):
    here, there = net.machine("a"), net.machine("b")
    url = f"s3://{server.new_bucket()}/team/demo"
    team = Team(url, {
        "TAPSTORE_URL": url,
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_ENDPOINT_URL_S3": f"http://{net.reach(server.port)}",
        "AWS_REGION": server.region,
    })  # fmt: skip
    roles, phases = ["coder", "reviewer"], ["coding", "review", "done"]
    named = [word for role in roles for word in ("--role", role)]
    named += [word for phase in phases for word in ("--phase", phase)]
    team.ok(here, "init", "-w", url, "--ttl", "3s", "--locks", locks, *named)
    team.ok(there, "task", "send", "coder", "even numbers", "--output", "even.py")
    (here.folder / "coder.py").write_text(CODER)
    locked = [*TAPSTORE, "lock", "editor", "--ttl", "3s", "--wait", "60s", "--"]
    coder = ["--role", "coder", "--type", "code", "--consumer", "reviewer", "--then", "review",
             "--", *locked, sys.executable, here.folder / "coder.py"]  # fmt: skip
    reviewer = ["--role", "reviewer", "--when-phase", "review", "--needs", "type=code", "--ok-exit",
                "0,1", "--stdout-as", "review.txt", "--then", "done", "--"]  # fmt: skip

    marks = [here.folder / name for name in ("mark-1", "mark-2")]
    first = team.agent(here, "coder-01", *coder, SECONDS="600", MARK=str(marks[0]))
    wait_for_file(marks[0])
    os.killpg(first.pid, signal.SIGKILL)
    team.wait_until(there, "coder", "working", "coder-01")
    second = team.agent(here, "coder-02", *coder, SECONDS="0", MARK=str(marks[1]))

    stopped = team.agent(there, "reviewer-01", *reviewer, sys.executable, "-c", SLOW)
    team.wait_until(here, "reviewer", "working", "reviewer-01")
    os.killpg(stopped.pid, signal.SIGKILL)
    last = team.agent(there, "reviewer-02", *reviewer, *RUFF, "{inputs}")

    assert second.wait(90) == 0, (here.folder / "coder-02.out").read_text()
    assert last.wait(90) == 0, (there.folder / "reviewer-02.out").read_text()
    told = team.status(there)
    assert told["phase"] == "done"
    assert {s["slot"]: (s["status"], s["agent"]) for s in told["slots"]} == {
        "coder": ("completed", "coder-02"),
        "reviewer": ("completed", "reviewer-02"),
    }
    assert "F632" in team.ok(here, "fetch", "review.txt", "-o", "-")
    log = [json.loads(line) for line in team.ok(here, "log", "--json").splitlines()]
    resets = [move["agent"] for entry in log for move in entry["moves"] if move["new"] == "pending"]
    assert sorted(agent for agent in resets if agent) == ["coder-01", "reviewer-01"]
    team.ok(here, "validate", "--artifacts")
    assert int(marks[1].read_text()) > int(marks[0].read_text()), "the lock was passed on"


def wait_for_file(path):
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.05)
