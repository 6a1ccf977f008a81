"""A process is killed before each single call that makes something visible, while it takes,
finishes or sets aside a task.  The next one goes on without help: the task is done once."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import tapstore
from tapstore.errors import ClaimLostError, LeaseLostError
from tapstore.tasks.inbox import Inbox
from tapstore.tasks.work import WorkFilter, seek
from tests.processes.steps import killed_before_call

CALLS = ("link", "rename", "replace", "unlink")
TTL = 0.3
CODER = WorkFilter(role="coder")
TASK = {"requirement": "x", "output_artifact_name": "x.py", "output_path": "artifacts/one/x.py"}


def work_once(url, agent, *, ttl=30):
    with tapstore.open(url) as session:
        work = seek(session, CODER, agent=agent, ttl=ttl)
        if work is not None:
            work.add("x.py", agent.encode())
            work.complete(phase="done")
        return work is not None


def work_and_die(url):
    # On a busy machine it may lose its claim before it is killed, which is as good.
    with suppress(ClaimLostError, LeaseLostError):
        work_once(url, "first", ttl=TTL)


def make(tmp_path, number, data):
    url = str(tmp_path / str(number))
    options = {"storage_options": {"durability": "none"}}
    with tapstore.create(url, roles=["coder"], phase="p", max_attempts=0, **options) as session:
        Path(session.store.local_path("inbox/coder/job.json")).write_text(data)
    return url


def go_on(url, finished, *, within=30):
    """As the next agents would."""
    end = time.monotonic() + within
    with tapstore.open(url) as session:
        while not finished(session):
            assert time.monotonic() < end, "nobody could go on"
            if not work_once(url, "next"):
                time.sleep(0.02)


def inbox_names(session):
    names = (info.key.removeprefix("inbox/coder/") for info in session.store.list("inbox/coder/"))
    return sorted(names)


def is_done(session):
    return session.phase == "done" and inbox_names(session) == [".done/job.json"]


def killed_before_each_call(tmp_path, data, action):
    """One session for each call that `action` makes, left by who was killed before it."""
    urls, killed = [], True
    while killed:
        urls.append(make(tmp_path, len(urls) + 1, data))
        killed = killed_before_call(len(urls), lambda: action(urls[-1]), CALLS)
    return urls


def test_a_task_is_done_once_whatever_call_its_agent_died_before(tmp_path):
    urls = killed_before_each_call(tmp_path, json.dumps(TASK), work_and_die)
    assert len(urls) > 15  # or the kills did not reach what they should
    for url in urls:
        go_on(url, is_done)
        with tapstore.open(url) as session:
            completions = [entry for entry in session.log() if "complete" in entry.operations]
            assert len(completions) == 1
            assert session.artifacts["x.py"].read_text() == completions[0].by
            session.reopen("coder")
            assert seek(session, CODER, agent="again") is None


def test_what_is_no_task_is_set_aside_whatever_call_its_finder_died_before(tmp_path):
    def find(url):
        os.utime(Path(url) / "inbox/coder/job.json", (1, 1))
        work_and_die(url)

    urls = killed_before_each_call(tmp_path, "no task", find)
    assert len(urls) > 3
    for url in urls:
        go_on(url, lambda s: inbox_names(s) == [".failed/job.json", ".failed/job.json.reason"])


def test_a_file_that_was_moved_to_be_removed_but_is_another_one_comes_back(tmp_path):
    url = make(tmp_path, 1, json.dumps(TASK))
    assert work_once(url, "first")
    folder = Path(url) / "inbox/coder/.removing/mark"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text('{"requirement": "dropped while it was removed"}')
    with tapstore.open(url) as session:
        session.reopen("coder")
        (task,) = Inbox(session.state, "coder").pending()
        assert task.requirement == "dropped while it was removed"
        assert task.key == "inbox/coder/job~mark.json"
    assert not folder.exists()
