"""Any document that passes the schema, taken for an edit: applied or refused, never an accident."""

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapstore.errors import ConflictError, FormatError, InvalidKeyError, NotAllowedError
from tapstore.tapfile import effects, schema
from tapstore.tapfile import operations as ops
from tapstore.tapfile.changes import diff
from tapstore.tapfile.model import from_doc, to_doc
from tapstore.tapfile.values import copied

REFUSALS = (ConflictError, FormatError, InvalidKeyError, NotAllowedError)


def mapping(required, **optional):
    return st.fixed_dictionaries(required, optional=optional)


def one_of(*values):
    return st.sampled_from(values)


values = st.recursive(
    one_of(None, True, False, 0, 1, 1.0, "", "a"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(one_of("a", "b"), inner),
    max_leaves=3,
)
times = one_of(None, "2024-04-15T10:30:00Z", "2024-04-15T10:30:00.5Z", "2099-01-01T00:00:00Z")
participants = mapping(
    {
        "role": one_of("coder", "reviewer", "x", " ", "x#2"),
        "status": one_of("pending", "working", "completed", "failed"),
    },
    agent_id=one_of("", "a", "b", None),
    last_activity=times,
    heartbeat=times,
    attempt=one_of(None, 0, 2, 1.0),
    round=one_of(None, 1, 2),
    reason=one_of(None, "", "why"),
    claim=one_of(
        None, {"id": "c1", "fence": 1}, {"id": "c2", "fence": 2, "external": True, "ttl_seconds": 9}
    ),
    model=values,
    slot=values,
)
artifacts = mapping(
    {
        "name": one_of("x", "y", "a/b"),
        "path": one_of("artifacts/p/x", "artifacts/p", "artifacts", "../x", "s3://b/k", ".tap/x"),
    },
    type=one_of(None, "code"),
    producer=one_of(None, "a", "z"),
    consumer=one_of(None, [], ["reviewer"]),
    phase=one_of(None, "", "p"),
    size=one_of(None, 0, 1.0),
    role=one_of(None, "", "coder"),
    metadata=one_of(None, {}, {"a": 1}),
    note=values,
)
documents = mapping(
    {
        "version": one_of("1.0", "1.1"),
        "session_id": st.just("s"),
        "participants": st.lists(participants, max_size=4),
        "current_phase": one_of("start", "next", ""),
        "artifacts": st.lists(artifacts, max_size=3),
    },
    phases=one_of(None, [], ["start"], ["start", "next"], [" "]),
    x=values,
    y=values,
)


@st.composite
def edits_of(draw, base):
    """`base` with some of its parts as in another document."""
    document, other = copied(base), draw(documents)
    for key in draw(st.sets(st.sampled_from(sorted(other)))):
        document[key] = other[key]
    for entry in document["participants"]:
        changed = draw(participants)
        for field in draw(st.sets(st.sampled_from(sorted(changed)))):
            entry[field] = changed[field]
    return document


def is_tapfile(document):
    try:
        schema.check(document)
    except FormatError:
        return False
    return True


def written(document):
    return msgspec.json.encode(document, order="sorted")


def check(before, operation, after):
    document = to_doc(after)
    schema.check(document)
    assert written(to_doc(from_doc(document))) == written(document)
    replayed = effects.replay(to_doc(before), effects.effects(to_doc(before), document))
    assert written(replayed) == written(document)
    stored = msgspec.json.encode(operation)
    assert msgspec.json.encode(msgspec.json.decode(stored, type=ops.Edit)) == stored
    labels = [participant.label for participant in after.participants]
    assert len(set(labels)) == len(labels)
    assert {p.label for p in before.participants} <= set(labels)
    assert {a.identity for a in before.artifacts} <= {a.identity for a in after.artifacts}
    granted = {p.label for p in before.participants if p.claim and not p.claim.external}
    assert all(after.claimed_by(p.claim.id) for p in before.participants if p.label in granted)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_edit_is_applied_or_refused_and_leaves_a_tapfile_behind(data):
    document = data.draw(documents) | {"version": "1.0"}
    roles = {entry["role"] for entry in document["participants"]}
    assume("x#2" not in roles and is_tapfile(document))
    base = state = from_doc(document)
    for number in range(data.draw(st.integers(1, 3))):
        edited = data.draw(edits_of(to_doc(base)))
        if not is_tapfile(edited):
            continue
        changes = diff(to_doc(base), edited)
        operation = ops.Edit(id=f"e{number}", changes=changes, base=1, external=True)
        try:
            after = ops.apply(state, operation, at=1713177000.0, rev=5 + number)
        except REFUSALS:
            continue
        check(state, operation, after)
        state = after
