from __future__ import annotations

import copy
import json
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.artifacts.model import Artifact
from tapstore.errors import FormatError
from tapstore.tapfile import format, schema
from tapstore.tapfile import model as tapfile
from tapstore.tapfile.model import Participant, Stamp, Tapfile
from tapstore.tapfile.schema import UserSchema

GOOD = {
    "version": "1.0",
    "session_id": "s1",
    "participants": [
        {"role": "coder", "agent_id": "c1", "status": "working",
         "last_activity": "2024-04-15T10:30:00Z",
         "claim": {"id": "op1", "fence": 3, "since": "2024-04-15T10:30:00.5Z", "ttl_seconds": 60}},
        {"role": "reviewer", "agent_id": "", "status": "pending", "last_activity": None},
    ],
    "current_phase": "coding",
    "artifacts": [{"name": "a.py", "path": "artifacts/p/a.py", "consumer": ["reviewer"]}],
    "tapstore": {"rev": 3, "write_id": "w", "incarnation": "i", "at": "2024-04-15T10:30:00Z"},
}  # fmt: skip


def changed(place: str, value: object) -> dict:
    """GOOD with the value at `a.0.b` replaced."""
    doc = copy.deepcopy(GOOD)
    target = doc
    *path, last = (int(step) if step.isdigit() else step for step in place.split("."))
    for step in path:
        target = target[step]
    target[last] = value
    return doc


def without(place: str) -> dict:
    doc = copy.deepcopy(GOOD)
    target = doc
    *path, last = (int(step) if step.isdigit() else step for step in place.split("."))
    for step in path:
        target = target[step]
    del target[last]
    return doc


def refusal(doc: object, *, by: UserSchema | None = None) -> str:
    with pytest.raises(FormatError) as caught:
        (by or schema).check(doc)
    return str(caught.value)


def test_a_good_document_passes():
    schema.check(GOOD)
    schema.check(GOOD, known=GOOD)
    # What is known stands aside as an empty list, which has to be good, too.
    schema.check(GOOD | {"participants": [], "artifacts": []})


def test_the_schema_says_nothing_of_fields_that_it_does_not_list():
    shipped = json.loads(Path(schema.__file__).with_name("tapfile.schema.json").read_text())
    assert set(shipped) <= {"$schema", "$id", "title", "description", "type", "required",
                            "properties", "$defs"}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value"),
    [("participants", None), ("participants.0.status", "asleep"), ("artifacts.0.path", 7),
     ("current_phase", 7), ("tapstore.rev", "three"), ("version", "one")],
)  # fmt: skip
def test_of_a_known_document_all_that_is_new_is_looked_at(place, value):
    doc = changed(place, value)
    shared = {key: doc[key] if doc[key] != GOOD[key] else GOOD[key] for key in GOOD}
    with pytest.raises(FormatError) as caught:
        schema.check(shared, known=GOOD)
    assert str(caught.value) == refusal(doc)


def test_what_the_model_writes_passes():
    state = Tapfile(
        session_id="s",
        participants=(
            Participant(role="a"),
            Participant(role="a", slot=2, status="failed", reason="x\ny", attempt=2, round=2,
                        heartbeat="2024-04-15T10:30:00Z"),
        ),
        phases=("one",),
        artifacts=(Artifact(name="n", path="s3://bucket/n", size=0, metadata={"k": 1}),),
        stamp=Stamp(rev=1, write_id="w", incarnation="i", at="2024-04-15T10:30:00.123Z"),
        extra={"budget": 5},
    )  # fmt: skip
    schema.check(tapfile.to_doc(state))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("budget", {"tokens": [1, None]}),
        ("participants.0.skills", ["python"]),
        ("artifacts.0.license", "MIT"),
        ("version", "1.99"),
        ("version", "1"),
        ("participants.0.heartbeat", None),
        ("participants.0.agent_id", None),
        ("participants.0.claim", None),
        ("participants.0.attempt", 0),
        ("artifacts.0.checksum", "sha256:abc123..."),
        ("artifacts.0.checksum", ""),
        ("artifacts.0.checksum", None),
        ("artifacts.0.size", 0),
        ("phases", ["a", "b"]),
    ],
)
def test_what_is_allowed_passes(place, value):
    schema.check(changed(place, value))


