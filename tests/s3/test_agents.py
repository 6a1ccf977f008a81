"""Agents at work in a bucket, on hand-offs and claims, also when it stops answering."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import tapstore
from tapstore.agents import (
    AgentSpec,
    CommandHandler,
    Ending,
    HandoffSpec,
    HandoffWorker,
    Worker,
    WorkFilter,
    logs,
)
from tapstore.handoffs.queue import opening
from tests.servers import proxy


@pytest.fixture
def session(s3_server):
    with tapstore.create(
        f"s3://{s3_server.new_bucket()}/s", roles=["coder", "reviewer"],
        storage_options=s3_server.storage_options,
    ) as made:  # fmt: skip
        yield made


def send(session, message):
    draft = f"type: note\nto: coder\npriority: 50\nmessage: {message}\n"
    opening.open(session, role="reviewer", agent="r1").send(draft.encode())


def worker(session, script, *arguments, agent="a1", ttl=None, stdout_as="", told=None):
    handler = CommandHandler(argv=("sh", "-c", script, "sh", *arguments), stdout_as=stdout_as)
    spec = HandoffSpec(agent=agent, role="coder", ttl=ttl)
    return HandoffWorker(session, spec, handler, on_outcome=told)


def test_hand_offs_are_done_and_what_was_printed_is_kept(session):
    send(session, "one")
    send(session, "two")
    assert worker(session, 'echo "$1"', "{requirement}", stdout_as="out").run(idle=0) == 2
    assert session.artifacts["out"].read_text().endswith("two\n")
    log = b"".join(logs.read(session, "a1")).decode()
    assert log.index("\none\n") < log.index("\ntwo\n")


class OfHandoffs:
    def __init__(self, session):
        send(session, "slow")

    def worker(self, session, script, told):
        return worker(session, script, ttl=2, told=told)

    def take_over(self, session):
        assert worker(session, "true", agent="a2", ttl=60).run_once().ending is Ending.COMPLETED


class OfClaims:
    def __init__(self, session):
        del session

    def worker(self, session, script, told):
        spec = AgentSpec(agent="a1", work=WorkFilter(role="coder", when_phase=""), ttl=2)
        return Worker(session, spec, CommandHandler(argv=("sh", "-c", script)), on_outcome=told)

    def take_over(self, session):
        session.claim("coder", agent="a2", wait=60).complete()


@pytest.mark.parametrize("kind", [OfHandoffs, OfClaims])
def test_a_command_ends_when_its_work_is_lost_although_the_bucket_does_not_answer(
    s3_server, session, tmp_path, kind
):
    work = kind(session)
    running, outcomes = tmp_path / "running", []
    with proxy.http(s3_server.port) as link:
        options = s3_server.at(link.endpoint).storage_options
        with tapstore.open(session.url, storage_options=options) as far:
            agent = work.worker(far, f"echo $$ > {running}; exec sleep 60", outcomes.append)
            thread = threading.Thread(target=agent.run_once)
            thread.start()
            wait_until(lambda: running.exists() and running.read_text())
            link.freeze()
            wait_until(lambda: has_ended(running.read_text().strip()), within=10)
            work.take_over(session)
            link.thaw()
            thread.join(60)
    assert [outcome.ending for outcome in outcomes] == [Ending.LOST]


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, *, within=30):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
