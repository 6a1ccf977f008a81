"""Sessions that two hosts work in at once, one of them with a clock that is an hour ahead."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest

from tests.nfs.clocks import CLOCKS, in_roles
from tests.nfs.interpreter import Interpreter
from tests.servers.process import REPOSITORY

COMMITTER = REPOSITORY / "tests/processes/commit_worker.py"
PLAIN = REPOSITORY / "tests/plain_agents/plain_agent.py"

HELPERS = """
import time
import tapstore
from concurrent.futures import ThreadPoolExecutor
from tapstore.sessions import history
from tapstore.tapfile import format

def claim(agent, session):
    try:
        claim = session.claim("coder", agent=agent, ttl=600)
    except tapstore.AlreadyClaimedError as exc:
        return ["lost", str(exc).split(" is claimed by ")[1].split(" ")[0]]
    claim.detach()
    return ["won", claim.agent, claim.token]

def claim_twice(name):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(claim, [f"{name}-0", f"{name}-1"], sessions))

def sweep_for(seconds):
    # How often somebody was taken for dead.
    until = time.monotonic() + seconds
    found = 0
    while time.monotonic() < until:
        found += len(session.sweep())
        time.sleep(0.1)
    return found

def sweep_until_found(seconds):
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if session.sweep():
            return time.monotonic() - began
        time.sleep(0.1)

def landed():
    return [e.reason for e in session.log() if "edit" in e.operations and e.by[:1] == "w"]

def broken():
    return [str(each) for each in history.verify(session.state.log)]
"""


@pytest.fixture
def people(pythons):
    for python in pythons:
        python.run(HELPERS)
    return pythons


@pytest.fixture
def pair(request, people):
    """One who works and one who watches."""
    return in_roles(people, request)


def create(people, place, **options):
    words = "".join(f", {name}={value!r}" for name, value in options.items())
    people[0].run(f"session = tapstore.create({place!r}{words})")
    people[1].run(f"session = tapstore.open({place!r})")


# Claims


def race(people, place, rounds):
    create(people, place, roles=["coder"])
    for python in people:
        python.run(f"sessions = [tapstore.open({place!r}) for _ in range(2)]")
    tokens = []
    for number in range(rounds):
        for who, python in enumerate(people):
            python.begin(f"claim_twice('r{number}-{who}')")
        answers = [answer for python in people for answer in python.answer()]
        won = [answer for answer in answers if answer[0] == "won"]
        assert len(won) == 1, answers
        assert {answer[1] for answer in answers} == {won[0][1]}, "a loser was told another name"
        for python in people:
            assert python.ask("session.tapfile.participants[0].agent_id") == won[0][1]
        tokens.append(won[0][2])
        people[number % 2].run("session.reset('coder')")
    assert tokens == sorted(set(tokens))


def test_of_claimants_on_two_hosts_exactly_one_wins_each_time(people, place):
    race(people, place, 12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_same_five_hundred_times(people, place):
    race(people, place, 500)


# Signs of life


@CLOCKS
def test_who_lives_is_not_reset_by_a_host_with_another_clock(pair, place):
    worker, watcher = pair
    create(pair, place, roles=["coder"])
    worker.run("claim_ = session.claim('coder', agent='worker', ttl=2)")
    assert watcher.ask("sweep_for(5)") == 0
    worker.run("claim_.complete()")
    assert watcher.ask("session.tapfile.participants[0].status") == "completed"


@CLOCKS
def test_one_look_resets_nobody_although_an_hour_seems_to_have_passed(pair, place):
    worker, watcher = pair
    create(pair, place, roles=["coder"])
    worker.run("session.claim('coder', agent='worker', ttl=60).detach()")
    watcher.run(f"session = tapstore.open({place!r})")
    assert watcher.ask("[each.health.value for each in session.judge()]") == ["alive"]
    assert watcher.ask("sweep_for(1)") == 0


@CLOCKS
def test_who_was_killed_is_reset_by_the_other_host_and_not_before_the_ttl(nfs, pair, place):
    _, watcher = pair
    create(pair, place, roles=["coder"])
    client = next(c for c in nfs.clients if c is not watcher.client)
    with Interpreter(client) as worker:
        worker.run(f"import tapstore; session = tapstore.open({place!r})")
        worker.run("claim = session.claim('coder', agent='worker', ttl=2)")
        worker.process.kill()
    assert 2 <= watcher.ask("sweep_until_found(60)") < 30
    assert watcher.ask("session.tapfile.participants[0].status") == "pending"


# Commits


class Committer:
    def __init__(self, client, place, name):
        self.running = client.python(COMMITTER, place, name)

    def outcomes(self):
        """By attempt; of a killed one's last attempt nobody knows."""
        lines = self.running.stdout.read().splitlines()
        seen = {}
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                assert line == lines[-1]  # killed while it said so
                continue
            seen[record["attempt"]] = record["outcome"]
        return seen

    def end(self):
        self.running.signal(signal.SIGCONT)
        self.running.end_input()
        assert self.running.wait() in (0, -signal.SIGKILL), self.running.stderr


