"""Edits by name and in an editor; what is refused keeps its text."""

import re
import sys
from pathlib import Path

import pytest

from tapstore.errors import OutcomeUnknownError
from tapstore.sessions.logged import LoggedRevisions
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "-r", "coder", "--set", 'notes={"a": 1, "b": [1, 2]}')
    return tmp_path


@pytest.fixture
def document(session):
    """Reads the Tapfile as any program would."""
    import yaml

    return lambda: yaml.safe_load((session / ".tap" / "Tapfile").read_text())


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--set", "notes.a=2"], "notes.a", 2),
        (["--set", "notes.c.d=deep"], "notes.c.d", "deep"),
        (["--set", "notes.b.1=9"], "notes.b.1", 9),
        (["--set", "notes.b=[true, null]"], "notes.b", [True, None]),
        (["--append", "notes.b=3"], "notes.b", [1, 2, 3]),
        (["--append", "fresh=x"], "fresh", ["x"]),
        (["--unset", "notes.a"], "notes.a", None),
        (["--set", '"dotted.key"=1'], "dotted.key", 1),
        (["--set", "participants.coder#2.agent_id=no"], "participants.1.agent_id", "no"),
        (["--set", "participants.coder.agent_id=1.10"], "participants.0.agent_id", "1.10"),
        (["--set", "current_phase=2"], "current_phase", "2"),
    ],
)
def test_a_field_is_changed(document, arguments, field, value):
    ok("edit", *arguments)
    at = document()
    if field in at:
        at = at[field]
    else:
        for step in field.split("."):
            at = at[int(step)] if isinstance(at, list) else at.get(step)
    assert at == value


def test_a_participant_is_added(document):
    ok("edit", "--append", 'participants={"role": "tester", "status": "pending"}')
    assert document()["participants"][2]["role"] == "tester"


def test_an_artifact_is_addressed_by_its_name(document):
    ok("publish", "-", "--as", "a.py")
    ok("edit", "--set", 'artifacts."a.py".type=code')
    assert document()["artifacts"][0]["type"] == "code"


def test_several_changes_are_one_commit():
    ok("edit", "--set", "x=1", "--set", "y=2", "--unset", "notes")
    assert len(ok("log", "--json").jsons) == 2


def test_a_refused_change_leaves_the_others_undone(document):
    before = document()
    assert call("edit", "--set", "x=1", "--set", "session_id=other").status == 3
    assert document() == before


def test_changes_are_shown_with_what_was_there_before():
    assert ok("edit", "--set", "notes.a=2", "--append", "notes.b=3").out == (
        "notes.a: 1 -> 2\nnotes.b: appended 3\n"
    )


def test_nothing_changed_is_said():
    assert ok("edit", "--set", "notes.a=1").out == "nothing changed\n"


# In an editor


@pytest.fixture
def editor(session, monkeypatch):
    """Makes an editor of a Python expression over `text`; `session` is where it stands."""

    def use(expression: str, *, status: int = 0, visual: bool = False) -> None:
        program = session / "editor with a space.py"
        program.write_text(
            "import pathlib, re, sys\n"
            "path = pathlib.Path(sys.argv[1])\n"
            "text = path.read_text()\n"
            f"path.write_text({expression})\n"
            f"sys.exit({status})\n"
        )
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("VISUAL" if visual else "EDITOR", f"{sys.executable} '{program}'")

    monkeypatch.setenv("TMPDIR", str(session))
    monkeypatch.setattr("tempfile.tempdir", None)
    return use


def kept(session):
    return list(session.glob("tapstore-edit-*.yaml"))


@pytest.mark.parametrize("visual", [False, True])
def test_what_the_editor_leaves_is_applied(session, editor, document, visual):
    editor("text.replace('a: 1', 'a: 7')", visual=visual)
    ok("edit")
    assert document()["notes"]["a"] == 7
    assert kept(session) == []


def test_leaving_the_text_as_it_is_changes_nothing(session, editor):
    editor("text")
    assert ok("edit").out == "nothing changed\n"
    assert kept(session) == []


def test_an_editor_that_fails_changes_nothing(session, editor):
    editor("text.replace('a: 1', 'a: 7')", status=3)
    called = call("edit")
    assert called.status == 1
    assert "exited with 3; nothing was changed" in called.err
    assert kept(session) == []


@pytest.mark.parametrize(
    ("expression", "status", "says"),
    [
        ("'{'", 7, "line 1"),
        ("text.replace('session_id: s', 'session_id: other')", 3, "session_id of a session never"),
        ("text.replace('status: pending', 'status: 5', 1)", 7, "status"),
        ("text.replace('- role: coder', '- role: tester', 1)", 3, "can't remove participants"),
    ],
)
def test_what_is_refused_keeps_its_text_and_names_it(session, editor, expression, status, says):
    editor(expression)
    called = call("edit")
    assert called.status == status
    assert says in called.err
    (path,) = kept(session)
    assert f"nothing was changed; your text is kept in {path}" in called.err


def test_of_an_edit_in_doubt_it_is_not_said_that_nothing_was_changed(session, editor, monkeypatch):
    def unknown(*_):
        raise OutcomeUnknownError("the place never said")

    editor("text.replace('a: 1', 'a: 7')")
    monkeypatch.setattr(LoggedRevisions, "commit", unknown)
    called = call("edit")
    assert called.status == 8
    assert "nothing was changed" not in called.err
    (path,) = kept(session)
    assert f"your text is kept in {path}" in called.err


def test_what_another_commit_changed_meanwhile_is_not_overwritten(session, editor, document):
    editor("text.replace('a: 1', 'a: 7')")
    program = session / "editor with a space.py"
    program.write_text(
        program.read_text().replace(
            "sys.exit(0)",
            f"sys.path.insert(0, {str(Path.cwd())!r})\n"
            "from tapstore.cli.app import run\n"
            "sys.exit(run(['edit', '--set', 'notes.a=5']))",
        )
    )
    called = call("edit")
    assert called.status in (3, 4)
    assert document()["notes"]["a"] == 5


def test_what_another_commit_changed_elsewhere_is_kept(session, editor, document):
    editor("text.replace('a: 1', 'a: 7')")
    program = session / "editor with a space.py"
    program.write_text(
        program.read_text().replace(
            "sys.exit(0)",
            "from tapstore.cli.app import run\nsys.exit(run(['edit', '--set', 'other=5']))",
        )
    )
    ok("edit")
    assert (document()["notes"]["a"], document()["other"]) == (7, 5)


def test_an_editor_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("VISUAL", "no-such-editor")
    called = call("edit")
    assert called.status == 6
    assert re.search("the editor 'no-such-editor' is not there: set EDITOR", called.err)
