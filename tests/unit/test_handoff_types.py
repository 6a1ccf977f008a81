from __future__ import annotations

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.errors import FormatError
from tapstore.handoffs import draft, message, types
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.names import Stamp

REVIEW = {
    "name": "review",
    "headers": {
        "decision": {"enum": ["accept", "reject"], "description": "the decision"},
        "findings": {"pattern": "^[0-9]{1,3}$", "title": "count", "description": "a whole number"},
        "commit": {"pattern": "^[0-9a-f]{10}$", "format": "git-commit"},
    },
    "required": ["decision", "commit"],
    "adds": {"role": "{from}", "subject": "{from}: {decision}"},
    "body": "Review by {from} of {commit}: {decision} {{{findings}}}",
}


def check(text: str, declarations=(REVIEW,)):
    return draft.check(
        text.encode(),
        sender="QA",
        roles=["QA", "coder"],
        types=types.catalogue(declarations),
        resolve=lambda commit: commit,
    )


def changed(**fields) -> dict:
    return {**copy.deepcopy(REVIEW), **fields}


GOOD = "type: review\nto: coder\npriority: 10\ndecision: reject\ncommit: a1b2c3d9e8\n"


def test_a_declared_type_makes_messages_as_a_built_in_one_does():
    _, made = check(GOOD + "findings: 3\n").message(Stamp(0, 1), created_at=0)
    assert made.headers["role"] == "QA"
    assert made.headers["subject"] == "QA: reject"
    assert made.body == "Review by QA of a1b2c3d9e8: reject {3}\n"
    assert message.parse(message.render(made)) == made


def test_a_header_that_may_be_missing_leaves_nothing_in_the_body():
    _, made = check(GOOD).message(Stamp(0, 1), created_at=0)
    assert made.body.endswith("reject {}\n")


def test_what_a_declared_header_cannot_be_is_said_with_what_it_can():
    with pytest.raises(DraftError) as caught:
        check(GOOD.replace("reject", "maybe").replace("a1b2", "zzzz") + "findings: many\n")
    reasons = {fault.line: fault.reason for fault in caught.value.faults}
    assert reasons == {
        4: "header 'decision' must be one of accept, reject; got 'maybe'.",
        5: "header 'commit' must be <commit>; got 'zzzzc3d9e8'.",
        6: "header 'findings' must be a whole number; got 'many'.",
    }
    assert (
        "Expected review format:\n\ntype: review\nto: <role>[,<role>...]\npriority: NN\n"
        "decision: accept|reject\nfindings: <count>   (optional)\ncommit: <commit>"
    ) in str(caught.value)


def test_a_header_of_another_type_is_not_allowed_and_one_of_no_type_unknown():
    with pytest.raises(DraftError, match=r"'message' is not allowed .* only for note"):
        check(GOOD + "message: m\n")
    with pytest.raises(DraftError, match="unknown header 'nonsense'"):
        check(GOOD + "nonsense: m\n")


def test_the_built_in_types_are_declared_by_the_same_rules():
    assert list(types.catalogue()) == ["git_handoff", "note"]
    assert types.built_in()["note"].form().endswith("message: <one line, max 80 chars>")


@pytest.mark.parametrize("count", [80, 81])
def test_characters_are_counted_and_not_their_bytes(count):
    fault = types.built_in()["note"].headers["message"].fault("😀" * count)
    expected = None if count == 80 else "must be no longer than 80 characters; got 81"
    assert fault == expected


