from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapstore.errors import FormatError, InvalidKeyError, StoreError
from tapstore.handoffs import draft, message, names
from tapstore.handoffs.draft import Draft, DraftError, Fault
from tapstore.handoffs.names import Stamp
from tests.unit.handoff_values import roles, stamps

SWARM = ("coder", "cleaner", "architect", "QA", "审查")
NOTE = "type: note\nto: QA\npriority: 50\nmessage: hello\n"


def check(data: bytes | str, **options) -> Draft:
    given_options = {"sender": "coder", "roles": SWARM, "resolve": str.lower, **options}
    return draft.check(data.encode() if isinstance(data, str) else data, **given_options)


def accept_or_refuse(data: bytes) -> None:
    """Any other exception fails the test; so does a draft that passes and is no good message."""
    faults: tuple[Fault, ...] = ()
    try:
        checked = check(data)
    except DraftError as exc:
        faults = exc.faults
        checked = None
    if checked is None:
        lines = [fault.line for fault in faults if fault.line is not None]
        assert faults
        assert set(lines) <= set(range(1, data.count(b"\n") + 2))
        return
    name, made = checked.message(Stamp(0, 1), created_at=0)
    assert message.parse(message.render(made)) == made
    assert names.parse(str(name)) == name
    assert (made.id, made.recipients) == (name.id, checked.recipients)


@st.composite
def drafts(draw: st.DrawFn) -> tuple[str, dict[str, str], list[str]]:
    """Good ones, in any order of their headers."""
    to = draw(st.lists(roles, min_size=1, max_size=5, unique=True))
    headers = {"to": ",".join(to), "priority": f"{draw(st.integers(0, 99)):02}"}
    text = st.text(min_size=1, max_size=80).filter(
        lambda value: message.header_fault("x", value) is None
    )
    if draw(st.booleans()):
        headers |= {"type": "note", "message": draw(text)}
    else:
        digits = draw(st.text("0123456789abcdefABCDEF", min_size=10, max_size=10))
        headers |= {"type": "git_handoff", "task": draw(text), "commit": digits}
    lines = draw(st.permutations([f"{name}: {value}" for name, value in headers.items()]))
    return "\n".join(lines), headers, to


@given(drafts(), roles, stamps)
def test_every_good_draft_becomes_a_message_that_says_the_same(made, sender, stamp):
    text, headers, to = made
    checked = check(text, sender=sender, roles=[*to, sender])
    name, queued = checked.message(stamp, created_at=stamp.at)
    read = message.parse(message.render(queued))
    expected = {**headers, "from": sender, "id": name.id}
    if "commit" in headers:
        expected |= {"commit": headers["commit"].lower(), "role": sender}
    created = read.headers["created_at"]
    assert read.headers == {**expected, "created_at": created}
    assert read.time("created_at") == stamp.at
    wanted = headers.get("message") or f"merge_and_process {sender} {expected['commit']}"
    assert read.body == f"Re-read your role and constitution.\n\n{wanted}\n"


PIECES = st.sampled_from(
    [b"", b"\n", b"\n\n", b"\r", b"\r\n", b": ", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b",", b"_",
     b"type: note\n", b"to: coder\n", b"id: x\n", b"\xe2\x80\xa8", b"priority: 1\n", b"{", b"../",
     b"artifacts: a@sha256:0\n", b"reply_to: x\n", b"correlation_id: \xc3\xa9\n", b"tapstore: x\n"]
) | st.binary(max_size=3)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    git = b"type: git_handoff\nto: QA,cleaner\npriority: 50\ntask: t\ncommit: a1b2c3d9e8\n"
    data = draw(st.sampled_from([NOTE.encode(), git]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 0, 1, 5, 50]))
        data = data[:start] + draw(PIECES) + data[end:]
    return data


@given(st.binary(max_size=200) | st.lists(PIECES).map(b"".join))
def test_any_bytes_are_a_draft_or_refused(data):
    accept_or_refuse(data)


@given(damaged())
def test_any_damaged_draft_is_accepted_or_refused(data):
    accept_or_refuse(data)


