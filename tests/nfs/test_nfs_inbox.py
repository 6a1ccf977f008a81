"""Workers on two hosts see the same tasks at the same moment, and each task is done once."""

import json
from contextlib import ExitStack

import pytest

from tests.servers.process import REPOSITORY

WORKER = REPOSITORY / "tests/processes/inbox_worker.py"

DROP = """
import json, os, tapstore

def drop(place, task):
    # As a plain program does it: whole, under another name, and then renamed.
    folder = f"{place}/inbox/coder"
    with open(f"{folder}/.{task}.new", "w") as file:
        file.write(json.dumps({"task_id": task}))
    os.rename(f"{folder}/.{task}.new", f"{folder}/{task}.json")
"""


@pytest.mark.parametrize(
    "rounds", [pytest.param(2, id="quick"), pytest.param(300, marks=pytest.mark.soak, id="soak")]
)
def test_each_task_is_done_once_whichever_host_sees_it(nfs, pythons, place, rounds):
    for python in pythons:
        python.run(DROP)
    pythons[0].run(f"session = tapstore.create({place!r}, roles={{'coder': 4}}, phase='p')")
    pythons[1].run(f"session = tapstore.open({place!r})")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(client.python(WORKER, place, "coder", f"{client.name}-{n}"))
            for client in nfs.clients
            for n in range(2)
        ]
        for number in range(rounds):
            left = {f"t{number}.{n}" for n in range(3)}
            for n, task in enumerate(sorted(left)):
                pythons[n % 2].run(f"drop({place!r}, {task!r})")
            while left:
                done = [task for task in look(workers) if task is not None]
                assert len(set(done)) == len(done)
                assert left.issuperset(done)  # or one was done before
                left.difference_update(done)
            pythons[number % 2].run(
                "for slot in session.tapfile.slots('coder'):\n"
                "    if slot.status == 'completed': session.reopen(slot.label)\n"
            )
        kept = "len(list(session.store.list('inbox/coder/.done/')))"
        assert [python.ask(kept) for python in pythons] == [rounds * 3] * 2


def look(workers):
    for worker in workers:
        worker.send("look\n")
    answers = [worker.stdout.readline() for worker in workers]
    assert all(answers), "\n".join(worker.stderr for worker in workers)
    return [json.loads(answer) for answer in answers]