@pytest.mark.parametrize(
    ("place", "value", "shown"),
    [
        ("version", "one", "version is 'one'; valid is: version of the Tapfile format"),
        ("version", 1.0, "version is 1.0, but must be text"),
        ("session_id", "", "session_id is ''; valid is: name of the session"),
        ("session_id", "a\nb", r"session_id is 'a\nb'; valid is: name"),
        ("participants", None, "participants is null, but must be a list"),
        ("participants.1.status", "done", "participants[1].status is 'done', but must be one of "
         "'pending', 'working', 'completed', 'failed'"),
        ("participants.0.last_activity", "now", "participants[0].last_activity is 'now'; valid is"),
        ("participants.0.attempt", -1, "participants[0].attempt is -1"),
        ("participants.0.round", 0, "participants[0].round is 0"),
        ("participants.0.claim.fence", "3", "participants[0].claim.fence is '3', but must be a "
         "whole number"),
        ("artifacts.0.consumer", "reviewer", "artifacts[0].consumer is 'reviewer', but must be a "
         "list or null; valid is: list of the roles or agent ids that it is for"),
        ("artifacts.0.consumer", [1], "artifacts[0].consumer[0] is 1, but must be text"),
        ("artifacts.0.checksum", "abc", "artifacts[0].checksum is 'abc'; valid is: 'sha256:'"),
        ("artifacts.0.size", 1.5, "artifacts[0].size is 1.5, but must be a whole number or null"),
        ("artifacts.0.manifest", "yes", "artifacts[0].manifest is 'yes', but must be true or"),
        ("tapstore.rev", "3", "tapstore.rev is '3', but must be a whole number"),
    ],
)  # fmt: skip
def test_a_fault_names_the_place_the_value_and_what_is_valid(place, value, shown):
    assert shown in refusal(changed(place, value))


@pytest.mark.parametrize(
    "place",
    ["version", "session_id", "participants", "current_phase", "artifacts", "participants.0.role",
     "participants.1.status", "artifacts.0.name", "artifacts.0.path", "participants.0.claim.fence",
     "tapstore.write_id"],
)  # fmt: skip
def test_a_missing_field_is_named_with_what_belongs_there(place):
    head, *rest = place.split(".")
    named = head + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in rest)
    assert refusal(without(place)).startswith(f"Tapfile: {named} is missing; valid is: ")


def test_every_fault_is_listed():
    doc = changed("participants.1.status", "done")
    doc["artifacts"][0]["size"] = "big"
    del doc["session_id"]
    lines = refusal(doc).splitlines()
    assert lines[0] == "Tapfile: 3 faults"
    assert sorted(line.split(" is ")[0] for line in lines[1:]) == [
        "- artifacts[0].size", "- participants[1].status", "- session_id"
    ]  # fmt: skip


def test_of_very_many_faults_the_first_are_shown_and_the_rest_counted():
    message = refusal(
        {**GOOD, "participants": [{"role": "a", "status": str(n)} for n in range(99)]}
    )
    assert "99 faults" in message
    assert message.endswith("… and 49 more")


def test_a_huge_value_is_shown_cut():
    assert len(refusal(changed("participants.1.status", "x" * 100_000))) < 400


@pytest.mark.parametrize("doc", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(doc):
    assert "the document is" in refusal(doc)


@pytest.mark.parametrize("version", ["2", "2.0", "10.1", "2.0.1"])
def test_a_newer_major_version_is_refused_with_advice_before_anything_else(version):
    message = refusal({"version": version, "everything": "is different"})
    assert f"has version {version}" in message
    assert "reads up to 1.x" in message
    assert "pip install --upgrade tapstore" in message
    assert "missing" not in message


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "status", "claim", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*GOOD, "phases"], values)))
def test_what_passes_can_be_made_a_state_of(doc):
    doc = {**GOOD, **doc}
    try:
        schema.check(doc)
    except FormatError:
        return
    assert tapfile.from_doc(doc).session_id == doc["session_id"]


def test_the_shipped_schema_is_closed_and_describes_every_field():
    _, shipped = schema._shipped()
    text = json.dumps(shipped)
    assert "$ref" not in text

    def undescribed(part: dict, place: str = "") -> list[str]:
        found = [] if "description" in part else [place]
        for name, inner in part.get("properties", {}).items():
            found += undescribed(inner, f"{place}.{name}")
        return found + (undescribed(part["items"], f"{place}[]") if "items" in part else [])

    assert undescribed(shipped) == []


