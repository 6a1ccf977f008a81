"""Real processes that fight for one role, and claimants that wake up too late."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tapstore
from tests.processes.steps import Stopped

RACER = Path(__file__).with_name("claim_racer.py")


def race(url, rounds):
    with tapstore.create(url, roles=["coder"]) as session:
        racers = [
            subprocess.Popen(
                [sys.executable, str(RACER), url, f"r{n}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )
            for n in range(8)
        ]  # fmt: skip
        tokens = []
        for number in range(rounds):
            for racer in racers:
                racer.stdin.write(f"{number}\n")
            answers = [racer.stdout.readline().split() for racer in racers]
            winners = [answer[1:] for answer in answers if answer[0] == "won"]
            assert len(winners) == 1, answers
            (winner, token) = winners[0]
            assert {answer[1] for answer in answers} == {winner}, "a loser was told another name"
            assert session.tapfile.participants[0].agent_id == winner
            tokens.append(int(token))
            session.reset("coder")
        assert tokens == sorted(set(tokens))
        for racer in racers:
            racer.stdin.close()
            assert racer.wait(30) == 0
            racer.stdout.close()


@pytest.mark.parametrize("place", ["disk", "tmpfs"])
def test_eight_processes_race_for_a_role_and_one_wins_each_time(place, tmp_path, tmpfs_path):
    race(str((tmp_path if place == "disk" else tmpfs_path) / "s"), 50)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["disk", "tmpfs"])
def test_the_same_five_thousand_times(place, tmp_path, tmpfs_path):
    race(str((tmp_path if place == "disk" else tmpfs_path) / "s"), 2500)


def at_each_step(make, action, meanwhile, check, *, first=1, every=1):
    """Stop `action` before each of its steps, do `meanwhile`, let it go on, and `check`."""
    number = first
    while True:
        state = make()
        child = Stopped(number, lambda state=state: action(*state))
        if not child.stopped:
            assert child.outcome() == "done"
            break
        after = meanwhile(*state)
        check(child.outcome(), after)
        number += every
    assert number > 20, "few steps: what was stopped?"


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_claimant_stopped_at_any_step_of_an_overwrite_changes_nothing_that_was_taken_over(
    first, tmpfs_path
):
    overwrite_and_take_over(tmpfs_path / "s", foreign=False, first=first, every=4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_same_where_the_stopped_one_may_hold_the_tapfile_lock(tmpfs_path):
    overwrite_and_take_over(tmpfs_path / "s", foreign=True, first=1, every=1)


def overwrite_and_take_over(place, *, foreign, first, every):
    def make():
        shutil.rmtree(place, ignore_errors=True)
        session = tapstore.create(str(place), roles=["coder"], phase="start", foreign=foreign)
        claim = session.claim("coder", agent="first", ttl=600)
        claim.publish("x.py", b"first")
        claim.detach()
        return str(place), claim.id

    def overwrite(url, claim_id):
        claim = tapstore.open(url).resume_claim(claim_id)
        claim.publish("x.py", b"zombie")
        claim.complete(phase="zombie")

    def take_over(url, claim_id):  # noqa: ARG001
        session = tapstore.open(url)
        session.reset("coder", reason="stopped past its lease")
        if session.tapfile.participants[0].status == "pending":
            with session.claim("coder", agent="second", ttl=600) as claim:
                claim.publish("x.py", b"second")
                claim.complete(phase="review")
        return session

    def meanwhile(url, claim_id):
        try:
            return take_over(url, claim_id)
        except tapstore.NotAllowedError:  # it had completed before it was stopped
            return None

    def check(outcome, session):
        if session is None:
            assert outcome == "done"
            return
        assert outcome.startswith("ClaimLostError"), outcome
        assert session.artifacts["x.py"].read_bytes() == b"second"
        assert session.phase == "review"
        assert session.tapfile.participants[0].agent_id == "second"

    at_each_step(make, overwrite, meanwhile, check, first=first, every=every)


def test_a_writer_stopped_at_any_step_can_not_touch_the_session_made_anew(tmpfs_path):
    place = tmpfs_path / "s"

    def make():
        shutil.rmtree(place, ignore_errors=True)
        tapstore.create(str(place), roles=["coder"], phase="old").close()
        return (str(place),)

    def write(url):
        session = tapstore.open(url)
        with session.claim("coder", agent="ghost", ttl=600) as claim:
            claim.complete(phase="ghost")

    def meanwhile(url):
        shutil.rmtree(url)
        return tapstore.create(url, roles=["coder"], phase="new")

    def check(outcome, session):
        if outcome == "done":  # it opened the new one, as anybody may
            assert session.phase == "ghost"
            return
        assert "Error" in outcome
        assert session.phase == "new"
        assert session.tapfile.participants[0].status == "pending"
        session.set_phase("newer")
        assert "current_phase: newer" in Path(session.store.local_path(".tap/Tapfile")).read_text()

    at_each_step(make, write, meanwhile, check)
