"""What the results of a race must be: pure."""

from __future__ import annotations

from tapstore.doctor import contest
from tapstore.doctor.contest import Result


def judge(*results, holders=None, total=None):
    return contest.judge(results, holders or {}, total)


def test_one_winner_whose_bytes_are_there_is_right():
    assert judge(Result(name="a", won=("k",)), Result(name="b"), holders={"k": "a"}) == ()


def test_two_winners_are_wrong():
    both = Result(name="a", won=("k",)), Result(name="b", won=("k",))
    assert judge(*both, holders={"k": "b"}) == ("2 contenders created k",)


def test_the_bytes_of_somebody_who_lost_are_wrong():
    (said,) = judge(Result(name="a", won=("k",)), Result(name="b"), holders={"k": "b"})
    assert "not what its creator wrote" in said


def test_a_key_that_nobody_created_is_wrong():
    assert judge(Result(name="a"), holders={"k": ""}) == ("nobody created k",)


def test_a_key_of_which_one_cannot_tell_may_be_there_or_not():
    doubter = Result(name="a", unknown=("k",))
    assert judge(doubter, holders={"k": "a"}) == ()
    assert judge(doubter, holders={"k": ""}) == ()
    assert judge(doubter, Result(name="b", won=("k",)), holders={"k": "b"}) == ()


def test_every_confirmed_update_has_to_be_counted():
    assert judge(Result(name="a", added=3), Result(name="b", added=4), total=7) == ()
    assert judge(Result(name="a", added=3), Result(name="b", added=4), total=6) == (
        "7 confirmed updates left the counter at 6",
    )


def test_updates_of_unknown_outcome_may_count_but_no_more_than_once():
    result = Result(name="a", added=3, doubtful=2)
    assert [judge(result, total=total) == () for total in (2, 3, 5, 6)] == [
        False, True, True, False,
    ]  # fmt: skip
