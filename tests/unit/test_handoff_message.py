from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapstore.clock import parse_time
from tapstore.errors import FormatError, NotAllowedError
from tapstore.handoffs import message, names, references
from tapstore.handoffs.message import MAX_BYTES, MAX_HEADER_BYTES, Message, UnfinishedError
from tapstore.handoffs.references import Reference
from tapstore.tapfile.times import canonical_time
from tests.unit.handoff_values import recipient_lists, roles, stamps

HEADERS = {
    "id": "20260615T140531Z_000042_from_coder",
    "from": "coder",
    "to": "cleaner,QA",
    "priority": "50",
    "type": "note",
    "message": "hello",
    "created_at": "2026-06-15T14:05:31Z",
}
QUEUED = Message(HEADERS, "hello\n")
AT = 1781532331.0

sums = st.text("0123456789abcdef", min_size=64, max_size=64)
words = st.sampled_from(["report.md", "a b", "a@sha256:b", "%41", "é", "con", ".x", "a.", "../x"])


def is_reference(parts: tuple[str, str]) -> bool:
    try:
        Reference(parts[1], "0" * 64, parts[0])
    except FormatError:
        return False
    return True


artifact_names = st.tuples(st.just("") | words | st.text(max_size=8), words | st.text(max_size=8))
artifact_lists = st.lists(
    st.builds(lambda n, s: Reference(n[1], s, n[0]), artifact_names.filter(is_reference), sums),
    min_size=1,
    max_size=5,
    unique_by=lambda r: (r.phase, r.name),
)
header_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
values = st.text(max_size=40).filter(lambda value: message.header_fault("x", value) is None)
bodies = st.text(max_size=200).filter(lambda body: "\0" not in body)
times = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(lambda t: t.timestamp())


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Of every state, with headers of all kinds."""
    to = draw(recipient_lists)
    sender = draw(roles)
    unknown = draw(st.dictionaries(header_names, values, max_size=5))
    headers = {
        name: value for name, value in unknown.items() if message.known_fault(name, value) is None
    }
    headers |= {
        "id": names.render_id(draw(stamps), sender),
        "from": sender,
        "to": ",".join(to),
        "priority": f"{draw(st.integers(0, 99)):02}",
        "type": draw(st.sampled_from(["note", "git_handoff", "review"])),
        "created_at": message.write_time(draw(times)),
    }
    if draw(st.booleans()):
        headers["artifacts"] = references.render(draw(artifact_lists))
    if draw(st.booleans()):
        headers["reply_to"] = names.render_id(draw(stamps), draw(roles))
    headers.pop("recipient", None)
    made = Message(headers, draw(bodies))
    if draw(st.booleans()):
        made = message.deliver(made, recipient=draw(st.sampled_from(to)), at=draw(times))
        if draw(st.booleans()):
            made = message.accept(made, at=draw(times))
            if draw(st.booleans()):
                made = message.complete(made, at=draw(times))
    return made


def read_or_refuse(data: bytes) -> None:
    """Any other exception fails the test; so does what can't be written as it was read."""
    with suppress(FormatError):
        read = message.parse(data)
        assert message.parse(message.render(read)) == read
        assert read.state in ("queued", "delivered", "accepted", "completed")
        assert all([read.id, read.type, read.sender, *read.recipients])
        assert 0 <= read.priority <= 99
        assert isinstance(read.artifacts, tuple)
        for header in message.TIMES:
            assert isinstance(read.time(header), float | None)


@given(messages())
def test_a_message_is_read_as_what_was_written(made):
    assert message.parse(message.render(made)) == made


@given(messages())
def test_a_message_is_read_the_same_with_a_bom_and_crlf_in_its_headers(made):
    block, body = message.render(made).split(b"\n\n", 1)
    data = b"\xef\xbb\xbf" + block.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body
    assert message.parse(data) == made