@pytest.mark.soak
@settings(max_examples=100_000)
@given(damaged())
def test_very_many_damaged_drafts_are_accepted_or_refused(data):
    accept_or_refuse(data)


@pytest.mark.parametrize(
    "data", [b"message: " + b"x" * 10_000_000, b"\n" * 10_000_000, b"a: b\n" * 2_000_000]
)
def test_ten_megabytes_are_refused_unread(data):
    began = time.process_time()
    with pytest.raises(DraftError, match=r"Errors:\n- The draft has .* at most 65,536 are read"):
        check(data)
    assert time.process_time() - began < 0.1


def test_no_more_faults_are_shown_than_somebody_reads():
    with pytest.raises(DraftError) as caught:
        check("x\n" * 1000)
    assert len(caught.value.faults) == 1003
    assert "- Line 50: " in str(caught.value)
    assert "\n- … and 953 more\n" in str(caught.value)
    assert "- Line 51: " not in str(caught.value)


def test_without_a_type_the_forms_of_all_types_are_shown():
    with pytest.raises(DraftError) as caught:
        check("")
    for words in ("Draft formats:", "type: git_handoff", "type: note", "commit: <10-char-commit"):
        assert words in str(caught.value)


def test_with_a_type_only_its_form_is_shown():
    with pytest.raises(DraftError) as caught:
        check("type: note\n")
    assert "Expected note format:\n\ntype: note\nto: <role>[,<role>...]\n" in str(caught.value)
    assert "git_handoff" not in str(caught.value)


def test_a_refused_draft_is_a_malformed_call():
    with pytest.raises(DraftError) as caught:
        check("")
    assert (caught.value.exit_code, isinstance(caught.value, FormatError)) == (2, True)


def test_what_begins_with_tapstore_is_kept_for_tools():
    with pytest.raises(DraftError, match="Line 5: header 'tapstore-attempt' is reserved"):
        check(NOTE + "tapstore-attempt: 2\n")


def test_a_commit_that_is_malformed_is_not_asked_for():
    asked = []
    with pytest.raises(DraftError, match="exactly 10 hexadecimal characters; got '--all'"):
        check(
            "type: git_handoff\nto: QA\npriority: 50\ntask: t\ncommit: --all\n",
            resolve=asked.append,
        )
    assert asked == []


def test_a_resolver_that_cannot_look_is_not_the_fault_of_the_draft():
    def resolve(commit: str) -> str:
        raise StoreError(f"git is not installed, to look for {commit}")

    with pytest.raises(StoreError, match="git is not installed"):
        check(
            "type: git_handoff\nto: QA\npriority: 50\ntask: t\ncommit: a1b2c3d9e8\n",
            resolve=resolve,
        )


def test_what_a_resolver_returns_cannot_carry_a_header():
    with pytest.raises(DraftError, match="one line of plain text"):
        check(
            "type: git_handoff\nto: QA\npriority: 50\ntask: t\ncommit: a1b2c3d9e8\n",
            resolve=lambda commit: f"{commit}\nto: evil",
        )


@pytest.mark.parametrize("sender", ["nobody", "", "a_b", "coder\nid: x"])
def test_a_sender_that_the_swarm_does_not_have_is_refused(sender):
    with pytest.raises(InvalidKeyError, match="role"):
        check(NOTE, sender=sender)


def test_a_role_of_the_swarm_that_no_name_can_hold_is_no_recipient():
    with pytest.raises(DraftError, match="Line 2: role 'code reviewer' contains a space"):
        check(NOTE.replace("QA", "code reviewer"), roles=[*SWARM, "code reviewer"])


def test_a_message_to_more_roles_than_a_name_holds_names_them_all_in_its_header():
    many = [f"a-role-of-thirty-characters-{n:03}" for n in range(500)]
    checked = check(NOTE.replace("QA", ",".join(many)), roles=["coder", *many])
    name, made = checked.message(Stamp(0, 1), created_at=0)
    assert len(name.recipients) + name.more == 500
    assert message.parse(message.render(made)).recipients == tuple(many)
    with pytest.raises(DraftError, match="more than 500 recipients"):
        check(NOTE.replace("QA", ",".join([*many, "QA"])), roles=["coder", "QA", *many])
