"""No definition does anything to the loader but be read or be refused, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tapstore.protocols import check
from tapstore.protocols.source import MAX_BYTES, Source, UnreadableError

CODE_REVIEW = (
    Path(__file__).parents[2] / "tapstore" / "protocols" / "library" / "code_review.yaml"
).read_bytes()


def reason(data: bytes) -> str:
    report = check.examine(data)
    assert report.definition is None
    return "\n".join(f"{f.line}:{f.column} {f.code} {f.message}" for f in report.findings)


def test_ten_megabytes_are_refused_unread():
    start = time.perf_counter()
    assert "more than 1,048,576 bytes" in reason(b"a: [" + b"x, " * 3_400_000)
    assert time.perf_counter() - start < 1


def test_a_bomb_of_aliases_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    start = time.perf_counter()
    assert "unreadable" in reason("\n".join(lines).encode())
    assert time.perf_counter() - start < 2


def test_a_bomb_of_text_is_refused():
    text = f"a: &a {'x' * 500_000}\nb: [{', '.join(['*a'] * 9000)}]\n"
    assert "aliases repeat too much text" in reason(text.encode())


def test_deep_nesting_is_refused():
    assert "nest" in reason(b"[" * 100_000)
    assert "nested deeper than 64 levels" in reason(b"[" * 100 + b"]" * 100)


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.system [true]", "!!python/name:os.system ''", "{<<: {}}"]
)
def test_what_would_make_python_of_it_is_refused(text):
    assert "not read" in reason(f"protocol_id: {text}\n".encode())


def test_bytes_that_are_no_text_are_refused_with_their_line():
    assert reason(b"a: b\nc: \xff\n").startswith("2:0 unreadable it is not UTF-8")


@pytest.mark.parametrize("version", ["1.0", "1.10", "no", "2024-01-01", "0x10"])
def test_a_version_stays_what_was_written(version):
    data = CODE_REVIEW.replace(b"version: 1.0", f"version: {version}".encode())
    assert check.load(data, name="x").version == version


def test_values_are_located_also_in_flow_style_and_through_aliases():
    source = Source("a: {b: [1, &x two]}\nc: *x\nd:\n  - é: 3\n".encode())
    assert source.locate(("a", "b", 1)) == (1, 12)
    assert source.locate(("d", 0, "é")) == (4, 8)
    assert source.locate(("d", 7)) == (4, 3)


def test_json_is_read():
    assert Source(b'{"a": [1,\n "b"]}').locate(("a", 1)) == (2, 2)


def test_more_bytes_than_the_most_are_refused_and_the_most_are_read():
    Source(b"a: " + b"x" * (MAX_BYTES - 3))
    with pytest.raises(UnreadableError):
        Source(b"a: " + b"x" * (MAX_BYTES - 2))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    check.examine(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab.*{}'\" ", max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["id", "type", "from", "to", "trigger", "guard", "action", "send", "name", "count",
             "content", "message", "role", "roles", "content_schema", "properties", "optional"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_damaged_definition_is_read_or_refused(data):
    doc = yaml.safe_load(CODE_REVIEW)
    doc["version"] = "1.0"
    for _ in range(data.draw(st.integers(1, 3))):
        at = doc
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(at[key], dict | list) and data.draw(st.booleans()):
                at = at[key]
            else:
                at[key] = data.draw(json_values)
                break
    text = yaml.safe_dump(doc, allow_unicode=True).encode()
    report = check.examine(text)
    lines = text.count(b"\n") + 1
    assert all(0 < f.line <= lines and f.column > 0 and f.message for f in report.findings)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(CODE_REVIEW)), st.integers(0, 60), st.text(max_size=5))
def test_any_cut_definition_is_read_or_refused(start, length, text):
    check.examine(
        CODE_REVIEW[:start] + text.encode("utf-8", "replace") + CODE_REVIEW[start + length :]
    )
