"""What people see can't be taken for commands by their terminal, and columns stand in line."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.cli import console
from tapstore.cli.progress import progress


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("two\nlines\r\tand a tab", r"two\nlines\r\tand a tab"),
        ("\x9b31m", r"\x9b31m"),
        ("evil\u202egnp.exe", r"evil\u202egnp.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("line\u2028separator", r"line\u2028separator"),
        ("lone \udc80 surrogate", r"lone \udc80 surrogate"),
        ("審查 número", "審查 número"),
        ("ideographic\u3000space", "ideographic\u3000space"),
    ],
)
def test_only_visible_characters_and_spaces_stay_as_they_are(text, shown):
    assert console.clean(text) == shown


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text):
    cleaned = console.clean(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cleaned)


def test_columns_stand_in_line_also_beside_wide_characters():
    lines = console.table(("role", "agent"), [("審查", "a"), ("coder", "b")])
    assert lines == ["role   agent", "審查   a", "coder  b"]


def test_columns_stand_in_line_also_beside_marks_that_take_no_space():
    # U+FE0F says how the heart is painted; it combines with nothing, and has no width either.
    _, first, second = console.table(("role", "agent"), [("\u2764\ufe0f", "a"), ("x", "b")])
    assert (first, second) == ("\u2764\ufe0f     a", "x     b")


def test_a_very_long_name_does_not_move_the_columns_of_others():
    _, first, second = console.table(("file", "why"), [("x" * 500, "a"), ("y", "b")])
    assert first == f"{'x' * 500}  a"
    assert len(second) < 80


def test_a_hostile_cell_cannot_move_the_columns():
    lines = console.table(("role", "agent"), [("a\nb", "\x1b[2J")])
    assert lines == [r"role  agent", r"a\nb  \x1b[2J"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0 s"), (4.4, "4 s"), (119, "119 s"), (180, "3 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_spans_are_about_right(seconds, shown):
    assert console.span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "?"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (3 * 10**12, "3.0 TB")],
)
def test_sizes_are_about_right(count, shown):
    assert console.size(count) == shown


@pytest.mark.parametrize("value", ["\udc80", {"path": "/tmp/\udcff"}])
def test_what_is_not_unicode_is_spelled_out_in_json(value):
    assert json.loads(console.json_line(value)) == value


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_transfer_shows_its_progress_on_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress("fetching \x1b[31m") as show:
        show(50_000_000, 100_000_000)
        show(40_000_000, 100_000_000)
        show(100_000_000, 100_000_000)
    assert "100%" in terminal.getvalue()
    assert r"fetching \x1b[31m" in terminal.getvalue()


def test_a_short_transfer_shows_none(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress("fetching") as show:
        show(5, 10)
        show(5, None)
    assert terminal.getvalue() == ""


def test_no_progress_is_shown_where_nobody_looks(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress("fetching") as show:
        assert show is None