@given(messages(), st.data())
def test_a_message_that_ends_in_its_headers_is_known_to_be_unfinished(made, data):
    whole = message.render(made)
    end = data.draw(st.integers(0, whole.index(b"\n\n") + 1))
    with pytest.raises(FormatError) as caught:
        message.parse(whole[:end])
    try:
        whole[:end].decode()
    except UnicodeDecodeError:
        return
    assert isinstance(caught.value, UnfinishedError)
    assert not message.is_whole(whole[:end])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = message.render(draw(messages()))
    pieces = st.sampled_from(
        [b"", b"\n", b"\n\n", b"\r", b"\r\n", b": ", b":", b" ", b"\0", b"\xff", b"\xef\xbb\xbf",
         b"to: a\n", b"id: x\n", b"\xe2\x80\xa8", b"\xc2\x85", b"priority: 1\n", b",", b"%", b"@"]
    ) | st.binary(max_size=3)  # fmt: skip
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 0, 1, 5, 50]))
        data = data[:start] + draw(pieces) + data[end:]
    return data


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    read_or_refuse(data)


@given(damaged())
def test_any_damaged_message_is_read_or_refused(data):
    read_or_refuse(data)


@pytest.mark.soak
@settings(max_examples=100_000)
@given(damaged())
def test_very_many_damaged_messages_are_read_or_refused(data):
    read_or_refuse(data)


@given(header_names | st.text(max_size=10), st.text(max_size=30))
def test_whatever_a_header_holds_it_is_read_back_or_not_written(name, value):
    if name in HEADERS:
        return
    made = Message({**HEADERS, name: value}, "body")
    try:
        data = message.render(made)
    except FormatError:
        return
    assert message.parse(data) == made


@pytest.mark.parametrize("break_", ["\n", "\r", "\r\n", "\0", "\v", "\f", "\x85", "\u2028", "\x1b"])
def test_a_header_that_would_carry_another_is_not_written(break_):
    with pytest.raises(FormatError, match="one line of plain text"):
        message.render(replace(QUEUED, headers={**HEADERS, "message": f"x{break_}to: evil"}))


@pytest.mark.parametrize("name", ["a\nto", "a: b", "a b", "", "a:", "é", "x" * 65, "\0"])
def test_a_name_that_is_none_is_not_written(name):
    with pytest.raises(FormatError, match="is no name of a header"):
        message.render(replace(QUEUED, headers={**HEADERS, name: "x"}))


@pytest.mark.parametrize("body", ["a\0", "\ud800"])
def test_a_body_that_is_no_text_is_not_written(body):
    with pytest.raises(FormatError, match=r"no text|not Unicode text"):
        message.render(replace(QUEUED, body=body))


@pytest.mark.parametrize(
    "data",
    [
        b"a: " + b"x" * 10_000_000,
        b"x" * 10_000_000,
        b"\n" * 10_000_000,
        b"a: b\r" * 2_000_000,
        message.render(QUEUED) + b"x" * 10_000_000,
    ],
    ids=["header", "line", "breaks", "returns", "body"],
)
def test_ten_megabytes_are_refused_unread(data):
    began = time.process_time()
    with pytest.raises(FormatError, match="at most 1,048,576 are read"):
        message.parse(data)
    assert time.process_time() - began < 0.1


def test_a_line_of_almost_a_megabyte_is_refused_by_the_size_of_the_headers():
    data = message.render(QUEUED).replace(b"hello", b"x" * 1_000_000, 1)
    with pytest.raises(FormatError, match="headers have more than 65,536 bytes"):
        message.parse(data)
    with pytest.raises(FormatError, match="headers have more than 65,536 bytes"):
        message.render(replace(QUEUED, headers={**HEADERS, "message": "x" * MAX_HEADER_BYTES}))


def test_the_largest_headers_and_the_largest_body_are_read_again():
    empty = len(message.render(QUEUED).partition(b"\n\n")[0]) + len("\nx: \n")
    headers = {**HEADERS, "x": "y" * (MAX_HEADER_BYTES - empty)}
    full = Message(headers, "z" * (MAX_BYTES - MAX_HEADER_BYTES - 1))
    data = message.render(full)
    assert len(data) == MAX_BYTES
    assert message.parse(data) == full
    with pytest.raises(FormatError, match="headers have more"):
        message.render(replace(full, headers={**headers, "x": headers["x"] + "y"}, body=""))
    with pytest.raises(FormatError, match="headers have more"):
        message.parse(data.replace(b"y\n", b"yy\n", 1).replace(b"z", b"", 1))
    with pytest.raises(FormatError, match="it has 1,048,577 bytes"):
        message.render(replace(full, body=full.body + "z"))


