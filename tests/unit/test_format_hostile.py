"""No input does anything to the parser but be read or be refused."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tapstore.errors import FormatError
from tapstore.tapfile import format

SOURCE = b"""# comment
version: 1.0
session_id: s1
participants:
- role: coder
  agent_id: &a agent
  status: working
  last_activity: 2024-04-15 10:30:00+00:00
  note: "x\\u00e9" # comment
- {role: reviewer, status: pending, agent_id: *a}
current_phase: |
  text
artifacts: []
"""
JSON_SOURCE = format.render(format.parse(SOURCE), fmt="json")


def parse_or_refuse(data: bytes) -> None:
    """Any other exception, and any other value, fails the test."""
    with suppress(FormatError):
        assert isinstance(format.parse(data), dict)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from([SOURCE, JSON_SOURCE]))
    pieces = st.sampled_from(
        [b"", b"\n", b"  ", b"- ", b": ", b"&a ", b"*a", b"!!x ", b"? ", b"{", b"}", b"[", b"]",
         b'"', b"'", b"|\n", b"<<: *a\n", b"---\n", b"...\n", b"%YAML 9.9\n", b"\t", b"\0", b"\xff",
         b"\xef\xbb\xbf", b"\\ud800", b"1e999", b".nan", b"NaN", b"\r", b"\xc2\x85", b","]
    ) | st.binary(max_size=3)  # fmt: skip
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 0, 1, 5, 50]))
        data = data[:start] + draw(pieces) + data[end:]
    return data


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    parse_or_refuse(data)


@given(st.text("ab01:-?{}[],&*!|>'\"%@#\n \t\\.~<=\x85\u2028", max_size=60))
def test_any_soup_of_yaml_is_read_or_refused(text):
    parse_or_refuse(text.encode())


@given(mutations())
def test_any_damaged_tapfile_is_read_or_refused(data):
    parse_or_refuse(data)


@given(mutations())
def test_any_damaged_tapfile_is_read_or_refused_without_libyaml(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader")
        parse_or_refuse(data)


@pytest.mark.soak
@settings(max_examples=100_000)
@given(mutations())
def test_very_many_damaged_tapfiles_are_read_or_refused(data):
    parse_or_refuse(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 4_000_000,
        b"{a: " * 1_000_000,
        b'{"a":' * 800_000,
        b"- " * 2_000_000,
        b"? " * 2_000_000,
        b"%TAG !a! b\n" * 300_000 + b"--- {}\n",
        b"#\r" + b"%TAG !a! b\r" * 300_000 + b"--- {}\n",
        b"\n".join(b"a%d: &a%d x" % (n, n) for n in range(200_000)),
        b"x: &a [" + b"1," * 9_000 + b"]\n" + b"\n".join(b"y%d: *a" % n for n in range(9_000)),
        b"x: [" + b"1," * 2_000_000 + b"]",
        b"x: '" + b"a" * 4_000_000 + b"'",
        b'{"x": ' + b"1" * 4_000_000 + b"}",
        b"x: " + b"1" * 4_000_000,
        b"x: " + b"-" * 4_000_000,
        b"last_activity: " + b"2024-" * 800_000,
        b"#" * 4_000_000,
        b"!" * 4_000_000,
        b"&" * 4_000_000,
        b'{"a":1,' * 500_000,
    ],
    ids=lambda data: data[:12].decode(),
)
def test_four_megabytes_of_malice_take_seconds_at_most(data):
    began = time.process_time()
    parse_or_refuse(data)
    # Measured: up to 1 s.  What is quadratic in this size takes hours.
    assert time.process_time() - began < 20


def test_more_than_four_mebibytes_are_refused_unread():
    with pytest.raises(FormatError, match="at most 4,194,304 are read"):
        format.parse(b"x" * (4 * 1024 * 1024 + 1))


def test_more_values_than_a_session_can_have_are_refused():
    with pytest.raises(FormatError, match="250,000 values"):
        format.parse(b"x:\n" + b"- 1\n" * 250_001)
    with pytest.raises(FormatError, match="too many values"):
        format.parse(b'{"x": [' + b"1," * 250_000 + b"1]}")


def test_the_message_begins_with_the_name_that_was_given():
    with pytest.raises(FormatError, match=r"^task\.json, line 1, column 2: "):
        format.parse_plain(b"{", name="task.json")


def test_other_files_are_read_by_the_same_rules_with_no_field_known():
    assert format.parse_plain(b"- no\n- version: 1.10\n", name="x") == ["no", {"version": 1.1}]


def test_json_with_a_line_break_in_a_text_is_not_taken_for_yaml():
    with pytest.raises(FormatError, match="line 1, column 11: it is no JSON: Invalid control"):
        format.parse(b'{"x": "one\ntwo"}')
