"""Values of documents: when two are the same, and what a copy shares."""

from __future__ import annotations

import datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.tapfile.values import copied, same

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner)
)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (1, 1.0), (None, ""), ({"a": [1]}, {"a": [True]}), ([2.0], [2])],
)
def test_what_only_python_takes_for_equal_is_not_the_same(one, other):
    assert not same(one, other)


def test_equal_containers_are_the_same():
    assert same({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]})


def test_what_no_document_can_hold_is_only_itself():
    moment = datetime.timedelta(1)
    assert same(moment, moment)
    assert not same([moment], ["1 day, 0:00:00"])
    assert not same(Fraction(5), 5)


@given(VALUES)
def test_a_copy_is_the_same_and_shares_no_container(value):
    made = copied(value)
    assert same(made, value)
    if isinstance(value, (dict, list)):
        assert made is not value


def test_a_change_deep_in_a_copy_leaves_the_original_alone():
    value = {"a": [{"b": 1}]}
    copied(value)["a"][0]["b"] = 2
    assert value == {"a": [{"b": 1}]}
