"""The rules: which operation may change what, and what refusals say."""

import pytest

from tapstore.artifacts.model import Artifact
from tapstore.errors import (
    AlreadyClaimedError,
    ClaimLostError,
    InvalidKeyError,
    NotAllowedError,
)
from tapstore.tapfile import model
from tapstore.tapfile import operations as ops
from tapstore.tapfile.model import Participant, Tapfile

NOW = 1713177000.0
STATE = Tapfile(
    session_id="s",
    participants=(
        Participant(role="coder"),
        Participant(role="reviewer"),
        Participant(role="reviewer", slot=2),
    ),
    current_phase="start",
)


def claim(role="coder", agent="a1", id="c1", **more):
    return ops.Claim(id=id, by=agent, role=role, agent=agent, instance="i", ttl_seconds=60, **more)


def do(state, *batch, at=NOW, rev=2):
    for operation in batch:
        state = ops.apply(state, operation, at=at, rev=rev)
        rev += 1
    return state


def artifact(name="x.py", path=None, checksum="sha256:" + "0" * 64, phase="start", **more):
    path = path or f"artifacts/{phase}/{name}"
    return Artifact(name=name, path=path, checksum=checksum, phase=phase, **more)


def slot(state, label):
    return ops.find_slot(state, label)


def test_a_claim_sets_agent_status_times_and_fence():
    p = slot(do(STATE, claim(), rev=7), "coder")
    assert (p.agent_id, p.status, p.attempt, p.claim.id, p.claim.fence) == (
        "a1", "working", 1, "c1", 7,
    )  # fmt: skip
    assert p.last_activity == p.heartbeat == "2024-04-15T10:30:00Z"


def test_second_claim_of_a_role_names_the_winner():
    with pytest.raises(AlreadyClaimedError, match=r"claimed by a1 \(since 2024-.*token 2\).*reset"):
        do(STATE, claim(), claim(agent="a2", id="c2"))


def test_a_role_with_two_slots_takes_two_agents_and_no_third():
    state = do(STATE, claim("reviewer", "a1", "c1"), claim("reviewer", "a2", "c2"))
    assert slot(state, "reviewer#2").agent_id == "a2"
    with pytest.raises(AlreadyClaimedError, match=r"a1.*a2"):
        do(state, claim("reviewer", "a3", "c3"))
    # One of those that are held, not the first of the role.
    state = do(state, ops.Complete(id="e", by="a1", claim="c1"))
    with pytest.raises(AlreadyClaimedError, match=r"`tapstore reset reviewer#2`"):
        do(state, claim("reviewer", "a3", "c3"))


def test_the_same_agent_id_started_twice_is_refused():
    with pytest.raises(AlreadyClaimedError, match=r"under this very agent id"):
        do(STATE, claim("reviewer", "a1", "c1"), claim("reviewer", "a1", "c2"))


def test_takeover_fences_the_first_instance_off():
    state = do(STATE, claim(), claim(id="c2", takeover=True))
    assert slot(state, "coder").claim.id == "c2"
    with pytest.raises(ClaimLostError):
        do(state, ops.Complete(id="o", claim="c1"))


def test_takeover_does_not_take_from_another_agent():
    with pytest.raises(AlreadyClaimedError):
        do(STATE, claim(), claim(agent="a2", id="c2", takeover=True))


def test_an_unknown_role_lists_the_roles():
    with pytest.raises(NotAllowedError, match=r"no role 'tester'; its roles are coder, reviewer"):
        do(STATE, claim("tester"))


def test_an_assigned_slot_is_for_that_agent():
    state = STATE.with_participant(Participant(role="coder", agent_id="boss"))
    with pytest.raises(NotAllowedError, match=r"assigned to 'boss'"):
        do(state, claim())
    assert slot(do(state, claim(agent="boss")), "coder").agent_id == "boss"


def test_a_completed_role_can_not_be_claimed_and_says_how_to_reopen():
    with pytest.raises(NotAllowedError, match=r"coder is completed.*tapstore reopen coder"):
        do(STATE, claim(), ops.Complete(id="o", claim="c1"), claim(id="c2"))


