"""Processes that draw ids of hand-offs for one role at once never draw one twice."""

import os
from contextlib import ExitStack

import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.handoffs.queue.places import Places
from tapstore.handoffs.queue.sequence import Sequence
from tapstore.stores.local import LocalStore
from tests.processes.steps import Stopped


@pytest.fixture
def drawing(tmpfs_path):
    """How a process of its own draws: a sequence that has drawn nothing."""
    return lambda: Sequence(LocalStore(tmpfs_path), Places("coder"), SYSTEM_CLOCK)


def numbers(sequence, count):
    return [sequence.draw().sequence for _ in range(count)]


def test_one_that_reserves_few_and_one_that_reserves_many_share_no_number(drawing, tmp_path):
    """Whatever comes between two steps of a reservation."""
    found = tmp_path / "numbers"
    step, was_stopped = 0, True
    drawn = []
    while was_stopped:
        step += 1
        slow, fast = drawing(), drawing()
        drawn += numbers(slow, 7) + numbers(fast, 1)

        def reserve(slow=slow):
            found.write_text(str(slow.draw().sequence))

        stopped = Stopped(step, reserve)
        was_stopped = stopped.stopped
        drawn += numbers(fast, 3)
        assert stopped.outcome() == "done"
        drawn.append(int(found.read_text()))
    assert step > 6
    assert len(set(drawn)) == len(drawn)


def draw_many(drawing, ready, begin, output):
    """In a process of its own: new sequences of growing length, as commands and daemons are."""
    sequence = drawing()
    os.write(ready, b".")
    os.read(begin, 1)
    with output.open("w") as file:
        for round_ in range(40):
            if round_ % 4 == 0:
                sequence = drawing()
            for number in numbers(sequence, 3):
                file.write(f"{number}\n")


def test_four_processes_that_draw_at_once_share_no_number(drawing, tmp_path):
    ready, told = os.pipe()
    begin, start = os.pipe()
    children = []
    with ExitStack() as stack:
        for end in (ready, told, begin):
            stack.callback(os.close, end)
        for name in range(4):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    draw_many(drawing, told, begin, tmp_path / str(name))
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        for _ in children:
            os.read(ready, 1)
        os.write(start, b"." * len(children))
        os.close(start)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    drawn = [line for name in range(4) for line in (tmp_path / str(name)).read_text().split()]
    assert len(drawn) == 4 * 120
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("there", [b"", b"x" * 5000])
def test_what_somebody_else_put_there_stops_no_sender(drawing, tmpfs_path, there):
    folder = tmpfs_path / "handoffs" / "coder" / "sequence"
    folder.mkdir(parents=True)
    for name in ("000000000000", "999999999999", "rubbish", "1"):
        (folder / name).write_bytes(there)
    (folder / "000000000001").symlink_to(folder / "gone")
    found = [number for _ in range(3) for number in numbers(drawing(), 2)]
    assert len(set(found)) == 6
