"""Expressions name only what is there, have the right types, and are of bounded size."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tapstore.protocols.expressions import (
    HELPERS,
    MAX_CHARACTERS,
    MESSAGE_VARIABLES,
    VARIABLES,
    Environment,
    ExpressionError,
)
from tapstore.protocols.model import Function
from tapstore.protocols.tree import Node

ENVIRONMENT = Environment([Function("reviewers_for", ("string",), "int")])


def compiled(text: str, *, with_message: bool = True, wanted: str = "bool") -> Node:
    return ENVIRONMENT.compile(text, with_message=with_message, wanted=wanted)


def refusal(text: str, *, with_message: bool = True, wanted: str = "bool") -> str:
    with pytest.raises(ExpressionError) as caught:
        compiled(text, with_message=with_message, wanted=wanted)
    return str(caught.value)


@pytest.mark.parametrize("helper", HELPERS, ids=lambda helper: helper.signature)
def test_each_helper_can_be_called_as_it_is_documented(helper):
    given = {"order": "['a']", "value": "1"}
    arguments = ", ".join(given.get(name, "'x'") for name, _ in helper.parameters)
    compiled(f"{helper.name}({arguments}) == {helper.name}({arguments})")


@pytest.mark.parametrize("name", [*VARIABLES, *MESSAGE_VARIABLES])
def test_each_variable_is_there(name):
    compiled(f"{name} == {name}")


def test_message_variables_are_missing_where_there_is_no_message():
    for name in MESSAGE_VARIABLES:
        assert "no message is at hand" in refusal(f"{name} == {name}", with_message=False)


def test_a_declared_function_has_its_types():
    compiled("reviewers_for(message.diff)", wanted="int")
    assert "no matching overload" in refusal("reviewers_for(1)", wanted="int")
    assert "did you mean reviewers_for()?" in refusal("reviewer_for('x')", wanted="int")


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "message.__class__.__mro__.all(x, open(x))",
     "eval('1')", "''.__class__ == 1", "lambda: 0", "[x for x in message]"],
)  # fmt: skip
def test_nothing_reaches_python(text):
    refusal(text)


def test_a_template_is_no_expression():
    assert "no CEL" in refusal("{{ count('Ask') }}")


def test_an_attribute_of_python_is_only_a_field_that_is_not_there():
    # On a value whose type is not known, a name with underscores is a field like any other.
    assert compiled("message.__class__ == 'x'").children[0] == Node(
        "select", "__class__", children=(Node("name", "message"),)
    )


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_CHARACTERS + 1),
        "(" * 900 + "true" + ")" * 900,
        "message" + ".a" * 900 + " == 1",
        "message" + "[0]" * 600 + " == 1",
        "true ? " * 250 + "true" + " : true" * 250,
        " + ".join(["1"] * 600) + " == 1",
        "[" * 1000,
    ],
)
def test_what_is_too_large_is_refused_soon(text):
    start = time.perf_counter()
    refusal(text)
    assert time.perf_counter() - start < 1


def test_loops_are_bounded_in_depth_and_number():
    four = "[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))"
    assert "nested deeper than 3" in refusal(four)
    compiled(four.replace("[1].all(d, true)", "true"))
    assert "11 loops" in refusal(" && ".join(["[1].all(a, true)"] * 11))
    compiled(" && ".join(["[1].all(a, true)"] * 10))


def test_a_loop_over_what_loops_left_is_not_nested():
    compiled("[1].filter(a, true).filter(a, true).filter(a, true).filter(a, true).all(a, true)")


def test_a_pattern_stands_in_the_file():
    compiled("sender.matches('(a+)+$')")  # in linear time: the library's engine is RE2
    assert "has to be a text that stands there" in refusal("sender.matches(message.pattern)")


@pytest.mark.parametrize(("text", "column"), [("1 +", 4), ("count('A') + cuont('B') == 1", 19)])
def test_a_refusal_knows_the_column(text, column):
    with pytest.raises(ExpressionError) as caught:
        compiled(text)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_a_tree_is_what_was_written():
    node = compiled("-3 < message.n && has(message.m)")
    assert node.text == "_&&_"
    less, has = node.children
    assert [child.value for child in less.children] == [-3, None]
    assert (has.kind, has.text) == ("has", "m")
    assert [n.offset for n in node.walk() if n.text == "m"] == [21]


def test_constants_of_different_types_differ():
    values = {compiled(text, wanted="") for text in ("1", "1u", "1.0", "true", "'1'", "b'1'")}
    assert len(values) == 6


def test_the_library_is_loaded_only_when_an_expression_is():
    program = (
        "import sys, tapstore.protocols.check, tapstore.cli.protocol; "
        "sys.exit('cel_expr_python' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_without_the_library_it_is_told_what_to_install(monkeypatch):
    from tapstore.errors import BackendNotInstalledError
    from tapstore.protocols import check, loader

    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    data = b"protocol_id: p\nversion: 1\nroles: [{id: a}]\nstates: [{id: s}]\ntransitions: []\n"
    with pytest.raises(BackendNotInstalledError, match=r'pip install "tapstore\[protocols\]"'):
        check.examine(data)
    assert loader.schema_bytes()