def test_complete_sets_status_phase_and_artifacts_in_one():
    done = ops.Complete(id="o", claim="c1", phase="review", artifacts=(artifact(),))
    state = do(STATE, claim(), done)
    assert slot(state, "coder").status == "completed"
    assert slot(state, "coder").claim is None
    assert state.current_phase == "review"
    assert state.artifact("x.py").role == "coder"


@pytest.mark.parametrize(
    "late",
    [
        ops.Complete(id="o", claim="c1"),
        ops.Fail(id="o", claim="c1"),
        ops.Release(id="o", claim="c1"),
        ops.Publish(id="o", claim="c1", artifacts=(artifact(),)),
    ],
)
def test_whatever_a_zombie_does_is_refused_after_a_reset(late):
    state = do(STATE, claim(), ops.Reset(id="r", slot="coder", claim="c1"))
    with pytest.raises(ClaimLostError, match=r"Nothing of this call was applied"):
        do(state, late)


def test_a_zombie_is_refused_also_when_the_role_was_claimed_again_by_the_same_agent():
    state = do(STATE, claim(), ops.Reset(id="r", slot="coder", claim="c1"), claim(id="c2"))
    with pytest.raises(ClaimLostError):
        do(state, ops.Complete(id="o", claim="c1"))


def test_a_reset_hits_only_the_claim_that_was_judged():
    state = do(STATE, claim(), ops.Release(id="o", claim="c1"), claim(id="c2"))
    with pytest.raises(ClaimLostError, match=r"another claim"):
        do(state, ops.Reset(id="r", slot="coder", claim="c1"))


def test_a_reset_frees_the_slot_for_anybody():
    p = slot(do(STATE, claim(), ops.Reset(id="r", slot="coder", claim="c1", reason="?")), "coder")
    assert (p.status, p.agent_id, p.claim, p.heartbeat, p.reason) == (
        "pending",
        "",
        None,
        None,
        "?",
    )


def test_the_last_attempt_ends_in_failed():
    state = STATE
    for n in (1, 2, 3):
        state = do(state, claim(id=f"c{n}"))
        reset = ops.Reset(id="r", slot="coder", claim=f"c{n}", max_attempts=3, reason="silent")
        state = do(state, reset)
    assert slot(state, "coder").status == "failed"
    assert slot(state, "coder").reason == "silent (attempt 3 of 3, the last)"


def test_a_release_does_not_count_as_an_attempt():
    assert slot(do(STATE, claim(), ops.Release(id="o", claim="c1")), "coder").attempt == 0


@pytest.mark.parametrize("end", [ops.Complete(id="o", claim="c1"), ops.Fail(id="o", claim="c1")])
def test_reopen_starts_a_numbered_round(end):
    p = slot(do(STATE, claim(), end, ops.Reopen(id="r", slot="coder")), "coder")
    assert (p.status, p.round, p.attempt, p.agent_id) == ("pending", 2, 0, "")


def test_reopen_of_a_working_slot_is_refused_with_the_way_out():
    with pytest.raises(NotAllowedError, match=r"is working.*tapstore reset coder"):
        do(STATE, claim(), ops.Reopen(id="r", slot="coder"))


def test_reset_of_what_does_not_work_is_refused():
    with pytest.raises(NotAllowedError, match=r"nothing to reset"):
        do(STATE, ops.Reset(id="r", slot="coder", claim=""))


def test_a_phase_outside_the_declared_list_is_refused_with_the_list():
    state = Tapfile(session_id="s", phases=("a", "b"), current_phase="a")
    with pytest.raises(NotAllowedError, match=r"no phase 'c'; its phases are, in order: a, b"):
        do(state, ops.SetPhase(id="o", phase="c"))


def test_set_phase_with_an_expectation_that_fails_changes_nothing():
    with pytest.raises(NotAllowedError, match=r"in phase 'start', not 'other'"):
        do(STATE, ops.SetPhase(id="o", phase="x", expected="other"))


