"""A session in a bucket: what it costs, and what lost replies and lying servers do to it."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

import tapstore
from tapstore.errors import SessionNotFoundError, UnsupportedOperationError
from tapstore.sessions.logwriter import LogWriter
from tests.servers import proxy
from tests.servers.faults import Hold, LoseReply

TAPFILE = ".*/Tapfile"


@pytest.fixture
def session(s3_server):
    """Made on the server itself."""
    with tapstore.create(
        f"s3://{s3_server.new_bucket()}/team/s1", roles=["coder"], phase="one",
        storage_options=s3_server.storage_options,
    ) as made:  # fmt: skip
        made.set_phase("two")
        yield made


@pytest.fixture
def link(s3_server):
    with proxy.http(s3_server.port) as link:
        yield link


def through(link, server, session, **options):
    """The same session, for somebody who reaches the server through the proxy."""
    far = server.at(link.endpoint).storage_options
    far["config_kwargs"] = {"read_timeout": 5, **options}
    return tapstore.open(session.url, storage_options=far)


def phases(session):
    return [entry.phase[1] for entry in session.log() if entry.phase]


# What it costs


@pytest.fixture
def behind(monkeypatch):
    """The log is written when the test says so."""
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)


@pytest.mark.usefixtures("behind")
def test_requests_are_as_few_as_promised(s3_server, session, link):
    far = through(link, s3_server, session)
    link.requests.clear()
    far.set_phase("three")
    assert link.counted() == {"GET": 1, "PUT": 1}, "cold"
    link.requests.clear()
    far.set_phase("four")
    assert link.counted() == {"PUT": 1}, "warm"
    link.requests.clear()
    assert far.phase == "four"
    assert [(each.method, each.status) for each in link.requests] == [("GET", 304)]


def test_an_inbox_of_a_thousand_is_one_list(s3_server, session, link):
    store = session.store
    threads = [
        threading.Thread(
            target=lambda part: [store.put(f"inbox/coder/t{n:04}", b"x") for n in part],
            args=(range(start, 1000, 8),),
        )
        for start in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    far = through(link, s3_server, session)
    link.requests.clear()
    assert len(list(far.store.list("inbox/coder/"))) == 1000
    assert link.counted()["GET"] <= 2


# Lost replies


def test_a_commit_whose_reply_is_dropped_counts_once(s3_server, session, link):
    far = through(link, s3_server, session)
    rule = link.rules.add(LoseReply(), method="PUT", path=TAPFILE)
    far.set_phase("three")
    assert rule.hits == 1
    assert phases(session) == ["two", "three"]


def test_also_if_another_agent_has_committed_on_top_before_we_looked(s3_server, session, link):
    far = through(link, s3_server, session)
    _ = far.phase
    link.rules.add(LoseReply(), method="PUT", path=TAPFILE)
    looking = Hold()
    link.rules.add(looking, method="GET", path=TAPFILE)
    worker = threading.Thread(target=far.set_phase, args=("three",))
    worker.start()
    assert looking.arrived.wait(30)
    session.set_phase("on top")
    looking.release()
    worker.join()
    assert phases(session) == ["two", "three", "on top"]


def test_also_if_the_request_arrives_after_we_stopped_waiting(s3_server, session, link):
    far = through(link, s3_server, session, read_timeout=1)
    _ = far.phase
    late = Hold()
    link.rules.add(late, method="PUT", path=TAPFILE)
    far.set_phase("three")
    late.release()
    assert late.done.wait(30)
    session.set_phase("four")
    assert phases(session) == ["two", "three", "four"]


def test_a_late_request_does_not_undo_what_others_committed(s3_server, session, link):
    far = through(link, s3_server, session, read_timeout=1)
    _ = far.phase
    late = Hold()
    link.rules.add(late, method="PUT", path=TAPFILE)
    worker = threading.Thread(target=far.set_phase, args=("three",))
    worker.start()
    assert late.arrived.wait(30)
    session.set_phase("faster")
    worker.join()
    late.release()
    assert late.done.wait(30)
    assert phases(session) == ["two", "faster", "three"]


# Deleted, or not to be relied on


def test_a_deleted_tapfile_is_an_error_and_never_an_empty_session(session):
    session.store.delete(".tap/Tapfile")
    with pytest.raises(SessionNotFoundError):
        session.set_phase("three")
    with pytest.raises(SessionNotFoundError):
        _ = session.phase


def test_a_server_that_ignores_conditions_is_refused_with_the_way_out(juicefs_s3):
    with pytest.raises(UnsupportedOperationError, match=r"(?s)ignores.*--accept lock-only"):
        tapstore.create(
            f"s3://{juicefs_s3.new_bucket()}/s", roles=["r"],
            storage_options=juicefs_s3.storage_options,
        )  # fmt: skip


@pytest.mark.timeout(300)
def test_with_redis_and_the_weaker_guarantee_accepted_it_works(juicefs_s3, redis_like):
    url, options = f"s3://{juicefs_s3.new_bucket()}/s", juicefs_s3.storage_options
    tapstore.create(
        url, roles=["coder"], fields={"count": 0}, locks=redis_like.url, accept="lock-only",
        storage_options=options,
    ).close()  # fmt: skip

    def count():
        with tapstore.open(url, storage_options=options) as session:
            for _ in range(10):
                session.edit(lambda document: document.update(count=document["count"] + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with tapstore.open(url, storage_options=options) as session:
        assert session.tapfile.extra["count"] == 40
        with session.claim("coder", agent="a") as claim:
            claim.publish("x", b"1")
            claim.complete()
        assert session.artifacts["x"].read_text() == "1"


# The log


def test_records_follow_and_come_together(session):
    for number in range(10):
        session.set_phase(f"p{number}")
    deadline = time.monotonic() + 20
    segments = session.state.revisions._segments
    while (found := list(segments.records()))[-1].n < 12:
        assert time.monotonic() < deadline
    assert [head.n for head in found] == list(range(1, 13))
    objects = list(session.store.list(f"{session.config.prefix}/log/"))
    assert len(objects) < 10
    assert Counter(phases(session)).most_common(1)[0][1] == 1
