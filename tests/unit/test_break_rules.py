"""Each guard of the rules, tried by what it guards against."""

import pytest

from tapstore.artifacts.model import Artifact
from tapstore.errors import AlreadyClaimedError, ConflictError, NotAllowedError
from tapstore.tapfile import operations as ops
from tapstore.tapfile.changes import Change, diff
from tapstore.tapfile.model import Participant, Tapfile, from_doc, to_doc
from tapstore.tapfile.values import copied

NOW = 1713177000.0
STATE = Tapfile(
    session_id="s",
    participants=(Participant(role="coder"), Participant(role="reviewer")),
    current_phase="start",
    artifacts=(Artifact(name="in", path="artifacts/start/in", phase="start"),),
    extra={"deep": {"a": 1}, "list": [1]},
)


def do(state, *batch, rev=2):
    for number, operation in enumerate(batch):
        state = ops.apply(state, operation, at=NOW, rev=rev + number)
    return state


def claim(role="coder", agent="a", id="c1", **more):
    return ops.Claim(id=id, role=role, agent=agent, instance="i", ttl_seconds=60, **more)


def edit(change, base=STATE, id="e1"):
    """The edit of a program that has `base` before it."""
    document = copied(to_doc(base))
    change(document)
    return ops.Edit(id=id, changes=diff(to_doc(base), document), base=1, external=True)


def coder(document):
    return document["participants"][0]


def goes_to_work(document):
    coder(document).update(status="working", agent_id="p")


AT_WORK = do(STATE, edit(goes_to_work))
DONE = do(AT_WORK, edit(lambda d: coder(d).update(status="completed"), AT_WORK))


# Edits


def test_the_version_never_changes():
    with pytest.raises(NotAllowedError, match="version of a session never changes"):
        do(STATE, edit(lambda d: d.update(version="1.1")))


def test_phases_can_not_be_declared_so_that_the_present_one_is_none():
    with pytest.raises(NotAllowedError, match="no phase 'start'"):
        do(STATE, edit(lambda d: d.update(phases=["a", "b"])))


def test_two_that_set_the_same_phase_agree():
    head = do(STATE, edit(lambda d: d.update(current_phase="next")))
    assert do(head, edit(lambda d: d.update(current_phase="next"))) == head


def test_a_field_below_what_is_no_mapping_any_more_is_a_conflict():
    head = do(STATE, edit(lambda d: d.update(deep="flat")))
    with pytest.raises(ConflictError, match=r"deep\.a was changed"):
        do(head, edit(lambda d: d["deep"].update(a=2)))


def test_an_item_appended_to_what_is_no_list_any_more_is_a_conflict():
    head = do(STATE, edit(lambda d: d.update(list="none")))
    with pytest.raises(ConflictError, match="list was changed"):
        do(head, edit(lambda d: d["list"].append(2)))


def test_an_artifact_changed_by_two_in_different_ways_is_a_conflict():
    head = do(STATE, edit(lambda d: d["artifacts"][0].update(type="code")))
    same = do(head, edit(lambda d: d["artifacts"][0].update(type="code")))
    assert same.artifacts == head.artifacts
    with pytest.raises(ConflictError, match=r"artifacts\.start\.in was changed"):
        do(head, edit(lambda d: d["artifacts"][0].update(type="report")))


def test_a_change_of_an_artifact_that_is_not_there_is_a_conflict():
    head = from_doc(to_doc(STATE) | {"artifacts": []})
    with pytest.raises(ConflictError, match=r"artifacts\.start\.in was changed"):
        do(head, edit(lambda d: d["artifacts"][0].update(type="code")))


@pytest.mark.parametrize(("field", "value"), [("attempt", 9), ("round", 9), ("claim", {"id": "x"})])
def test_what_tapstore_keeps_of_a_participant_can_not_be_edited(field, value):
    with pytest.raises(NotAllowedError, match=f"participants.coder.{field} is kept by tapstore"):
        do(AT_WORK, edit(lambda d: coder(d).update({field: value}), AT_WORK))


def test_a_status_that_was_changed_meanwhile_is_a_conflict_also_without_claims():
    head = do(DONE, ops.Reopen(id="r", slot="coder"))
    with pytest.raises(ConflictError, match="but it is 'pending' by now"):
        do(head, edit(lambda d: coder(d).update(status="pending"), DONE))


def test_a_working_role_can_not_be_ended_for_another_agent():
    with pytest.raises(NotAllowedError, match="for another agent: it is held by p"):
        do(AT_WORK, edit(lambda d: coder(d).update(status="completed", agent_id="q"), AT_WORK))


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "tester", "status": "completed"},
        {"role": "tester", "status": "failed"},
        {"role": "tester", "status": "working", "claim": {"id": "forged", "fence": 99}},
    ],
    ids=str,
)
def test_a_new_participant_begins_at_the_beginning(entry):
    with pytest.raises(NotAllowedError, match="a new one is pending or working"):
        do(STATE, edit(lambda d: d["participants"].append(entry)))


def test_a_new_participant_that_works_has_a_claim_that_can_be_reset():
    entry = {"role": "tester", "status": "working", "agent_id": "p"}
    state = do(STATE, edit(lambda d: d["participants"].append(entry)), rev=7)
    (tester,) = state.slots("tester")
    assert (tester.claim.external, tester.claim.fence, tester.attempt) == (True, 7, 1)
    reset = do(state, ops.Reset(id="r", slot="tester", claim=tester.claim.id))
    assert reset.slots("tester")[0].status == "pending"


def test_an_agent_assigned_by_two_is_a_conflict():
    head = do(STATE, edit(lambda d: coder(d).update(agent_id="one")))
    with pytest.raises(ConflictError, match="agent_id was changed"):
        do(head, edit(lambda d: coder(d).update(agent_id="two")))


def test_a_participant_that_is_not_there_any_more_is_named():
    change = Change(path=("participants", "tester", "model"), new="m")
    with pytest.raises(NotAllowedError, match="participant tester of revision 3"):
        do(STATE, ops.Edit(id="e", changes=(change,), base=3))


# Other operations


def test_a_claim_may_say_in_which_phase_it_is_made():
    assert do(STATE, claim(expected="start")).slots("coder")[0].status == "working"
    with pytest.raises(NotAllowedError, match="not 'later'; coder was not claimed"):
        do(STATE, claim(expected="later"))


def test_a_takeover_needs_a_claim_to_fence_off():
    state = STATE.with_participant(Participant(role="coder", agent_id="a", status="working"))
    with pytest.raises(AlreadyClaimedError):
        do(state, claim(takeover=True))


def test_nobody_in_particular_does_not_replace_what_nobody_in_particular_registered():
    def publish(checksum):
        artifact = Artifact(name="x", path="artifacts/start/x", phase="start", checksum=checksum)
        return ops.Publish(id="p", artifacts=(artifact,))

    with pytest.raises(NotAllowedError, match="with overwrite"):
        do(STATE, publish("sha256:1"), publish("sha256:2"))
