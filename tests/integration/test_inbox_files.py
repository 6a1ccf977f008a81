"""What people and scripts put into an inbox on a disk."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tapstore
from tapstore.sessions import config as configs
from tapstore.sessions.opening import assemble
from tapstore.tasks.inbox import Inbox, Standing
from tapstore.tasks.work import WorkFilter, seek
from tapstore.testing.faults import Fault, FaultyStore

CODER = WorkFilter(role="coder")


@pytest.fixture
def session(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder", "reviewer"], phase="p") as session:
        yield session


@pytest.fixture
def inbox(session):
    return Path(session.store.local_path("inbox/coder"))


def standings(session):
    return {Path(seen.key).name: seen.standing for seen in Inbox(session.state, "coder").look()}


def look(session):
    return seek(session, CODER, agent="a1")


def note(inbox, name):
    return (inbox / ".failed" / f"{name}.reason").read_text()


@pytest.mark.parametrize(
    "script",
    [
        'echo "$1" > "$2/job.json"',
        'printf %s "$1" > "$2/job.json"',
        'echo "$1" > "$2/../job.tmp"; mv "$2/../job.tmp" "$2/job.json"',
        'echo "$1" > "$2/../../job.json"; cp "$2/../../job.json" "$2/"',
        'echo "$1" > "$2/.job.json"; ln "$2/.job.json" "$2/job.json"',
    ],
)
def test_however_a_script_drops_a_task_it_is_read(session, inbox, script):
    task = json.dumps({"requirement": "x"})
    subprocess.run(["sh", "-c", script, "sh", task, str(inbox)], check=True)
    work = look(session)
    assert work.task.requirement == "x"
    work.complete()
    assert (inbox / ".done/job.json").exists()
    assert not (inbox / "job.json").exists()


def test_a_link_inside_the_session_is_read_and_only_the_link_removed(session, inbox):
    target = inbox.parent / "target.txt"
    target.write_text("{}")
    (inbox / "job.json").symlink_to(target)
    look(session).complete()
    assert not (inbox / "job.json").is_symlink()
    assert target.read_text() == "{}"


def test_a_link_out_of_the_session_is_not_read(session, inbox, tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (inbox / "job.json").symlink_to(tmp_path / "secret.json")
    assert look(session) is None
    assert "leads nowhere, or out of the session" in note(inbox, "job.json")
    assert (inbox / "job.json").is_symlink()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("nowhere"), "symbolic link"),
        (lambda path: path.mkdir(), "folder"),
        (os.mkfifo, "no regular file"),
    ],
    ids=["dangling", "folder", "fifo"],
)
def test_what_is_no_file_stays_and_a_note_says_why(session, inbox, make, reason):
    make(inbox / "job.json")
    assert look(session) is None
    assert reason in note(inbox, "job.json")
    assert os.path.lexists(inbox / "job.json")


def test_a_folder_with_files_is_no_task(session, inbox):
    (inbox / "job.json").mkdir()
    (inbox / "job.json" / "inner.json").write_text("{}")
    assert look(session) is None
    assert standings(session) == {"job.json": Standing.UNREADABLE}


@pytest.mark.parametrize("name", ["a:b.json", "what?.json", "a\nb.json", os.fsdecode(b"\xff.json")])
def test_a_name_that_is_not_portable_is_told(session, inbox, name):
    (inbox / name).write_text("{}")
    assert look(session) is None
    (reason,) = (inbox / ".failed").iterdir()
    assert "its name is not portable" in reason.read_text()


@pytest.mark.parametrize("name", ["$(touch x); rm -rf .json", "-rf.json", "a b.json", "任务.json"])
def test_a_name_that_is_only_strange_is_read(session, inbox, name):
    (inbox / name).write_text("{}")
    look(session).complete()
    assert (inbox / ".done" / name).exists()


@pytest.mark.parametrize("drop", [
    lambda path: path.write_text('{"requirement": "x"}'),
    lambda path: path.symlink_to("first.json"),
])  # fmt: skip
def test_what_is_dropped_while_somebody_looks_is_left_to_the_next_look(session, inbox, drop):
    (inbox / "first.json").write_text('{"requirement": "x"}')
    # The first file is read after the folder was listed and before what is no object is looked for.
    late = Fault("get", "inbox/coder/first.json", before=lambda _: drop(inbox / "late.json"))
    data = configs.raw(session.store)
    config = configs.parse(session.store, data)
    with assemble(FaultyStore(session.store, late), config, data, session.clock) as watched:
        assert standings(watched) == {"first.json": Standing.WAITING}
        assert standings(watched).keys() == {"first.json", "late.json"}
        assert Standing.UNREADABLE not in standings(watched).values()


def test_a_time_in_the_future_keeps_no_file_for_ever(session, inbox):
    (inbox / "job.json").write_text("{")
    os.utime(inbox / "job.json", (4e9, 4e9))
    assert standings(session) == {"job.json": Standing.REFUSED}


def test_the_same_file_copied_again_is_a_new_task(session, inbox, tmp_path):
    (tmp_path / "job.json").write_text("{}")
    for _ in range(2):
        shutil.copy2(tmp_path / "job.json", inbox)
        look(session).complete()
        session.reopen("coder")
    assert look(session) is None


def test_the_inode_of_a_task_that_was_done_is_not_free_for_the_next_file(session, inbox):
    # With the same inode and time, a file that is dropped again could not be told from the first.
    (inbox / "job.json").write_text("{}")
    inode = (inbox / "job.json").stat().st_ino
    look(session).complete()
    assert (inbox / ".done/job.json").stat().st_ino == inode


@pytest.mark.parametrize("role", ["审查员", "code reviewer"])
def test_a_task_is_read_also_where_a_person_makes_the_folder_of_a_role(tmp_path, role):
    folder = tmp_path / "inbox" / role
    with tapstore.create(tmp_path, roles=[role, "other"]) as session:
        folder.mkdir()
        (folder / "job.json").write_text("{}")
        seek(session, WorkFilter(role=role), agent="a1").complete()
    assert (folder / ".done" / "job.json").exists()


@pytest.mark.parametrize("role", ["%61", "a/b", "aux"])
def test_the_folder_of_one_role_is_not_that_of_another(tmp_path, role):
    with tapstore.create(tmp_path, roles=[role, "a", "b"]) as session:
        inbox = Inbox(session.state, role)
        (tmp_path / "inbox" / "a").mkdir(exist_ok=True)
        (tmp_path / "inbox" / "a" / "job.json").write_text("{}")
        assert inbox.look() == []


def test_the_inbox_may_be_missing_altogether(session, inbox):
    shutil.rmtree(inbox.parent)
    assert look(session) is None


def test_unread_files_of_others_are_left_alone(session, inbox):
    for name in ("notes.txt", "done.flag", "job.json.part", "job.json~", ".hidden.json"):
        (inbox / name).write_text("{}")
    assert look(session) is None
    assert len(list(inbox.iterdir())) == 5


def test_looking_writes_nothing_when_there_is_nothing_new(session, inbox):
    (inbox / "job.json").mkdir()
    look(session)
    before = (inbox / ".failed").stat().st_mtime_ns
    look(session)
    assert (inbox / ".failed").stat().st_mtime_ns == before
