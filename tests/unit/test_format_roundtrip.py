"""What tapstore renders is read as the same by everybody, and comes back as the same."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tapstore.errors import FormatError
from tapstore.tapfile import format
from tapstore.tapfile.values import copied

_WORDS = r"""
null Null NULL ~ true True FALSE yes no on off y N 1 -1 +1 0 00 017 0o17 0x1F 0b1 1_000 1.0 1.
.5 -.5 1e3 1.5e3 1.5e+3 .inf -.INF .nan 12:30 1:02:03.5 2024-04-15 2024-04-15T10:30:00Z = << -
-- --- ... ? : # & * ! | > % @ ` [] {} [ } , ' " \ a: :a a:b #a a# ?a -a !!str &a *a %a @a `a
"""
LOOKS_TYPED = [
    *_WORDS.split(),
    *("", " ", " a", "a ", "a  b", "a: b", "a #b", "- a", "2024-04-15 10:30:00", "😀"),
    *("\t", "a\n", "\na", "\r\n", "\0", "\x7f", "\x85", "\u2028", "\ufeff", "\xa0a", "\u3000"),
    *("long " * 50 + "x", "long: " * 50, "'" * 200, "long\n" * 50),
]

texts = st.one_of(
    st.sampled_from(LOOKS_TYPED),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text("0123456789+-.:_eEoxTZ ", max_size=12),
    st.text("ab :#-?'\"\n\\&*!|>%@`,[]{}", max_size=12),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
times = st.none() | st.builds(
    lambda moment, micros: (
        moment.isoformat() + (f".{micros:06}".rstrip("0") if micros else "") + "Z"
    ),
    st.datetimes().map(lambda moment: moment.replace(microsecond=0)),
    st.integers(0, 999_999),
)
participants = st.fixed_dictionaries(
    {"role": texts, "status": texts},
    optional={"agent_id": texts, "last_activity": times, "heartbeat": times, "skills": values},
)
artifacts = st.fixed_dictionaries(
    {"name": texts, "path": texts}, optional={"consumer": st.lists(texts, max_size=3), "x": values}
)
stamps = st.fixed_dictionaries(
    {"rev": st.integers(0, 10**6), "write_id": st.from_regex(r"[A-Za-z0-9]{8}", fullmatch=True)}
)
documents = st.builds(
    lambda extra, known: {**extra, **known},
    st.dictionaries(texts, values, max_size=3),
    st.fixed_dictionaries(
        {
            "version": texts,
            "session_id": texts,
            "participants": st.lists(participants, max_size=3),
            "current_phase": texts,
            "artifacts": st.lists(artifacts, max_size=3),
        },
        optional={"phases": st.lists(texts, max_size=3), "tapstore": stamps},
    ),
)


class CoreSchemaLoader(yaml.SafeLoader):
    """Types unquoted scalars by the YAML 1.2 core schema, as libraries of that kind do."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern in (
    ("null", r"null|Null|NULL|~|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|"
              r"\.(nan|NaN|NAN)"),
):  # fmt: skip
    CoreSchemaLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), None
    )


def identical(a: object, b: object) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader, CoreSchemaLoader])
@given(text=texts)
def test_every_text_is_read_as_that_text_by_every_kind_of_yaml_library(loader, text):
    data = format.render({"value": text, "list": [text], text: "key"})
    loaded = yaml.load(data, Loader=loader)
    assert loaded == {"value": text, "list": [text], text: "key"}


@given(document=documents, fmt=st.sampled_from(["yaml", "json"]))
def test_what_is_rendered_is_parsed_as_the_same(document, fmt):
    assert identical(format.parse(format.render(document, fmt=fmt)), document)


@given(document=documents)
def test_plain_libraries_read_the_same(document):
    assert identical(yaml.load(format.render(document), yaml.CSafeLoader), document)
    assert identical(json.loads(format.render(document, fmt="json")), document)


@given(
    document=documents,
    dumper=st.sampled_from([yaml.SafeDumper, yaml.CSafeDumper]),
    options=st.fixed_dictionaries(
        {
            "sort_keys": st.booleans(),
            "allow_unicode": st.booleans(),
            "default_flow_style": st.sampled_from([False, True, None]),
            "width": st.sampled_from([80, 20, 10**6]),
        }
    ),
)
def test_a_plain_yaml_agent_that_changes_nothing_changes_nothing(document, dumper, options):
    loaded = yaml.load(format.render(document), yaml.CSafeLoader)
    written = yaml.dump(loaded, Dumper=dumper, **options)
    # PyYAML does not always read back what it wrote (it folds around odd spaces).
    assume(identical(yaml.load(written, yaml.CSafeLoader), loaded))
    assert identical(format.parse(written.encode()), document)