# A session's own schema

OWN = {
    "required": ["budget"],
    "properties": {
        "budget": {"type": "number", "maximum": 10, "description": "at most ten"},
        "current_phase": {"enum": ["coding", "done"]},
        "artifacts": {"items": {"properties": {"type": {"$ref": "#/$defs/type"}}}},
    },
    "$defs": {"type": {"enum": ["code", "report"], "description": "kinds we use"}},
}


def test_a_document_that_keeps_the_sessions_own_rules_passes():
    UserSchema(OWN).check({**GOOD, "budget": 3})


def test_faults_by_the_sessions_own_rules_are_listed_with_what_its_author_says():
    doc = {**changed("artifacts.0.type", "music"), "budget": 11, "current_phase": "x"}
    message = refusal(doc, by=UserSchema(OWN, name="team.json"))
    assert message.startswith("Tapfile, by the session's team.json: 3 faults\n")
    assert "- budget is 11: 11 is greater than the maximum of 10; valid is: at most ten" in message
    assert "- current_phase is 'x', but must be one of 'coding', 'done'" in message
    assert (
        "- artifacts[0].type is 'music', but must be one of 'code', 'report'; valid is: " in message
    )


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(OWN).encode(),
        format.render(OWN),
        json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **OWN}).encode(),
    ],
    ids=["json", "yaml", "draft-07"],
)
def test_a_schema_may_be_json_or_yaml_and_of_an_older_draft(data):
    assert "budget is missing" in refusal(GOOD, by=UserSchema(data))


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (b"", "it is empty"),
        (b"[]", "a JSON Schema is a mapping, not []"),
        (b"{", "it is no JSON"),
        ({"type": "objekt"}, "schema, type: it is no valid JSON Schema"),
        ({"properties": {"a": {"required": "x"}}}, "schema, properties.a.required: "),
        ({"$ref": "#/$defs/x"}, "'/$defs/x' does not exist"),
        ({"$ref": "https://example.com/s.json"}, "a schema holds all that it refers to"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "fetches nothing"),
        ({"$dynamicRef": "https://example.com/s.json#x"}, "fetches nothing"),
        ({"$ref": "other.json"}, "fetches nothing"),
        ({"$schema": "https://example.com/meta"}, "fetches nothing"),
        ({"properties": {"a": {"pattern": "("}}}, "schema, properties.a.pattern: "),
        ({"properties": {"a": {"pattern": "(?=x)y"}}}, "no look-around"),
        ({"properties": {"a": {"pattern": r"(x)\1"}}}, "no back-references"),
        (b'{"title": "' + b"x" * 300_000 + b'"}', "at most 262,144 are read"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_reason(own, reason):
    with pytest.raises(FormatError) as caught:
        UserSchema(own)
    assert reason in str(caught.value)


def test_no_reference_ever_opens_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        with pytest.raises(FormatError, match="fetches nothing"):
            UserSchema({"properties": {"a": {"$ref": url}}})
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_pattern_that_would_blow_up_a_backtracking_engine_takes_linear_time():
    own = UserSchema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    began = time.process_time()
    refusal({"a": "a" * 100_000 + "b"}, by=own)
    assert time.process_time() - began < 5


def test_a_schema_may_name_a_property_like_a_keyword():
    own = UserSchema({"properties": {"$ref": {"type": "string"}}, "examples": [{"$ref": "x"}]})
    assert "is 1, but must be text" in refusal({"$ref": 1}, by=own)


def test_the_spec_page_names_every_field_that_the_schema_knows():
    page = (Path(__file__).parents[2] / "docs" / "spec" / "tapfile.md").read_text("utf-8")

    def fields(part: dict) -> set[str]:
        named = fields(part["items"]) if "items" in part else set()
        for name, inner in part.get("properties", {}).items():
            named |= {name} | fields(inner)
        return named

    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert rows == fields(schema._shipped()[1])


def test_the_example_of_the_spec_page_is_a_tapfile_as_tapstore_writes_it():
    page = (Path(__file__).parents[2] / "docs" / "spec" / "tapfile.md").read_text("utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    document = format.parse(example.encode())
    schema.check(document)
    rendered = format.render(document).decode()
    assert rendered.splitlines()[:-1] == example.splitlines()[:-1]