def storm(nfs, people, place, *, keep, foreign, commits):
    create(
        people, place, session_id="storm", fields={"counter": 0}, keep_revisions=keep,
        foreign=foreign, tapfile_format="json",
    )  # fmt: skip
    chance = random.Random(os.urandom(8))
    names = iter(range(1_000_000))
    everyone = []

    def start(client):
        everyone.append(Committer(client, place, f"w{next(names)}"))
        return everyone[-1]

    alive = [(client, start(client)) for client in nfs.clients * 2]
    stopped = []
    blow, kills, seen = 0.0, 0, 0
    while seen < commits or kills < 3:
        # The reader paces the storm: what others are shown is whole at any time.
        seen = chance.choice(people).ask(
            "format.parse(session.store.get('.tap/Tapfile').data)['counter']"
        )
        now = time.monotonic()
        for entry in [entry for entry in stopped if entry[0] <= now]:
            stopped.remove(entry)
            entry[1].running.signal(signal.SIGCONT)
        if now < blow or not seen:
            continue
        blow = now + chance.uniform(0.05, 0.6)
        victim = chance.choice(alive)
        if chance.random() < 0.7:
            victim[1].running.signal(signal.SIGSTOP)
            stopped.append((now + chance.uniform(0.01, 1.0), victim[1]))
        else:
            kills += 1
            victim[1].running.kill()
            alive.remove(victim)
            alive.append((victim[0], start(victim[0])))
    for _, committer in alive:
        committer.end()
    judge(people, everyone, commits)


def judge(people, everyone, commits):
    outcomes = {}
    for committer in everyone:
        outcomes |= committer.outcomes()
    errors = "\n".join(committer.running.stderr for committer in everyone)
    for committer in everyone:
        with committer.running:
            pass
    acknowledged = {a for a, outcome in outcomes.items() if outcome == "ok"}
    refused = {a for a, outcome in outcomes.items() if outcome == "refused"}
    assert len(acknowledged) > commits / 2, errors
    assert [a for a, outcome in outcomes.items() if outcome == "unknown"] == [], errors
    for python in people:
        landed = Counter(python.ask("landed()"))
        assert [a for a in acknowledged if landed[a] != 1] == [], "acknowledged, but not there once"
        assert [a for a in refused if landed[a]] == [], "refused, but there"
        assert [a for a in landed if landed[a] > 1 or a not in outcomes] == [], "there twice"
        assert python.ask("session.tapfile.extra['counter']") == landed.total()
        assert python.ask("broken()") == []


CASES = [
    pytest.param(1, True, id="keep1-foreign"),
    pytest.param(2, False, id="keep2-own"),
]


@pytest.mark.parametrize(("keep", "foreign"), CASES)
def test_every_acknowledged_commit_of_two_hosts_is_there_once_under_kill_and_stop(
    nfs, people, place, keep, foreign
):
    storm(nfs, people, place, keep=keep, foreign=foreign, commits=50)


@pytest.mark.soak
@pytest.mark.timeout(7000)
@pytest.mark.parametrize(("keep", "foreign"), CASES)
def test_the_same_for_ten_thousand_commits(nfs, people, place, keep, foreign):
    storm(nfs, people, place, keep=keep, foreign=foreign, commits=10_000)


# Agents that know nothing of tapstore


def interop(nfs, people, place, count):
    """On each host a plain agent counts, while a process of tapstore does."""
    create(people, place, session_id="s", fields={"counter": 0, "note": "kept"})
    committers = [Committer(client, place, f"w{n}") for n, client in enumerate(nfs.clients)]
    plain = [
        client.python(PLAIN, "increment", place, count, "--poll", 0.01, "--agent", name, *options)
        for client, name, options in zip(
            nfs.clients, ("p0", "p1"), (("--keep", 50), ("--keep", 50, "--rename")), strict=True
        )
    ]
    for agent in plain:
        events = [json.loads(line) for line in agent.stdout]
        assert agent.wait() == 0, agent.stderr
        assert [event for event in events if event["event"] == "lost"] == []
        assert sum(event["event"] == "acknowledged" for event in events) == count
    for committer in committers:
        committer.end()
    own = sum(list(each.outcomes().values()).count("ok") for each in committers)
    for python in people:
        extra = python.ask("session.tapfile.extra")
        assert (extra["counter_p0"], extra["counter_p1"]) == (count, count)
        assert (extra["counter"], extra["note"]) == (own, "kept")
        assert python.ask("broken()") == []
    for each in [*plain, *(committer.running for committer in committers)]:
        with each:
            pass


def test_plain_agents_and_tapstore_on_two_hosts_lose_no_update_and_no_field(nfs, people, place):
    interop(nfs, people, place, 20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_same_with_a_thousand_updates(nfs, people, place):
    interop(nfs, people, place, 1000)