def test_a_retry_of_the_same_role_replaces_its_artifact():
    first = ops.Publish(id="p1", claim="c1", artifacts=(artifact(),))
    again = artifact(path="artifacts/start/x~c2.py", checksum="sha256:" + "1" * 64)
    state = do(
        STATE,
        claim(),
        first,
        ops.Reset(id="r", slot="coder", claim="c1"),
        claim(id="c2"),
        ops.Publish(id="p2", claim="c2", artifacts=(again,)),
    )
    assert [a.path for a in state.artifacts] == ["artifacts/start/x~c2.py"]


def test_another_role_replaces_an_artifact_only_on_request():
    state = do(STATE, claim(), ops.Publish(id="p", claim="c1", artifacts=(artifact(),)))
    state = do(state, claim("reviewer", "r1", "c2"))
    other = artifact(path="artifacts/start/other", checksum="sha256:" + "1" * 64)
    with pytest.raises(NotAllowedError, match=r"with overwrite"):
        do(state, ops.Publish(id="p", claim="c2", artifacts=(other,)))
    do(state, ops.Publish(id="p", claim="c2", artifacts=(other,), overwrite=True))


def test_a_file_where_another_artifact_needs_a_folder_is_refused():
    state = do(STATE, ops.Publish(id="p", artifacts=(artifact(path="artifacts/a/b"),)))
    with pytest.raises(InvalidKeyError, match=r"needs a folder"):
        do(state, ops.Publish(id="p", artifacts=(artifact("y", path="artifacts/a"),)))


def test_a_consumer_that_is_role_and_agent_at_once_is_refused():
    state = do(STATE, claim(agent="reviewer"))
    with pytest.raises(NotAllowedError, match=r"'role:reviewer' or 'agent:reviewer'"):
        do(state, ops.Publish(id="p", artifacts=(artifact(consumer=("reviewer",)),)))


def test_consumers_match_by_role_agent_or_prefix():
    assert ops.consumes(artifact(consumer=("reviewer",)), role="reviewer")
    assert ops.consumes(artifact(consumer=("agent:r1",)), role="reviewer", agent="r1")
    assert not ops.consumes(artifact(consumer=("agent:r1",)), role="r1")


def test_heartbeats_reach_only_the_claims_they_name_and_only_forward():
    state = do(STATE, claim())
    beats = {"c1": "2024-04-15T10:31:00Z", "gone": "2024-04-15T10:31:00Z"}
    state = do(state, ops.Heartbeat(id="", beats=beats))
    assert slot(state, "coder").heartbeat == "2024-04-15T10:31:00Z"
    late = ops.Heartbeat(id="", beats={"c1": "2024-04-15T10:30:30Z"})
    assert slot(do(state, late), "coder").heartbeat == "2024-04-15T10:31:00Z"


def test_a_document_beside_the_one_before_shares_the_lists_that_are_the_same():
    document = model.to_doc(STATE)
    after = do(STATE, ops.SetPhase(id="p", phase="next"))
    made = model.to_doc(after, known=(STATE, document))
    assert made == model.to_doc(after)
    assert made["participants"] is document["participants"]
    assert made["artifacts"] is document["artifacts"]


def test_a_document_beside_the_one_before_shows_what_changed_in_its_lists():
    after = do(STATE, claim(), ops.Publish(id="p", artifacts=(artifact(),)))
    made = model.to_doc(after, known=(STATE, model.to_doc(STATE)))
    assert made == model.to_doc(after)


@pytest.mark.parametrize(
    "changed",
    [
        {"participants": [{"role": "coder", "reason": "new"}]},
        {"artifacts": [{"name": "a", "path": "artifacts/start/a"}]},
        {"current_phase": "next", "own": 1},
    ],
)
def test_a_state_beside_the_one_before_is_read_from_what_changed_in_its_document(changed):
    document = model.to_doc(STATE)
    edited = {**document, **changed}
    read = model.from_doc(edited, known=(STATE, document))
    assert read == model.from_doc(edited) != STATE
