"""Whether a guard can be true, must be, or can be true together with another.  Pure.

A guard is cut at `&&`, `||`, `!` and comparisons with constants into terms.  Each term takes every
value that makes a difference to the comparisons (for a number: each constant, something below,
between and above), and all combinations are tried.  Terms are taken to be independent of each
other, so "never" and "always" are proven, while "can be true together" is a suspicion.  Where there
are too many combinations, the answer is None.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tapstore.protocols.tree import Node

MAX_COMBINATIONS = 5_000

_MIRRORED = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_",
             "_!=_": "_!=_"}  # fmt: skip
_NUMBERS = ("int", "uint", "double")
_WHOLE = {"count", "size", "min_count", "max_count"}
"""Functions whose values are whole numbers from 0 up."""

Value = bool | int | float | str | bytes | None
_OTHER = "\0other"
"""A text that no guard compares with: NUL cannot stand in a definition."""


@dataclass(slots=True)
class _Terms:
    found: dict[Node, set[tuple[str, Value]]] = field(default_factory=dict)

    def collect(self, node: Node) -> None:
        if node.kind == "constant":
            return
        if node.kind == "call" and node.text in ("_&&_", "_||_", "!_"):
            for child in node.children:
                self.collect(child)
            return
        compared = _comparison(node)
        if compared is None:
            self.found.setdefault(node, set()).update([("bool", False), ("bool", True)])
        elif compared[0].kind != "constant":
            term, _, constant = compared
            self.found.setdefault(term, set()).add((constant.type_name, constant.value))


def _comparison(node: Node) -> tuple[Node, str, Node] | None:
    """`(term, operator, constant)`, whichever side the constant stood on."""
    if node.kind != "call" or node.text not in _MIRRORED:
        return None
    left, right = node.children
    if right.kind == "constant":
        return left, node.text, right
    if left.kind == "constant":
        return right, _MIRRORED[node.text], left
    return None


def _candidates(
    term: Node, constants: set[tuple[str, Value]], bounds: Mapping[Node, int]
) -> list[Value]:
    found: list[Value] = []
    numbers = {v for kind, v in constants if kind in _NUMBERS and isinstance(v, int | float)}
    if numbers:
        found += _numbers(term, numbers, bounds)
    texts = sorted(v for _, v in constants if isinstance(v, str))
    if texts:
        # Before, between and after them in their order.
        found += ["", *texts, *(text + _OTHER for text in texts)]
    rest = {kind: v for kind, v in constants if kind in ("bool", "null", "bytes")}
    if "bool" in rest:
        found += [False, True]
    if "null" in rest or "bytes" in rest:
        found += [v for kind, v in constants if kind in ("null", "bytes")]
        found.append(_OTHER)
    return found


def _numbers(term: Node, constants: set[int | float], bounds: Mapping[Node, int]) -> list[Value]:
    ordered = sorted(constants)
    between = [(a + b) / 2 for a, b in itertools.pairwise(ordered)]
    found: set[int | float] = {ordered[0] - 1, *ordered, *between, ordered[-1] + 1}
    if term.kind == "call" and term.text in _WHOLE:
        whole = {0}
        for each in found:
            whole |= {math.floor(each), math.ceil(each)}
        most = bounds.get(term, math.inf)
        found = {each for each in whole if 0 <= each <= most}
    return [*sorted(found)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one guard, or several that have to be true at once."""

    possible: bool
    certain: bool


def combinations(guards: list[Node], bounds: Mapping[Node, int]) -> int:
    """How much work `judge` would be; beyond `MAX_COMBINATIONS` it does none."""
    return min(math.prod(map(len, _choices(guards, bounds).values())), MAX_COMBINATIONS)


def _choices(guards: list[Node], bounds: Mapping[Node, int]) -> dict[Node, list[Value]]:
    terms = _Terms()
    for guard in guards:
        terms.collect(guard)
    return {term: _candidates(term, found, bounds) for term, found in terms.found.items()}


def judge(guards: list[Node], bounds: Mapping[Node, int] | None = None) -> Verdict | None:
    """Whether all `guards` can be true at once, and whether they always are.

    `bounds`: the greatest values of terms that are whole numbers.  None where it is too much work.
    """
    choices = _choices(guards, bounds or {})
    if math.prod(map(len, choices.values())) > MAX_COMBINATIONS:
        return None
    possible, certain = False, True
    for values in itertools.product(*choices.values()):
        given = dict(zip(choices, values, strict=True))
        held = all(_true(guard, given) for guard in guards)
        possible |= held
        certain &= held
        if possible and not certain:
            break
    return Verdict(possible, certain)


def _true(node: Node, given: Mapping[Node, Value]) -> bool:
    if node.kind == "constant":
        return node.value is True
    if node.kind == "call" and node.text == "_&&_":
        return all(_true(child, given) for child in node.children)
    if node.kind == "call" and node.text == "_||_":
        return any(_true(child, given) for child in node.children)
    if node.kind == "call" and node.text == "!_":
        return not _true(node.children[0], given)
    compared = _comparison(node)
    if compared is None:
        return given[node] is True
    term, operator, constant = compared
    left = term.value if term.kind == "constant" else given[term]
    return _holds(left, operator, constant.value)


def _holds(left: Value, operator: str, right: Value) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return operator == "_!=_"
    if operator == "_==_":
        return left == right
    if operator == "_!=_":
        return left != right
    if isinstance(left, str) and isinstance(right, str):
        return _ordered((left > right) - (left < right), operator)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _ordered((left > right) - (left < right), operator)
    return False


def _ordered(sign: int, operator: str) -> bool:
    return {"_<_": sign < 0, "_<=_": sign <= 0, "_>_": sign > 0, "_>=_": sign >= 0}[operator]