@given(
    document=documents,
    indent=st.sampled_from([None, 2]),
    ensure_ascii=st.booleans(),
    sort_keys=st.booleans(),
)
def test_a_plain_json_agent_that_changes_nothing_changes_nothing(
    document, indent, ensure_ascii, sort_keys
):
    loaded = json.loads(format.render(document, fmt="json"))
    written = json.dumps(loaded, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    assert identical(format.parse(written.encode()), document)


@given(document=documents)
def test_a_document_that_went_through_json_renders_to_the_same_yaml(document):
    again = format.parse(format.render(document, fmt="json"))
    assert format.render(again) == format.render(document)


@given(document=documents, fmt=st.sampled_from(["yaml", "json"]))
def test_keys_keep_their_order(document, fmt):
    parsed = format.parse(format.render(document, fmt=fmt))
    assert json.dumps(parsed) == json.dumps(document)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(document=documents)
def test_many_documents_survive_yaml_and_json(document):
    parsed = format.parse(format.render(document))
    assert identical(format.parse(format.render(parsed, fmt="json")), document)


def test_yaml_is_block_style_without_anchors_for_shared_values():
    shared = ["a"]
    text = format.render({"k1": shared, "k2": shared, "k3": [{"k": shared}]}).decode()
    assert text.split("\n", 1)[1] == "k1:\n- a\nk2:\n- a\nk3:\n- k:\n  - a\n"


def test_ordinary_documents_look_as_yaml_dump_writes_them():
    document = {
        "version": "1.0",
        "session_id": "code_review_20240415_001",
        "participants": [
            {"role": "coder", "agent_id": "", "last_activity": "2024-04-15T10:30:00Z"},
            {"role": "reviewer", "agent_id": "no", "last_activity": None, "load": 0.5},
        ],
        "artifacts": [{"path": "artifacts/p/a.py", "checksum": "sha256:ab", "consumer": ["x"]}],
        "empty": [{}, []],
    }
    text = format.render(document).decode().split("\n", 1)[1]
    assert text == yaml.safe_dump(document, sort_keys=False, default_flow_style=False)


@pytest.mark.parametrize("fmt", ["yaml", "json"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "nan cannot be kept"),
        (float("inf"), "inf cannot be kept"),
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        ((1, 2), "tuple cannot be kept"),
        (b"x", "bytes cannot be kept"),
        ({1: 2}, "key 1 is int, not text"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(fmt, value, reason):
    with pytest.raises(FormatError, match=rf"^document, x\[1\].*: .*{re.escape(reason)}"):
        format.render({"x": [0, value]}, fmt=fmt)


def test_what_could_not_be_read_back_for_its_depth_is_not_rendered():
    deep: list[object] = []
    for _ in range(64):
        deep = [deep]
    with pytest.raises(FormatError, match="deeper than 64"):
        format.render({"x": deep})


@pytest.mark.parametrize(
    ("data", "document"),
    [(b'{"\\x1F": null, "a": 1}', {"\x1f": None, "a": 1}), (b"{\"\\r\": 'null'}", {"\r": "null"})],
)
def test_flow_style_that_begins_like_json_is_yaml(data, document):
    assert format.parse(data) == document


def test_a_raw_line_break_within_a_json_text_is_refused_and_not_folded():
    with pytest.raises(FormatError, match="no JSON: Invalid control character"):
        format.parse(b'{"a": "one\ntwo"}')


# Beside a document that was rendered before


def test_what_a_document_shares_with_one_rendered_before_makes_no_difference():
    known = {"a": {"b": [1, "x"]}, "c": "1.0"}
    document = {"c": known["c"], "a": known["a"], "d": None}
    for fmt in ("yaml", "json"):
        assert format.render(document, fmt=fmt, known=known) == format.render(document, fmt=fmt)


@pytest.mark.parametrize("key", ["new", "a"])
def test_what_is_new_beside_it_is_refused_as_ever(key):
    known = {"a": 1, "b": 2}
    with pytest.raises(FormatError, match=rf"document, {key}: .* cannot be kept"):
        format.render({**known, key: float("nan")}, known=known)


def test_what_is_new_beside_it_is_counted_with_what_is_there():
    known = {"a": [0] * 200_000}
    format.render({**known, "b": [0] * 10_000}, fmt="json", known=known)
    with pytest.raises(FormatError, match="too many values"):
        format.render({**known, "b": [0] * 60_000}, fmt="json", known=known)


def test_settling_takes_over_what_is_the_same():
    known = {"version": "1.0", "list": [{"a": 1}], "other": {"n": 1}}
    settled = format.settled({"list": [{"a": 1}], "other": {"n": 1.0}}, known=known)
    assert settled["list"] is known["list"]
    assert type(settled["other"]["n"]) is float


@given(documents, documents)
def test_settling_beside_another_document_makes_no_difference(document, known):
    # Every other field is the same in both.
    known = format.settled({**known, **copied(dict(list(document.items())[::2]))})
    assert identical(format.settled(document, known=known), format.settled(document))


class _Undecided:
    """Compares as arrays of numpy do."""

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise ValueError("the truth value of an array is ambiguous")

    __ne__ = __eq__
    __hash__ = None


@pytest.mark.parametrize("wrapped", [lambda value: value, lambda value: [value]])
def test_a_value_that_cannot_be_compared_is_refused_for_what_it_is(wrapped):
    with pytest.raises(FormatError, match="_Undecided cannot be kept"):
        format.settled({"a": wrapped(_Undecided())}, known={"a": wrapped(1)})
