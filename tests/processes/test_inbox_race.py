"""Several processes see the same tasks at the same moment, and each task is done once."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import tapstore

WORKER = Path(__file__).with_name("inbox_worker.py")


@pytest.mark.parametrize(
    "rounds", [pytest.param(12, id="quick"), pytest.param(500, marks=pytest.mark.soak, id="soak")]
)
@pytest.mark.parametrize(("slots", "tasks"), [(1, 1), (4, 3)])
def test_each_task_is_done_once_whoever_sees_it(tmpfs_path, rounds, slots, tasks):
    url = str(tmpfs_path / "s")
    with ExitStack() as stack:
        session = stack.enter_context(tapstore.create(url, roles={"coder": slots}, phase="p"))
        workers = [stack.enter_context(_worker(url, f"a{n}")) for n in range(5)]
        for number in range(rounds):
            left = {f"t{number}.{n}" for n in range(tasks)}
            for task in left:
                text = json.dumps({"task_id": task})
                Path(session.store.local_path(f"inbox/coder/{task}.json")).write_text(text)
            while left:
                done = [task for task in _look(workers) if task is not None]
                assert len(set(done)) == len(done)
                assert left.issuperset(done)  # or one was done before
                left.difference_update(done)
            for slot in session.tapfile.slots("coder"):
                if slot.status == "completed":
                    session.reopen(slot.label)
        kept = list(session.store.list("inbox/coder/.done/"))
        assert len(kept) == rounds * tasks
        for worker in workers:
            worker.stdin.close()
            assert worker.wait(timeout=30) == 0


def _worker(url, agent):
    command = [sys.executable, str(WORKER), url, "coder", agent]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _look(workers):
    for worker in workers:
        worker.stdin.write("look\n")
        worker.stdin.flush()
    return [json.loads(worker.stdout.readline()) for worker in workers]
