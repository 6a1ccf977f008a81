"""A process is forked while a session is in use: by another thread, and under a claim."""

import os
import signal
import threading
from contextlib import suppress

import pytest

import tapstore

# What Python 3.12 says of forking with threads is what is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def session(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], phase="start") as session:
        yield session


def in_child(action):
    """Whether the action succeeds in a forked child within a quarter of a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(15)
        try:
            action()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_a_child_forked_while_another_thread_commits_can_commit(session):
    inside, go_on = threading.Event(), threading.Event()
    write = session.state._write

    def slow(*args):
        inside.set()
        go_on.wait(30)
        return write(*args)

    session.state._write = slow
    thread = threading.Thread(target=session.set_phase, args=("parent",))
    thread.start()
    inside.wait(10)

    def commit():
        session.state._write = write
        session.set_phase("child")
        os._exit(0)

    committed = in_child(commit)
    seen = session.state.peek().tapfile.current_phase
    session.state._write = write
    go_on.set()
    thread.join()
    assert (committed, seen, session.phase) == (True, "child", "parent")


@pytest.mark.parametrize("error", [None, SystemExit, ValueError])
def test_a_child_that_leaves_the_block_of_a_claim_does_not_end_it(session, error):
    with session.claim("coder", agent="a") as claim:

        def leave():
            with suppress(SystemExit, ValueError), claim:
                if error is not None:
                    raise error
            os._exit(0)

        assert in_child(leave)
        assert session.tapfile.slots("coder")[0].status == "working"
        claim.complete()


def test_a_child_may_resume_the_claim_of_its_parent(session):
    claim = session.claim("coder", agent="a")

    def complete():
        session.resume_claim(claim.id).complete(phase="done")
        os._exit(0)

    assert in_child(complete)
    assert session.phase == "done"
    with pytest.raises(tapstore.ClaimLostError):
        claim.release()
