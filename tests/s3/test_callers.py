"""Forks, spawned processes, threads, asyncio and Ctrl-C: nothing hangs, is lost or half-made."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import tapstore
from tapstore.errors import LeaseUnavailableError
from tapstore.sessions import history

WORKER = Path(__file__).parent / "caller_worker.py"

pytestmark = pytest.mark.filterwarnings(
    # The children of these tests are forked beside threads, as they are in users' programs.
    "ignore:This process:DeprecationWarning"
)


@pytest.fixture(params=["moto_s3", "radosgw"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def url(server):
    url = f"s3://{server.new_bucket()}/s"
    tapstore.create(
        url, roles=["coder"], fields={"count": 0}, storage_options=server.storage_options
    ).close()
    return url


def add(document):
    document["count"] += 1


def count(session, times):
    for _ in range(times):
        session.edit(add, timeout=120)


def count_anew(url, options, times):
    with tapstore.open(url, storage_options=options) as session:
        count(session, times)


def counted(url, server):
    with tapstore.open(url, storage_options=server.storage_options) as session:
        assert list(history.verify(session.state.log)) == []
        return session.tapfile.extra["count"]


def test_a_forked_child_goes_on_with_the_session_of_its_parent(url, server):
    with tapstore.open(url, storage_options=server.storage_options) as session:
        count(session, 2)  # sockets are open, and the thread that logs is at work
        fork = multiprocessing.get_context("fork")
        children = [fork.Process(target=count, args=(session, 5)) for _ in range(2)]
        for child in children:
            child.start()
        count(session, 5)
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
    assert counted(url, server) == 17


def test_a_spawned_process_opens_its_own(url, server):
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=count_anew, args=(url, server.storage_options, 5))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert counted(url, server) == 5


def test_threads_share_one_session(url, server):
    with tapstore.open(url, storage_options=server.storage_options) as session:
        threads = [threading.Thread(target=count, args=(session, 5)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counted(url, server) == 30


def test_coroutines_call_it_in_threads_and_may_be_cancelled(url, server):
    async def main(session):
        tasks = [asyncio.create_task(asyncio.to_thread(count, session, 3)) for _ in range(4)]
        late = asyncio.create_task(asyncio.to_thread(count, session, 3))
        await asyncio.sleep(0.05)
        late.cancel()
        await asyncio.gather(*tasks)

    with tapstore.open(url, storage_options=server.storage_options) as session:
        asyncio.run(main(session))
    # A thread can't be cancelled: it goes on to its end, whole.
    assert counted(url, server) in (12, 15)


@pytest.mark.timeout(300)
def test_ctrl_c_in_any_phase_leaves_nothing_locked_and_nothing_half_made(url, server):
    environment = os.environ | {"STORAGE_OPTIONS": json.dumps(server.storage_options)}
    acknowledged, drawn = [], random.Random(7)
    for number in range(12):
        process = subprocess.Popen(
            [sys.executable, WORKER, url, f"w{number}"], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        time.sleep(drawn.uniform(0, 0.5))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        acknowledged += out.split()
    with tapstore.open(url, storage_options=server.storage_options) as session:
        landed = Counter(entry.reason for entry in session.log() if entry.reason)
        assert set(acknowledged) <= set(landed)
        assert set(landed.values()) == {1}
        assert list(history.verify(session.state.log)) == []
        for artifact in session.tapfile.artifacts:
            kept = session.artifacts[artifact.phase, artifact.name]
            assert kept.read_bytes() == artifact.name.encode() * 1000
        try:
            session.lock("turn", ttl=3, wait=10).release()
        except LeaseUnavailableError:
            pytest.fail("still locked, long after the ttl")
