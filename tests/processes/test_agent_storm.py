"""Agents of a root under SIGKILL, and their commands: every piece of work is completed once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tapstore.roots.root import root
from tapstore.sessions import history
from tapstore.tasks import inbox

TTL = 0.6

CODER = ["--role", "coder", "--type", "code", "--consumer", "reviewer", "--",
         "sh", "-c", 'sleep 0.3; echo "$TAPSTORE_CLAIM" > "$TAPSTORE_OUTPUT"']  # fmt: skip
REVIEWER = ["--role", "reviewer", "--stdout-as", "review.txt", "--", "cat", "{inputs}"]

AGENTS = [("c1", CODER), ("c1", CODER), ("c2", CODER), ("r1", REVIEWER)]
"""Two of them are started under one id."""


class Storm:
    """A root with sessions that get one task after another while their agents are killed."""

    def __init__(self, folder: Path, sessions: int, chance: random.Random) -> None:
        self.root = root(folder / "root")
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.mark = f"STORM={folder}"
        self.chance = chance
        self.kills: Counter[str] = Counter()
        self.places = [f"s{number}" for number in range(sessions)]
        self.rounds = Counter(self.places)
        for place in self.places:
            self.root.create(place, roles=["coder", "reviewer"], claim_ttl=TTL, max_attempts=0)
            self.ask(place)
        self.agents = [self.start(number) for number in range(len(AGENTS))]

    def ask(self, place: str) -> None:
        session = self.root.open(place)
        inbox.send(session.store, session.tapfile, "coder", {"output_artifact_name": "code.py"})

    def start(self, number: int) -> subprocess.Popen[bytes]:
        name, arguments = AGENTS[number]
        key, _, value = self.mark.partition("=")
        command = [sys.executable, "-m", "tapstore", "agent", "run", "--root", self.root.url,
                   "--agent", name, *arguments]  # fmt: skip
        return subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(self.temporary), key: value},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """One agent, or the command that it runs."""
        number = self.chance.randrange(len(AGENTS))
        agent = self.agents[number]
        if self.chance.random() < 0.6:
            agent.kill()
            agent.wait()
            self.kills["agent"] += 1
            self.agents[number] = self.start(number)
            return
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        for child in map(int, children.read_text().split()):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                self.kills["command"] += 1

    def go_on(self, *, ask: bool) -> bool:
        """Reopen what failed, and, with `ask`, what is done, for a new task; whether all is."""
        done = True
        for place in self.places:
            session = self.root.open(place)
            slots = session.tapfile.participants
            for slot in slots:
                if slot.status == "failed":
                    session.reopen(slot.label)
            if any(slot.status != "completed" for slot in slots):
                done = False
            elif ask:
                self.ask(place)
                session.reopen("reviewer")
                session.reopen("coder")
                self.rounds[place] += 1
        return done

    def survivors(self) -> list[str]:
        """Processes that this storm started, and what these started."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes()
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if self.mark.encode() in environment and state != "Z":
                    found.append((process / "cmdline").read_text())
            except OSError:
                continue  # it has just ended, or belongs to somebody else
        return found


def until(condition, within=60.0):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties processes together")
@pytest.mark.parametrize(
    ("sessions", "kills"), [(3, 10), pytest.param(5, 500, marks=pytest.mark.soak)]
)
def test_every_task_is_completed_once_whoever_is_killed(tmp_path, sessions, kills):
    storm = Storm(tmp_path, sessions, random.Random(kills))
    try:
        while storm.kills.total() < kills:
            time.sleep(storm.chance.uniform(0.02, 0.5))  # when something happens is the test
            storm.kill()
            storm.go_on(ask=True)
        until(lambda: storm.go_on(ask=False))
    finally:
        for agent in storm.agents:
            agent.terminate()
        for agent in storm.agents:
            # The signal itself, if it had only just been started.
            assert agent.wait(30) in (128 + signal.SIGTERM, -signal.SIGTERM)
    until(lambda: storm.survivors() == [], within=5)
    for place in storm.places:
        session = storm.root.open(place)
        completed = Counter(
            (move.participant, move.claim)
            for entry in session.log()
            for move in entry.moves
            if move.new == "completed"
        )
        assert set(completed.values()) == {1}
        assert Counter(slot for slot, _ in completed)["coder"] == storm.rounds[place]
        assert ("coder", session.artifacts["code.py"].read_text().strip()) in completed
        assert list(history.verify(session.state.log)) == []
        tasks = inbox.Inbox(session.state, "coder")
        assert tasks.pending() == []  # and what the last agent left unfinished is finished
        assert tasks.look() == []
        assert list(session.store.children("inbox/coder/.failed/")) == []
    storm.root.close()
