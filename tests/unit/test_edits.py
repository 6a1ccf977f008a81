"""Edits by programs that know nothing of tapstore: what is merged, and what is refused."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.artifacts.model import Artifact
from tapstore.errors import ConflictError, NotAllowedError
from tapstore.tapfile import edits, effects
from tapstore.tapfile import operations as ops
from tapstore.tapfile.changes import diff
from tapstore.tapfile.model import Participant, Tapfile, from_doc, to_doc

NOW = 1713177000.0
BASE = Tapfile(
    session_id="s",
    participants=(Participant(role="coder"), Participant(role="reviewer")),
    current_phase="start",
    artifacts=(Artifact(name="in", path="artifacts/in", checksum="sha256:" + "0" * 64),),
    extra={"counter": 1, "list": [1], "deep": {"a": 1, "b": 2}},
)
WORKING = ops.apply(
    BASE,
    ops.Claim(id="c1", role="coder", agent="a1", instance="i", ttl_seconds=60),
    at=NOW,
    rev=2,
)


def edited(change, base=BASE):
    document = copy.deepcopy(to_doc(base))
    change(document)
    return diff(to_doc(base), document)


def merge(change, base=BASE, head=None, id="e1"):
    operation = ops.Edit(id=id, changes=edited(change, base), base=1, external=True)
    return ops.apply(base if head is None else head, operation, at=NOW, rev=9)


def coder(document):
    return document["participants"][0]


def goes_to_work(document):
    coder(document).update(
        status="working", agent_id="plain-1", last_activity="2024-04-15T10:00:00Z"
    )


def completes(document):
    coder(document).update(status="completed", last_activity="2024-04-15T11:00:00Z")


def test_an_unchanged_document_has_no_changes():
    assert edited(lambda d: d["participants"].reverse() or d.update(sorted(d.items()))) == ()


def test_going_to_work_gets_an_external_claim():
    p = merge(goes_to_work).participants[0]
    assert (p.status, p.agent_id, p.attempt) == ("working", "plain-1", 1)
    assert p.claim.external
    assert p.claim.fence == 9


def test_completing_ones_own_work_is_accepted():
    working = merge(goes_to_work)
    p = merge(completes, working).participants[0]
    assert (p.status, p.claim) == ("completed", None)


def test_a_program_that_held_the_lock_while_it_worked_shows_only_the_end():
    p = merge(lambda d: goes_to_work(d) or completes(d)).participants[0]
    assert (p.status, p.agent_id, p.attempt) == ("completed", "plain-1", 1)


def test_a_zombie_that_completes_what_was_reset_is_refused():
    with pytest.raises(NotAllowedError, match=r"nobody holds it"):
        merge(completes)


def test_a_zombie_that_writes_its_old_copy_is_refused():
    working = merge(goes_to_work)
    reset = ops.Reset(id="r", slot="coder", claim=working.participants[0].claim.id)
    head = ops.apply(working, reset, at=NOW, rev=10)
    with pytest.raises(ConflictError, match=r"coder.status was changed.*but it is 'pending'"):
        merge(completes, working, head)


def test_a_zombie_is_refused_when_the_role_was_taken_anew():
    working = merge(goes_to_work)
    again = merge(goes_to_work, id="e2")
    with pytest.raises(ConflictError):
        merge(completes, working, again)


def test_a_zombie_that_looks_again_is_given_away_by_its_artifact():
    def completes_with_artifact(document):
        completes(document)
        document["artifacts"].append({"name": "x", "path": "artifacts/x", "producer": "zombie"})

    with pytest.raises(NotAllowedError, match=r"held by plain-1.*artifacts of zombie"):
        merge(completes_with_artifact, merge(goes_to_work))


def test_an_edit_can_not_end_a_claim_of_tapstore():
    with pytest.raises(NotAllowedError, match=r"under a claim of tapstore.*tapstore reset coder"):
        merge(completes, WORKING)


def test_an_edit_can_not_take_over_a_working_role():
    with pytest.raises(NotAllowedError, match=r"held by a1.*tapstore reset coder"):
        merge(lambda d: coder(d).update(agent_id="thief"), WORKING)


def test_completed_to_working_is_no_legal_move():
    done = merge(completes, merge(goes_to_work))
    with pytest.raises(NotAllowedError, match=r"set it to pending first"):
        merge(goes_to_work, done)


def test_completed_to_pending_reopens():
    done = merge(completes, merge(goes_to_work))
    p = merge(lambda d: coder(d).update(status="pending"), done).participants[0]
    assert (p.status, p.round, p.attempt) == ("pending", 2, 0)


def test_refreshing_its_activity_makes_an_external_claim_judged():
    working = merge(goes_to_work)
    assert not working.participants[0].claim.renewed
    beat = merge(lambda d: coder(d).update(last_activity="2024-04-15T12:00:00Z"), working)
    assert beat.participants[0].claim.renewed


@pytest.mark.parametrize("what", ["participants", "artifacts"])
def test_entries_can_not_disappear(what):
    with pytest.raises(NotAllowedError, match=r"disappeared"):
        merge(lambda d: d[what].clear())


def test_dropping_fields_that_tapstore_keeps_changes_nothing():
    def drop(document):
        coder(document).pop("claim")
        coder(document).pop("attempt")

    assert edited(drop, WORKING) == ()


def test_the_session_id_never_changes():
    with pytest.raises(NotAllowedError, match=r"session_id of a session never changes"):
        merge(lambda d: d.update(session_id="other"))


def test_a_phase_that_is_not_declared_is_refused():
    base = Tapfile(session_id="s", phases=("a", "b"), current_phase="a")
    with pytest.raises(NotAllowedError, match=r"its phases are, in order: a, b"):
        merge(lambda d: d.update(current_phase="z"), base)


def test_edits_of_different_fields_are_both_kept():
    head = merge(lambda d: d.update(counter=2))
    merged = merge(lambda d: d["deep"].update(a=5), BASE, head)
    assert merged.extra["counter"] == 2
    assert merged.extra["deep"] == {"a": 5, "b": 2}


def test_items_appended_by_two_are_both_kept():
    head = merge(lambda d: d["list"].append("theirs"))
    assert merge(lambda d: d["list"].append("ours"), BASE, head).extra["list"] == [
        1, "theirs", "ours",
    ]  # fmt: skip


def test_the_same_field_changed_by_two_is_a_conflict():
    head = merge(lambda d: d.update(counter=2))
    with pytest.raises(ConflictError, match=r"counter was changed.*from 1 to 3, but it is 2"):
        merge(lambda d: d.update(counter=3), BASE, head)


def test_two_that_count_from_the_same_number_are_a_conflict():
    head = merge(lambda d: d.update(counter=2))
    with pytest.raises(ConflictError):
        merge(lambda d: d.update(counter=2), BASE, head)


def test_nothing_of_a_refused_edit_is_applied():
    def change(document):
        document["counter"] = 7
        completes(document)

    with pytest.raises(NotAllowedError):
        merge(change)


def test_a_new_participant_and_a_new_artifact_are_taken():
    def change(document):
        document["participants"].append({"role": "tester", "agent_id": "", "status": "pending"})
        document["artifacts"].append({"name": "y", "path": "artifacts/p1/y"})

    merged = merge(change)
    assert merged.slots("tester")
    assert merged.artifact("y").phase == "p1"


def test_unknown_fields_of_participants_survive_and_merge():
    merged = merge(lambda d: coder(d).update(model="m", claims_seen=3))
    assert merged.participants[0].extra == {"model": "m", "claims_seen": 3}


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
documents = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("ab", min_size=1, max_size=1), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@given(documents, documents)
def test_replaying_effects_gives_the_later_document(before, after):
    assert effects.replay(before, effects.effects(before, after)) == after


@given(documents)
def test_no_change_has_no_effects(document):
    assert effects.effects(document, copy.deepcopy(document)) == []


@given(documents, documents)
def test_merging_an_edit_into_its_own_base_gives_the_edited_document(before, after):
    base = from_doc({"version": "1.0", "session_id": "s", **prefixed(before)})
    wanted = {**to_doc(base), **prefixed(after)}
    for key in prefixed(before):
        if key not in prefixed(after):
            wanted.pop(key)
    changes = diff(to_doc(base), wanted)
    merged = edits.apply_changes(base, changes, base=1, claim_id="e", at="", rev=2)
    assert to_doc(merged) == wanted


def prefixed(document):
    return {f"x_{key}": value for key, value in document.items()}
