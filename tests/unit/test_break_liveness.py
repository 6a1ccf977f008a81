"""Who is alive is told from who is not, also in awkward moments."""

import threading

import pytest

import tapstore


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


class SlowLock:
    """A `tapfile.lock` that one waits for until `free` is set."""

    def __init__(self):
        self.wanted, self.free = threading.Event(), threading.Event()

    def acquire(self, wait):  # noqa: ARG002
        self.wanted.set()
        return not self.free.wait(30)

    def is_ours(self):
        return False

    def release(self):
        pass


def test_heartbeats_go_on_while_another_thread_waits_to_commit(session):
    claim = session.claim("coder", agent="a")
    session.state._view._lock = lock = SlowLock()
    commit = threading.Thread(target=session.set_phase, args=("next",))
    commit.start()
    lock.wanted.wait(10)
    beat = threading.Thread(target=claim.heartbeat)
    beat.start()
    beat.join(10)
    in_time = not beat.is_alive()
    lock.free.set()
    commit.join()
    beat.join()
    claim.release()
    assert in_time
