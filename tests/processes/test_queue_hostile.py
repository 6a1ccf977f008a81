"""What somebody put into the folders of a session by hand harms itself at most.

Given a folder, and what only a folder has: links, folders and pipes where files are expected.
"""

import os
from contextlib import nullcontext

import pytest

from tapstore.errors import StoreError
from tapstore.handoffs.queue.places import Places
from tests.processes.queue_steps import FolderWorld


@pytest.fixture
def world(tmpfs_path):
    return FolderWorld(tmpfs_path / "world")


@pytest.fixture
def outside(tmpfs_path):
    path = tmpfs_path / "secret"
    path.write_text("secret\n\n")
    return path


def a_link_out(path, outside):
    path.symlink_to(outside)


def a_link_to_nothing(path, _):
    path.symlink_to("gone")


def a_link_to_itself(path, _):
    path.symlink_to(path.name)


def a_link_to_a_folder(path, outside):
    path.symlink_to(outside.parent)


def a_pipe(path, _):
    os.mkfifo(path)


def a_folder(path, _):
    path.mkdir()
    (path / "x").write_text("x")


def ten_megabytes(path, _):
    path.write_bytes(b"x" * 10_000_000)


def a_line_of_ten_megabytes(path, _):
    path.write_bytes(b"id: " + b"x" * 10_000_000 + b"\n\n")


def nothing_but_nul(path, _):
    path.write_bytes(bytes(100))


THINGS = [
    a_link_out, a_link_to_nothing, a_link_to_itself, a_link_to_a_folder, a_pipe, a_folder,
    ten_megabytes, a_line_of_ten_megabytes, nothing_but_nul,
]  # fmt: skip

NAMES = [
    "00_20260101T000000Z_000001_from_coder_to_reviewer.handoff",
    "00_nonsense.handoff",
    "00_20260101T000000Z_000001_from_.._to_reviewer.handoff",
    "00_20260101T000000Z_000001_from_coder_to_reviewer.handoff\nx.handoff",
    "batch_20260101T000000Z_0123456789abcdef",
]


def places_of(name):
    reviewer, coder = Places("reviewer"), Places("coder")
    return {
        "new": f"{reviewer.new}{name}",
        "its own folder": f"{reviewer.waiting(name)}",
        "in process": f"{reviewer.in_process}{name}~1",
        "a batch": f"{reviewer.in_process}{name}",
        "completed": reviewer.completed(name),
        "dead": f"{reviewer.dead}{name}",
        "outbox": f"{coder.outbox}{name}",
        "sent": coder.sent(name),
        "failed": f"{coder.failed}{name}",
    }


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
@pytest.mark.parametrize("role", ["reviewer", "QA"])
def test_what_is_no_message_holds_up_nobody(world, outside, thing, role):
    for name in NAMES:
        for key in places_of(name).values():
            path = world.folder / key.replace("/reviewer/", f"/{role}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            thing(path, outside)
    for seconds in (0, 3600, 3 * 86_400):
        world.pass_time(seconds, ".handoff~")
        sent = [world.send(f"{role},coder", f"{seconds}-{number}") for number in range(2)]
        list(world.box("coder").deliver())
        texts = [text for each in world.work_off(role) for text in each]
        assert texts == [f"{seconds}-0", f"{seconds}-1"]
        assert all(world.record(role, name) is not None for name in sent)
    assert outside.read_text() == "secret\n\n"


@pytest.mark.filterwarnings("ignore:passed over")
@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
@pytest.mark.parametrize("state", ["in process", "completed"])
def test_what_stands_in_the_place_of_a_record_stops_its_message_alone(world, outside, thing, state):
    name = world.send("reviewer", "its record is rubbish", 10)
    path = world.folder / places_of(name)[state]
    path.parent.mkdir(parents=True, exist_ok=True)
    thing(path, outside)
    world.send("reviewer", "behind it", 50)
    # When nothing else is to be had, the folder in the way is told of.
    with (
        pytest.raises(StoreError, match="move it away")
        if thing is a_folder and state == "in process"
        else nullcontext()
    ):
        world.work_off("reviewer")
    assert len(world.acknowledged.read_text().splitlines()) in (1, 2)
    assert "behind it" in world.completed("reviewer")
    assert outside.read_text() == "secret\n\n"