def test_what_is_put_into_a_template_is_not_looked_at_again():
    assert types.fill("{a}{b}", {"a": "{b}", "b": "{a}{{"}) == "{b}{a}{{"


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        (None, "not a mapping"),
        ([], "not a mapping"),
        ({}, "its name is null"),
        (changed(name="Review"), "its name is 'Review'"),
        (changed(name="../x"), "its name is"),
        (changed(name="a\nb"), "its name is"),
        (changed(colour="red"), "'colour' is no field"),
        (changed(headers=[]), "headers is no mapping"),
        (changed(headers={"x": True}), "header 'x': its schema is true"),
        (changed(headers={"x": {"type": "integer"}}), "the values of headers are strings"),
        (changed(headers={"x": {"pattern": "("}}), "no valid JSON Schema"),
        (changed(headers={"x": {"pattern": "(a)\\1"}}), "matched in linear time"),
        (changed(headers={"x": {"maxLength": -1}}), "no valid JSON Schema"),
        (changed(headers={"x": {"enum": 3}}), "no valid JSON Schema"),
        (changed(headers={"x": {"title": 3}}), "no valid JSON Schema"),
        (changed(headers={"x": {"$ref": "file:///etc/passwd"}}), "stands for itself"),
        (changed(headers={"x": {"allOf": [{"$ref": "#"}]}}), "stands for itself"),
        (changed(headers={"id": {}}), "'id' is reserved"),
        (changed(headers={"to": {}}), "'to' is reserved"),
        (changed(headers={"artifacts": {}}), "'artifacts' is reserved"),
        (changed(headers={"tapstore-attempt": {}}), "is reserved"),
        (changed(headers={"a: b": {}}), "has no name of 1 to 40"),
        (changed(headers={f"h{n}": {} for n in range(51)}), "at most 50 headers"),
        (changed(required="decision"), "not a list of headers"),
        (changed(required=["nobody"]), "'nobody', which is not in headers"),
        (changed(adds={"from": "x"}), "written by somebody else"),
        (changed(adds={"decision": "x"}), "written by somebody else"),
        (changed(adds={"x": "a\nto: b"}), "is not one line"),
        (changed(adds={"x": "{id}"}), "{id} is no header"),
        (changed(body=""), "body has to be text"),
        (changed(body=None), "body has to be text"),
        (changed(body="x" * 20_000), "1 to 16,384 characters"),
        (changed(body="{nobody}"), "{nobody} is no header"),
        (changed(body="{0.__class__}"), "a single '{'"),
        (changed(body="a } b"), "a single '}'"),
        (changed(body="a\0"), "no text"),
        (changed(body="\ud800"), "no text"),
    ],
)
def test_a_declaration_that_is_none_is_refused_with_the_reason(declaration, reason):
    with pytest.raises(FormatError) as caught:
        types.catalogue([declaration])
    assert reason in str(caught.value)


def test_everything_that_is_wrong_with_a_declaration_is_said_at_once():
    with pytest.raises(FormatError) as caught:
        types.parse({"name": "X", "headers": {"id": {}, "x": 3}, "body": "{y}", "z": 1})
    assert str(caught.value).count("\n- ") == 5


def test_a_type_is_declared_once():
    with pytest.raises(FormatError, match="'review' is declared twice"):
        types.catalogue([REVIEW, REVIEW])
    with pytest.raises(FormatError, match="'note' is declared twice, or built in"):
        types.catalogue([changed(name="note")])
    with pytest.raises(FormatError, match="at most 100 message types"):
        types.catalogue([changed(name=f"t{n}") for n in range(101)])


def itself() -> dict:
    loop: dict = {}
    loop["not"] = loop
    return loop


def nested(levels: int, copies: int) -> object:
    part: object = {}
    for _ in range(levels):
        part = {"allOf": [part] * copies}
    return part


@pytest.mark.parametrize(
    "schema",
    [itself(), nested(11, 1), nested(9, 10), {"enum": ["x"] * 6_000}],
    ids=["loop", "deep", "shared", "wide"],
)
def test_a_schema_that_would_take_long_is_refused_at_once(schema):
    began = time.process_time()
    with pytest.raises(FormatError, match=r"more than 5,000 values or 20 levels"):
        types.parse(changed(headers={"x": schema}, required=[], adds={}, body="b"))
    assert time.process_time() - began < 1


def test_a_schema_of_many_levels_and_values_is_taken():
    schema = {"enum": ["x"] * 10, "allOf": [nested(8, 1)] * 200}
    declared = types.parse(changed(headers={"x": schema}, required=[], adds={}, body="b"))
    assert declared.headers["x"].fault("x") is None


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
keywords = st.sampled_from(
    ["type", "pattern", "maxLength", "enum", "title", "description", "format", "not", "const"]
)
schemas = plain | st.dictionaries(keywords, plain | st.just("string"), max_size=4)
field_names = st.sampled_from(["x", "role", "id", "decision", "a_b"]) | st.text(max_size=5)
declarations = plain | st.fixed_dictionaries(
    {
        "name": st.just("review") | plain,
        "body": st.just("{from} {x}") | st.text("{}ax ", max_size=10) | plain,
    },
    optional={
        "headers": st.dictionaries(field_names, schemas, max_size=3) | plain,
        "required": st.lists(field_names, max_size=2) | plain,
        "adds": st.dictionaries(field_names, st.just("{from}") | plain, max_size=2) | plain,
    },
)


@given(declarations)
def test_any_plain_data_is_a_declaration_or_refused(declaration):
    try:
        declared = types.parse(declaration)
    except FormatError:
        return
    assert declared.form()
    assert declared.render_body({"from": "a"}).endswith("\n")
    for header in declared.headers.values():
        assert isinstance(header.fault("x"), str | None)
