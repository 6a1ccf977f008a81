"""Each kind of finding is found at its place, and what is right is not complained about."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tapstore.errors import FormatError
from tapstore.protocols import check, graph
from tapstore.protocols.findings import MAX_FINDINGS, SEVERITIES

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "format" / "protocols"
LIBRARY = ROOT / "tapstore" / "protocols" / "library"
CODE_REVIEW = (LIBRARY / "code_review.yaml").read_bytes()


def told(data: bytes) -> list[str]:
    return [
        "; ".join((f"{f.line}:{f.column} {f.severity} {f.code}", *f.trace))
        for f in check.examine(data).findings
    ]


def codes(text: str) -> set[str]:
    return {finding.code for finding in check.examine(text.encode()).findings}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_exactly_what_is_wrong_is_found_at_its_place(path):
    text = path.read_text("utf-8")
    assert told(text.encode()) == re.findall(r"^# expected: (.*)$", text, re.MULTILINE)


def test_there_is_an_example_of_each_code():
    found = {code for path in CASES.glob("*.yaml") for code in codes(path.read_text("utf-8"))}
    # An example would have to be large; it is made below.
    assert found == SEVERITIES.keys() - {"too-large"}


def test_each_code_is_in_the_reference():
    reference = (ROOT / "docs" / "reference" / "protocols.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (error|warning) \|", reference, re.MULTILINE))
    assert rows == SEVERITIES


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_shipped_has_no_findings(path):
    assert told(path.read_bytes()) == []


def test_the_code_review_is_the_one_that_was_described():
    definition = check.load(CODE_REVIEW, name="code_review.yaml")
    assert definition.version == "1.0"
    assert list(definition.states) == [
        "idle", "review_in_progress", "arbitration_pending", "completed", "failed",
    ]  # fmt: skip
    assert definition.initial == "idle"
    assert [s.id for s in definition.states.values() if s.final] == ["completed", "failed"]
    reviewer = definition.roles["reviewer"]
    assert (reviewer.min_count, reviewer.max_count) == (2, 5)
    schema = definition.messages["InitiateReview"].content_schema
    assert schema is not None
    assert schema["required"] == ["pr_url", "diff_content"]


def test_prose_is_refused_with_what_could_be_written_instead():
    text = CODE_REVIEW.decode()
    text = text.replace(
        "guard: all_sent('reviewer', 'SubmitReview')", "guard: 所有reviewer都已提交"
    )
    text = text.replace(
        "  action:\n  - send: RequestArbitration\n", "  action: 通知arbitrator\n", 1
    )
    with pytest.raises(FormatError) as caught:
        check.load(text.encode(), name="review.yaml")
    expression, action = sorted(str(caught.value).splitlines(), key=lambda line: "action" in line)
    assert re.match(r"review\.yaml:\d+:\d+: it is no CEL: .*all_sent\(\)", expression)
    assert re.match(r"review\.yaml:\d+:\d+: the action '通知arbitrator' is not .* send: ", action)


def test_an_unquoted_star_is_told_where_it_stands():
    text = CODE_REVIEW.decode().replace('from: "*"', "from: *")
    (finding,) = check.examine(text.encode()).findings
    lines = text.splitlines()
    assert "from: *" in lines[finding.line - 1]


def test_all_that_is_wrong_is_told_together():
    text = CODE_REVIEW.decode().replace("PT1H", "1 hour").replace("PT30M", "half an hour")
    text = text.replace("to: completed", "to: complete")
    found = check.examine(text.encode()).findings
    assert [f.code for f in found].count("invalid-duration") == 2
    assert [f.code for f in found].count("undeclared-name") == 2


def test_load_refuses_errors_and_lets_warnings_pass():
    text = (CASES / "state-without-deadline.yaml").read_bytes()
    assert check.load(text, name="x").protocol_id == "example"
    with pytest.raises(FormatError, match=r"x:15:3: .* \[state-dead-end\]"):
        check.load((CASES / "state-dead-end.yaml").read_bytes(), name="x")


BASE = (CASES / "quorum-unused.yaml").read_text("utf-8").partition("constraints:")[0]


def with_guards(one: str, other: str) -> str:
    first = "- {from: idle, to: asked, trigger: message.Ask}"
    lines = "".join(
        f"- from: idle\n  to: {to}\n  trigger: message.Ask\n  guard: {guard}\n"
        for to, guard in (("asked", one), ("done", other))
    )
    return BASE.replace(f"{first}\n", lines)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message.n > 1", "message.n <= 1"),
        ("message.n > 1", "'!(message.n > 1)'"),
        ("sender == 'a'", "sender == 'b'"),
        ("count('Ask') == 0", "count('Ask') > 0"),
        ("sender == 'a' && message.n > 1", "sender == 'a' && 1 >= message.n"),
    ],
)
def test_guards_that_exclude_each_other_are_fine(one, other):
    assert codes(with_guards(one, other)) == set()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message.n > 1", "message.n < 9"),
        ("sender == 'a'", "sender != 'b'"),
        ("count('Ask') > 0", "count('Tell') > 0"),
    ],
)
def test_guards_that_can_both_be_true_are_told(one, other):
    assert codes(with_guards(one, other)) == {"transitions-overlap"}


def test_a_guarded_time_out_is_no_deadline():
    assert codes(BASE.replace("after: PT1H", "after: PT1H, guard: count('Ask') > 1")) == {
        "state-without-deadline"
    }


def test_a_constraint_that_leads_on_is_a_deadline():
    text = BASE.replace('- {from: "*", to: done, trigger: timeout, after: PT1H}\n', "")
    assert codes(text) == {"state-without-deadline"}
    text += "constraints:\n- {name: t, type: timeout, duration: PT1H, action: {goto: done}}\n"
    assert codes(text) == set()


def large(states: int, more: str = "") -> bytes:
    lines = ["protocol_id: p", "version: 1", "roles: [{id: a, count: 1}]"]
    lines += ["message_types: [{type: M, sender_role: a}]", "states:"]
    lines += [f"- {{id: s{n}}}" for n in range(states)] + ["- {id: e, final: true}"]
    lines += ["transitions:", '- {from: "*", to: e, trigger: timeout, after: PT1H}']
    lines += [
        f"- {{from: s{n}, to: s{n + 1}, trigger: message.M, guard: message.n > {n}}}"
        for n in range(states - 1)
    ]
    return "\n".join([*lines, more]).encode()


def test_a_definition_of_200_states_takes_less_than_two_seconds():
    start = time.perf_counter()
    assert told(large(200)) == []
    assert time.perf_counter() - start < 2


def test_more_moves_than_can_be_looked_at_are_refused():
    star = '- {from: "*", to: e, trigger: message.M}\n'
    (finding,) = check.examine(large(900, star * 200)).findings
    assert finding.code == "too-large"
    assert f"{graph.MAX_MOVES:,}" in finding.message


def test_very_many_rivals_take_a_bounded_time():
    guards = "".join(
        f"- from: s0\n  to: e\n  trigger: message.M\n  guard: "
        f"{' && '.join(f'message.f{k} > {n}' for k in range(7))}\n"
        for n in range(400)
    )
    start = time.perf_counter()
    check.examine(large(2, guards))
    assert time.perf_counter() - start < 30


def test_very_many_wrong_names_that_resemble_right_ones_take_a_bounded_time():
    name = "A" * 50
    lines = ["protocol_id: p", "version: 1", "roles: [{id: a, count: 1}]", "message_types:"]
    lines += [f"- {{type: {name}{n:05d}, sender_role: a}}" for n in range(1000)]
    lines += ["states: [{id: s, initial: true}, {id: e, final: true}]", "transitions:"]
    lines += [f"- {{from: s, to: e, trigger: message.{name}x{n:04d}}}" for n in range(4900)]
    start = time.perf_counter()
    assert len(check.examine("\n".join(lines).encode()).findings) == MAX_FINDINGS
    assert time.perf_counter() - start < 60
