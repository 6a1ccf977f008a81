"""The short form of a content schema means the JSON Schema that is documented."""

from __future__ import annotations

import json
from datetime import timedelta

import jsonschema_rs
import pytest

from tapstore.protocols import loader
from tapstore.protocols.check import examine
from tapstore.protocols.contents import ShortFormError, fields, to_json_schema
from tapstore.protocols.durations import parse_duration

TEXT = {"type": "string"}


def test_what_is_not_optional_is_required_at_each_level():
    short = {
        "properties": {
            "a": TEXT,
            "b": {**TEXT, "optional": True},
            "c": {"items": {"properties": {"d": TEXT, "e": {"optional": True}}}},
        }
    }
    assert to_json_schema(short) == {
        "properties": {
            "a": TEXT,
            "b": TEXT,
            "c": {"items": {"properties": {"d": TEXT, "e": {}}, "required": ["d"]}},
        },
        "required": ["a", "c"],
    }


@pytest.mark.parametrize("required", [[], ["a"]])
def test_a_schema_that_lists_what_is_required_is_taken_as_it_is(required):
    schema = {"properties": {"a": TEXT, "b": TEXT}, "required": required}
    assert to_json_schema(schema) == schema


def test_a_schema_that_names_its_dialect_is_taken_as_it_is():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"optional": True}},
    }
    assert to_json_schema(schema) == schema


def test_a_property_may_be_called_optional():
    assert to_json_schema({"properties": {"optional": TEXT}})["required"] == ["optional"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"optional": True}}, "required": ["b"]},
        {"properties": {"a": {"optional": "yes"}}},
        {"optional": True},
    ],
)
def test_optional_where_it_would_mean_nothing_is_refused(schema):
    with pytest.raises(ShortFormError):
        to_json_schema(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": TEXT}}, ("a",)),
        ({"properties": {"a": TEXT}, "additionalProperties": False}, ("a",)),
        ({"properties": {"a": TEXT}, "additionalProperties": True}, None),
        ({"properties": {"a": TEXT}, "allOf": []}, None),
        ({"type": "object"}, None),
        (True, None),
    ],
)
def test_fields_are_known_only_where_the_schema_tells_all(schema, expected):
    assert fields(schema) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT30M", 1800), ("PT24H", 86400), ("P1DT1S", 86401), ("P2W", 1209600), ("PT0.5S", 0.5)],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "30m", "P1M", "P1Y", "PT0S", "-PT1S", "PT1H ", "PT1M1H"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"duration|no time"):
        parse_duration(text)


SCHEMA = json.loads(loader.schema_bytes())
SMALL = {
    "protocol_id": "p",
    "version": "1",
    "roles": [{"id": "a", "count": 1}],
    "message_types": [{"type": "M", "sender_role": "a"}],
    "states": [{"id": "s"}, {"id": "e"}],
    "transitions": [
        {"from": "s", "to": "e", "trigger": "message.M"},
        {"from": "s", "to": "e", "trigger": "timeout", "after": "PT1H"},
    ],
}


def test_the_schema_for_editors_is_valid_and_takes_what_the_loader_takes():
    assert jsonschema_rs.meta.is_valid(SCHEMA)
    assert jsonschema_rs.is_valid(SCHEMA, SMALL)
    assert examine(json.dumps(SMALL).encode()).findings == ()


def objects(schema):
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" in schema:
            yield schema
        for each in schema.values():
            yield from objects(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects(each)


def test_the_schema_for_editors_is_closed_and_describes_every_key():
    for each in objects(SCHEMA):
        assert each["additionalProperties"] is False
        assert [k for k, v in each["properties"].items() if "description" not in v] == []


@pytest.mark.parametrize("section", ["roles", "message_types", "states", "transitions"])
def test_a_key_that_means_nothing_is_refused_everywhere(section):
    document = {**SMALL, section: [{**SMALL[section][0], "nonsense": 1}]}
    (finding,) = (f for f in examine(json.dumps(document).encode()).findings)
    assert finding.code == "malformed"
    assert "there is no key 'nonsense' here" in finding.message


CONSTRAINTS = {
    "timeout": {"duration": "PT1M", "action": {"goto": "e"}},
    "validation": {"trigger": "message.M", "condition": "true"},
    "quorum": {"role": "a", "message": "M", "at_least": 1},
    "permission": {"message": "M", "roles": "a"},
}


@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize("other", CONSTRAINTS)
def test_a_constraint_has_the_keys_of_its_type_and_no_others(kind, other):
    constraint = {"name": "c", "type": kind, **CONSTRAINTS[kind]}
    assert "malformed" not in found({**SMALL, "constraints": [constraint]})
    if CONSTRAINTS[other].keys() - CONSTRAINTS[kind].keys():
        mixed = {**CONSTRAINTS[other], **constraint}
        assert "malformed" in found({**SMALL, "constraints": [mixed]})


def found(document):
    return {finding.code for finding in examine(json.dumps(document).encode()).findings}
