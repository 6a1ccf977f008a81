"""What taking turns promises, and that nothing can hang on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore.sessions.turns import STUCK_SECONDS, WAIT_SECONDS, Turns


class SleepCounter(Clock):
    """Time passes only while somebody sleeps."""

    def __init__(self):
        self.slept = 0.0

    def time(self):
        return self.slept

    def monotonic(self):
        return self.slept

    def sleep(self, seconds):
        self.slept += seconds


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "session"
    file.write_bytes(b"{}")
    return str(file)


@pytest.fixture
def clock():
    return SleepCounter()


def test_a_free_turn_comes_at_once(path, clock):
    with Turns(path, clock).taken():
        pass
    assert clock.slept == 0


def test_of_many_one_has_its_turn_at_a_time(path):
    at_work, most = 0, []

    def work():
        nonlocal at_work
        turns = Turns(path, SYSTEM_CLOCK)
        for _ in range(20):
            with turns.taken():
                at_work += 1
                most.append(at_work)
                at_work -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 80


def test_a_turn_that_does_not_end_is_not_waited_for_in_the_end(path, clock):
    with Turns(path, clock).taken(), Turns(path, clock).taken():
        assert STUCK_SECONDS <= clock.slept < STUCK_SECONDS + 0.1


def test_who_waited_in_vain_does_not_wait_again_for_the_same_turn(path, clock):
    turns = Turns(path, clock)
    with Turns(path, clock).taken():
        with turns.taken():
            waited = clock.slept
        with turns.taken():
            assert clock.slept == waited


def test_who_waited_in_vain_waits_again_for_another_turn(path, clock):
    turns, other = Turns(path, clock), Turns(path, clock)
    with other.taken(), turns.taken():
        waited = clock.slept
    with other.taken():
        os.utime(path, (1, 1))  # two turns may begin within one tick of the file's clock
        with turns.taken():
            assert clock.slept > waited + STUCK_SECONDS / 2


def test_as_long_as_turns_begin_and_end_ours_is_waited_for(path):
    class Others(SleepCounter):
        def sleep(self, seconds):
            super().sleep(seconds)
            os.utime(path, ns=(0, int(self.slept * 1e9)))

    clock = Others()
    with Turns(path, clock).taken(), Turns(path, clock).taken():
        assert WAIT_SECONDS <= clock.slept < WAIT_SECONDS + 0.1


def test_a_turn_ends_with_an_exception(path, clock):
    with pytest.raises(KeyError), Turns(path, clock).taken():
        raise KeyError
    with Turns(path, clock).taken():
        assert clock.slept == 0


def test_the_turn_of_a_killed_process_ends(path, clock):
    code = (
        "import sys, time\n"
        "from tapstore.clock import SYSTEM_CLOCK\n"
        "from tapstore.sessions.turns import Turns\n"
        "with Turns(sys.argv[1], SYSTEM_CLOCK).taken():\n"
        "    print('mine', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"mine\n"
        process.kill()
    with Turns(path, clock).taken():
        assert clock.slept == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking with threads
def test_a_child_forked_meanwhile_does_not_keep_the_turn(path, clock):
    with Turns(path, clock).taken():
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with Turns(path, clock).taken():
            assert clock.slept == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("path", [None, "/nowhere/at/all"])
def test_where_nothing_can_be_locked_it_is_always_our_turn(path, clock):
    with Turns(path, clock).taken(), Turns(path, clock).taken():
        assert clock.slept == 0
