"""Ctrl-C between any two lines: what was left half done does not hinder the next attempt."""

import threading

import pytest

import tapstore
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

KEY = ".tap/locks/tapfile.lock"


@pytest.fixture
def lock(tmp_path):
    return TapfileLock(LocalStore(tmp_path), KEY, Owner(agent="a", instance="i"))


def in_another_thread(action):
    results = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]


def after_the_turn(lock):
    lock._turn.acquire()


def after_the_lock(lock):
    assert lock.acquire(0)


def before_the_release(lock):
    assert lock.acquire(0)
    lock._holds = False


@pytest.mark.parametrize("interrupted", [after_the_turn, after_the_lock, before_the_release])
def test_a_lock_taken_by_a_thread_that_was_interrupted_can_be_taken_again(
    lock, tmp_path, interrupted
):
    interrupted(lock)
    assert lock.acquire(0)
    lock.release()
    assert not (tmp_path / KEY).exists()
    assert in_another_thread(lambda: lock.acquire(0) and (lock.release() or True))


@pytest.mark.parametrize("interrupted", [after_the_turn, after_the_lock, before_the_release])
def test_a_session_goes_on_publishing_after_an_interrupted_commit(tmp_path, interrupted):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        interrupted(session.state._view._lock)
        session.set_phase("next")
        assert "current_phase: next" in (tmp_path / ".tap" / "Tapfile").read_text()
        assert not (tmp_path / KEY).exists()


def test_threads_that_share_a_lock_still_wait_for_each_other(lock):
    assert lock.acquire(0)
    assert in_another_thread(lambda: lock.acquire(0.01)) is False
    lock.release()
