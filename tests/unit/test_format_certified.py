from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tapstore.tapfile import format

DOCUMENT = {
    "version": "1.0",
    "session_id": "s",
    "participants": [],
    "current_phase": "",
    "artifacts": [],
    "tapstore": {"rev": 7, "write_id": "ab12", "incarnation": "i", "at": "t"},
}
VIEW = format.render(DOCUMENT)


def test_a_rendered_view_is_certified_for_its_revision():
    assert format.certified(VIEW) == (7, "ab12")


@given(
    start=st.integers(0, len(VIEW)),
    length=st.integers(0, 20),
    replacement=st.binary(max_size=20) | st.sampled_from([b"7", b"8", b"\n", b" ", b"# x\n"]),
)
def test_any_edit_ends_it(start, length, replacement):
    edited = VIEW[:start] + replacement + VIEW[start + length :]
    assert format.certified(edited) == ((7, "ab12") if edited == VIEW else None)


def test_a_change_of_any_single_byte_ends_it():
    for position, byte in enumerate(VIEW):
        changed = VIEW[:position] + bytes([byte ^ 1]) + VIEW[position + 1 :]
        assert format.certified(changed) is None, position


def test_a_view_that_was_cut_off_anywhere_is_not_certified():
    for length in range(len(VIEW)):
        assert format.certified(VIEW[:length]) is None, length


def test_what_is_added_after_the_trailer_ends_it():
    assert format.certified(VIEW + b"x: 1\n") is None


def test_a_trailer_taken_over_into_another_document_is_not_believed():
    other = format.render({**DOCUMENT, "session_id": "t"})
    body, trailer = other.rsplit(b"# tapstore:", 1)[0], VIEW.rsplit(b"# tapstore:", 1)[1]
    assert format.certified(body + b"# tapstore:" + trailer) is None


def test_a_plain_rewrite_drops_the_trailer_and_parses_as_the_same():
    rewritten = yaml.safe_dump(yaml.safe_load(VIEW)).encode()
    assert format.certified(rewritten) is None
    assert format.parse(rewritten) == DOCUMENT


def test_json_is_never_certified_but_renders_to_the_same_bytes():
    data = format.render(DOCUMENT, fmt="json")
    assert format.certified(data) is None
    assert format.render(format.parse(data), fmt="json") == data


@pytest.mark.parametrize(
    "stamp", [None, {}, {"rev": 1}, {"rev": "1", "write_id": "a"}, {"rev": 1, "write_id": "a b"}]
)
def test_a_document_without_a_usable_stamp_has_no_trailer(stamp):
    data = format.render({**DOCUMENT, "tapstore": stamp})
    assert format.certified(data) is None
    assert format.parse(data)["tapstore"] == stamp


def test_rendering_and_certifying_never_import_yaml():
    # It would be most of what a short command spends on starting.
    code = (
        "import sys; from tapstore.tapfile import format;"
        f"assert format.certified(format.render({DOCUMENT!r})) == (7, 'ab12');"
        "assert 'yaml' not in sys.modules and 'jsonschema_rs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
