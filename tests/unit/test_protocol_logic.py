"""`never` and `always` are proven: no values make a guard say otherwise."""

from __future__ import annotations

import itertools

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from tapstore.protocols import tree
from tapstore.protocols.logic import MAX_COMBINATIONS, combinations, judge

ENV = cel.NewEnv(
    variables={"n": cel.Type.INT, "m": cel.Type.DYN, "s": cel.Type.STRING, "b": cel.Type.BOOL}
)


def node(text: str) -> tree.Node:
    return tree.parse(ENV.compile(text).serialize())


numbers = st.integers(0, 3).map(lambda k: str(2 * k))
operators = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
texts = st.sampled_from(["''", "'a'", "'b'"])
comparisons = st.one_of(
    st.tuples(st.just("n"), operators, numbers),
    st.tuples(numbers, operators, st.just("n")),
    st.tuples(st.just("s"), operators, texts),
    st.tuples(st.just("m"), st.sampled_from(["==", "!="]), st.one_of(texts, numbers)),
    st.tuples(st.just("m"), st.sampled_from(["==", "!="]), st.sampled_from(["null", "true"])),
    st.tuples(numbers, operators, numbers),
).map(" ".join)
guards = st.recursive(
    comparisons | st.sampled_from(["b", "true", "false"]),
    lambda inner: st.one_of(
        inner.map(lambda g: f"!({g})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) && ({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) || ({p[1]})"),
    ),
    max_leaves=4,
)
VALUES = [
    dict(zip("nmsb", values, strict=True))
    for values in itertools.product(
        range(-1, 8), [None, True, False, "a", "c", 2, 3], ["", "a", "aa", "b", "c"], [True, False]
    )
]


@settings(max_examples=150, deadline=None)
@given(guards, st.data())
def test_what_is_never_or_always_so_is_so_for_all_values(guard, data):
    verdict = judge([node(guard)])
    if verdict is None:
        return
    expression = ENV.compile(guard)
    for values in data.draw(st.lists(st.sampled_from(VALUES), min_size=40, max_size=40)):
        result = expression.eval(data=values).plain_value()
        assert isinstance(result, bool), result
        assert verdict.possible or not result, values
        assert result or not verdict.certain, values


@pytest.mark.parametrize(
    ("guard", "possible", "certain"),
    [
        ("n > 1 && n < 1", False, False),
        ("n > 1 || n <= 1", True, True),
        ("1 == 2", False, False),
        ("true", True, True),
        ("b && !b", False, False),
        ("s == 'a' && s == 'b'", False, False),
        ("s > 'a' && s < 'b'", True, False),
        ("m == 1 && m == 'a'", False, False),
        ("m == 1 && m == true", False, False),
        ("b && b == true", True, False),
        ("m != 'a' && m != null", True, False),
        ("n > 1 && n > 2", True, False),
    ],
)
def test_what_can_be_told_is_told(guard, possible, certain):
    verdict = judge([node(guard)])
    assert verdict is not None
    assert (verdict.possible, verdict.certain) == (possible, certain)


def test_two_guards_are_judged_together():
    verdict = judge([node("n > 1"), node("n <= 1 || b && !b")])
    assert verdict is not None
    assert not verdict.possible


def test_a_greatest_value_makes_the_rest_impossible():
    size = node("s.size() > 5")
    verdict = judge([size], {size.children[0]: 5})
    assert verdict is not None
    assert not verdict.possible


def test_too_many_combinations_are_not_tried():
    many = [node(" && ".join(f"n + {k} > 1" for k in range(20)))]
    assert judge(many) is None
    assert combinations(many, {}) == MAX_COMBINATIONS
