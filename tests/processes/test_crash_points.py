"""A process is killed before each single system call that changes something, in turn.

Whatever step it was, the next process finds a consistent session and goes on without help.
"""

import os
import shutil
from pathlib import Path

import pytest
import yaml

import tapstore
from tapstore.errors import AlreadyExistsError, NotAllowedError
from tapstore.sessions import history
from tapstore.tapfile import format
from tests.processes.steps import killed_before_call

TTL = 0.2


# Each scenario: what must be there before, what is killed, and how the next process goes on.


def prepare(session):
    session.edit(lambda d: d.update(counter=0))


def claim(session):
    session.claim("coder", agent="dead", ttl=TTL).detach()


def next_claims(session):
    with session.claim("coder", agent="next", ttl=30, wait=20) as mine:
        mine.publish("x.py", b"next")
        mine.complete(phase="review")
    assert session.artifacts["x.py"].read_bytes() == b"next"


def publish(session):
    mine = session.claim("coder", agent="dead", ttl=TTL)
    mine.publish("x.py", b"dead", consumers=["reviewer"])
    mine.publish("x.py", b"dead, again", consumers=["reviewer"])
    mine.detach()


def publish_is_whole(session):
    if "x.py" in session.artifacts:
        assert session.artifacts["x.py"].read_bytes() in (b"dead", b"dead, again")
    next_claims(session)


def complete(session):
    with session.claim("coder", agent="dead", ttl=TTL) as mine:
        staged = session.stage("x.py", b"dead", consumers=["reviewer"], claim=mine)
        mine.complete(phase="review", publish=[staged])


def complete_is_all_or_nothing(session):
    state = session.tapfile
    done = state.slots("coder")[0].status == "completed"
    assert done == (state.current_phase == "review") == ("x.py" in session.artifacts)
    if not done:
        next_claims(session)


def reset(session):
    session.claim("coder", agent="dead", ttl=30).detach()
    session.reset("coder", reason="test")


def next_resets(session):
    if session.tapfile.slots("coder")[0].status == "working":
        session.reset("coder")
    next_claims(session)


def phase(session):
    session.set_phase("next")


def phase_is_one_or_the_other(session):
    assert session.phase in ("start", "next")
    session.set_phase("later")


def plain_edit(session):
    path = Path(session.store.local_path(".tap/Tapfile"))
    document = yaml.safe_load(path.read_bytes())
    document["counter"] += 1
    document["log"] = ["plain"]
    path.write_text(yaml.safe_dump(document))


def import_edit(session):
    plain_edit(session)
    assert session.tapfile.extra["counter"] == 1


def the_edit_is_there_once(session):
    extra = session.tapfile.extra
    if "log" not in extra:  # killed while the plain program itself was writing
        path = Path(session.store.local_path(".tap/Tapfile"))
        os.utime(path, (1, 1))
        assert session.tapfile.extra["counter"] == 0
        return
    assert (extra["counter"], extra["log"]) == (1, ["plain"])
    session.edit(lambda d: d["log"].append("more"))
    assert session.tapfile.extra["log"] == ["plain", "more"]


def signal_given(session):
    session.signal("go", 1)


def signal_is_there_or_can_be_given(session):
    if session.read_signal("go") is None:
        session.signal("go", 2)
    assert session.read_signal("go")["data"] in (1, 2)


def lock(session):
    with session.lock("gpu", ttl=TTL, agent="dead"):
        pass


def lock_can_be_had(session):
    with session.lock("gpu", ttl=30, wait=20, agent="next"):
        pass


def sweep(session):
    session.claim("coder", agent="dead", ttl=0.001).detach()
    while session.tapfile.slots("coder")[0].status == "working":
        session.sweep()


SCENARIOS = [
    (claim, next_claims),
    (publish, publish_is_whole),
    (complete, complete_is_all_or_nothing),
    (reset, next_resets),
    (sweep, next_resets),
    (phase, phase_is_one_or_the_other),
    (import_edit, the_edit_is_there_once),
    (signal_given, signal_is_there_or_can_be_given),
    (lock, lock_can_be_had),
]


@pytest.mark.parametrize(("action", "go_on"), SCENARIOS, ids=[a.__name__ for a, _ in SCENARIOS])
def test_killed_at_any_step_the_next_process_goes_on(action, go_on, tmpfs_path):
    template = tmpfs_path / "template"
    with tapstore.create(
        str(template), roles=["coder", "reviewer"], phase="start", keep_revisions=1
    ) as session:
        prepare(session)
    number = 1
    while True:
        place = tmpfs_path / "s"
        shutil.copytree(template, place)

        def act(place=str(place)):
            action(tapstore.open(place))

        killed = killed_before_call(number, act)
        with tapstore.open(str(place)) as session:
            assert list(history.verify(session.state.log)) == []
            assert session.state.peek().tapfile.extra["counter"] in (0, 1)
            go_on(session)
            session.edit(lambda d: d.update(touched=True))
            assert list(history.verify(session.state.log)) == []
            format.parse((place / ".tap" / "Tapfile").read_bytes())
            with open(place / ".tap" / "session.log") as file:
                assert sum(1 for _ in file) == session.state.peek().rev
        shutil.rmtree(place)
        if not killed:
            break
        number += 1
    assert number > 3, "the scenario changes nothing: what was killed?"


def test_killed_at_any_step_of_creation_there_is_a_session_or_none(tmpfs_path):
    number = 1
    place = tmpfs_path / "s"
    while killed_before_call(number, lambda: tapstore.create(str(place), roles=["coder"])):
        try:
            session = tapstore.create(str(place), roles=["coder"])
        except AlreadyExistsError:
            session = tapstore.open(str(place))
        with session, session.claim("coder", agent="a") as mine:
            mine.complete()
        with pytest.raises(NotAllowedError):
            session.claim("coder", agent="b")
        shutil.rmtree(place)
        number += 1
    assert number > 10
