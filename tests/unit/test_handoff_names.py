from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapstore.errors import InvalidKeyError
from tapstore.handoffs import names
from tapstore.handoffs.names import MAX_NAME_BYTES, MAX_SEQUENCE, HandoffName, Stamp, next_stamp
from tapstore.keys import check_key
from tests.unit.handoff_values import handoff_names, roles, stamps


@given(handoff_names)
def test_a_name_is_read_as_what_was_written(name):
    assert names.parse(str(name)) == name
    assert str(names.parse(str(name))) == str(name)


@given(handoff_names)
def test_a_name_is_a_portable_key_with_room_for_what_queues_append(name):
    assert check_key(f"handoffs/coder/inbox/new/{name}")
    assert len(str(name).encode()) <= MAX_NAME_BYTES
    assert names.is_name(str(name))


@given(handoff_names, handoff_names)
def test_the_order_of_names_is_that_of_priority_time_and_sequence(one, other):
    first = (one.priority, one.stamp.at, one.stamp.sequence)
    second = (other.priority, other.stamp.at, other.stamp.sequence)
    if first != second:
        assert (str(one) < str(other)) == (first < second)
        # A listing sorts by bytes, Python by code points.
        assert (str(one).encode() < str(other).encode()) == (first < second)
    assert (one < other) == (str(one) < str(other))


def test_names_compare_as_a_listing_sorts_them():
    one, other = (names.name_for(50, Stamp(0, 1), sender, ["x"]) for sender in ("a-b", "a"))
    assert sorted([other, one]) == [one, other]
    assert sorted([str(other), str(one)]) == [str(one), str(other)]


@given(stamps, roles)
def test_an_id_is_read_as_what_was_written(stamp, sender):
    assert names.parse_id(names.render_id(stamp, sender)) == (stamp, sender)


@given(st.one_of(st.text(max_size=60), st.from_regex(r"\d\d_\d{8}T\d{6}Z_\d{6}_from_.*")))
@example("00_20260615T140531Z_000042_from_a_to_b\n.handoff")
def test_any_text_is_a_name_or_refused(text):
    for parse in (names.parse, names.parse_id):
        try:
            parsed = parse(text)
        except InvalidKeyError:
            continue
        if isinstance(parsed, HandoffName):
            assert str(parsed) == text
        else:
            assert names.render_id(*parsed) == text


@given(st.lists(st.floats(0, 1e9) | st.integers(5, 6), min_size=2, max_size=20), stamps)
def test_stamps_of_one_sender_rise_whatever_the_clock_does(times, last):
    for now in times:
        following = next_stamp(last, now)
        assert following > last
        assert str(following) > str(last)
        last = following


def test_after_the_last_sequence_number_names_stay_in_order_and_no_id_returns():
    last = Stamp(1_000_000, MAX_SEQUENCE)
    following = next_stamp(last, 1_000_000.9)
    assert following == Stamp(1_000_001, 1)
    before, after = (names.name_for(50, stamp, "a", ["b"]) for stamp in (last, following))
    assert str(before) < str(after)
    assert next_stamp(following, 1_000_000) == Stamp(1_000_001, 2)


def test_a_sequence_number_of_seven_digits_cannot_be_made():
    with pytest.raises(InvalidKeyError, match="next_stamp"):
        Stamp(0, MAX_SEQUENCE + 1)


def test_recipients_that_have_no_room_become_a_number():
    many = [f"a-role-of-thirty-characters-{n:03}" for n in range(200)]
    name = names.name_for(50, Stamp(0, 1), "s" * 60, many)
    assert name.recipients == tuple(many[:2])
    assert name.more == 198
    assert str(name).endswith("-001_+198.handoff")
    assert names.parse(str(name)) == name


def test_all_recipients_are_in_the_name_as_long_as_they_have_room():
    fitting = ["b" * 60, "c" * 60, "d" * 13]
    name = names.name_for(50, Stamp(0, 1), "a", fitting)
    assert (len(str(name)), name.more) == (MAX_NAME_BYTES, 0)
    assert names.name_for(50, Stamp(0, 1), "a", [*fitting[:2], "d" * 14]).more == 1


def test_the_number_of_the_others_has_room_too():
    fitting = ["b" * 60, "c" * 60, "d" * 13]
    assert names.name_for(50, Stamp(0, 1), "a", [*fitting, "e"]).more == 2


@pytest.mark.parametrize("role", ["coder", "QA", "code-reviewer-2", "v1.2", "审查", "a" * 60])
def test_a_role_that_a_name_can_hold_is_taken(role):
    assert names.check_role(role) == role


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        ("code_reviewer", "use '-' instead"),
        ("a,b", "','"),
        ("a/b", "'/'"),
        ("a b", "a space"),
        ("a\u3000b", "control characters"),
        ("..", "begins with '.'"),
        ("-rf", "begins with '-'"),
        ("+3", r"begins with '\+'"),
        ("a\nid: x", "control characters"),
        ("a\0", "control characters"),
        ("", "is empty"),
        ("a" * 61, "longer than 60 bytes"),
        ("é" * 31, "longer than 60 bytes"),
        ("a\\b", "not portable"),
        ("a:b", "not portable"),
        ("nul", "reserved name"),
        ("a.", "Windows drops"),
        ("e\u0301", "normal form"),
        ("\ud800", "control characters"),
    ],
)
def test_a_role_that_a_name_cannot_hold_is_refused_with_the_reason(role, reason):
    with pytest.raises(InvalidKeyError, match=reason):
        names.check_role(role)


@pytest.mark.parametrize("priority", [-1, 100])
def test_a_priority_without_two_digits_is_refused(priority):
    with pytest.raises(InvalidKeyError, match="not from 0 to 99"):
        names.name_for(priority, Stamp(0, 1), "a", ["b"])


def test_files_beside_messages_are_no_messages():
    assert names.is_name("anything.handoff")
    for other in (".headers.1.handoff", "x.handoff.tmp", "x.handoff.error", "sequence"):
        assert not names.is_name(other)