def test_more_headers_than_a_message_can_have_are_refused():
    many = {**HEADERS, **{f"x{n}": "y" for n in range(100)}}
    with pytest.raises(FormatError, match="more than 100 headers"):
        message.render(replace(QUEUED, headers=many))
    block = "".join(f"{name}: {value}\n" for name, value in many.items())
    with pytest.raises(FormatError, match="more than 100 headers"):
        message.parse(f"{block}\n".encode())


@pytest.mark.parametrize("name", message.REQUIRED)
def test_a_message_without_a_header_that_readers_need_is_refused(name):
    headers = {key: value for key, value in HEADERS.items() if key != name}
    with pytest.raises(FormatError, match=f"lacks the header '{name}'"):
        message.render(replace(QUEUED, headers=headers))


def test_a_message_goes_through_its_states_and_keeps_every_time():
    delivered = message.deliver(QUEUED, recipient="QA", at=AT + 1)
    accepted = message.accept(delivered, at=AT + 2)
    completed = message.complete(accepted, at=AT + 2.5)
    steps = [QUEUED, delivered, accepted, completed]
    assert [step.state for step in steps] == ["queued", "delivered", "accepted", "completed"]
    read = message.parse(message.render(completed))
    assert [read.time(name) for name in message.TIMES] == [AT, AT + 1, AT + 2, AT + 2.5]
    assert (read.recipient, read.recipients) == ("QA", ("cleaner", "QA"))
    assert QUEUED.time("enqueued_at") is None


def test_work_that_is_accepted_again_has_the_time_of_that():
    delivered = message.deliver(QUEUED, recipient="QA", at=AT)
    again = message.accept(message.accept(delivered, at=AT + 1), at=AT + 9)
    assert again.time("dequeued_at") == AT + 9


def test_a_completed_message_that_a_crash_left_without_a_time_is_completed():
    assert message.complete(QUEUED, at=AT).state == "completed"


def test_no_copy_is_made_for_who_is_not_among_the_recipients():
    with pytest.raises(NotAllowedError, match="not for 'architect'; it is for cleaner, QA"):
        message.deliver(QUEUED, recipient="architect", at=AT)


@pytest.mark.parametrize(
    "text", ["2026-06-15T14:05:31Z", "2026-06-15T14:05:31.123456789Z", "2026-06-15T14:05:31.5Z"]
)
def test_times_of_the_original_scripts_are_read(text):
    read = message.parse(message.render(replace(QUEUED, headers={**HEADERS, "created_at": text})))
    assert int(read.time("created_at") or 0) == AT
    assert read.headers["created_at"] == text


@given(artifact_lists)
def test_references_are_read_as_what_was_written(listed):
    assert references.parse(references.render(listed)) == tuple(listed)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a.py", "no reference"),
        ("a.py@sha256:" + "0" * 63, "no reference"),
        ("a.py@sha256:" + "A" * 64, "no reference"),
        ("a.py@md5:" + "0" * 32, "no reference"),
        ("%61.py@sha256:" + "0" * 64, "not how that reference is written: a.py@"),
        ("%FF@sha256:" + "0" * 64, "not how that reference is written"),
        ("..@sha256:" + "0" * 64, "no reference"),
        ("%2E%2E/x@sha256:" + "0" * 64, "no reference"),
        ("a/b/c@sha256:" + "0" * 64, "no reference"),
        ("a%0Ab@sha256:" + "0" * 64, "control characters"),
        (" ".join(["a@sha256:" + "0" * 64] * 2), "twice"),
        ("a@sha256:" + "0" * 64 + "  b@sha256:" + "0" * 64, "no reference"),
        (" ".join(f"a{n}@sha256:{'0' * 64}" for n in range(101)), "no reference|more than 100"),
    ],
)
def test_a_reference_that_is_none_is_refused_with_the_reason(value, reason):
    with pytest.raises(FormatError, match=reason):
        references.parse(value)


@given(st.floats(-1e9, 4e9))
def test_a_time_is_written_in_the_one_form_of_times(at):
    written = message.write_time(at)
    assert canonical_time(written) == written
    assert at - 0.002 < parse_time(written) <= at + 1e-6
