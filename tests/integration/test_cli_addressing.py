"""Which session a command is about, and who asks."""

import re

import pytest

from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A new folder, and the present one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def session(here):
    """A session in the present folder."""
    ok("init", "--id", "s", "-r", "coder", "-r", "reviewer")
    return here


# Where


def test_a_session_is_made_in_the_present_folder(here):
    ok("init", "-r", "coder")
    assert (here / ".tap" / "Tapfile").is_file()


def test_a_session_is_found_from_a_folder_below(session, monkeypatch):
    below = session / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert ok("status", "--json").json["session_id"] == "s"


def test_the_option_is_taken_before_the_subcommand(session, monkeypatch):
    monkeypatch.chdir("/")
    assert ok("-w", str(session), "status", "--json").json["session_id"] == "s"


def test_the_option_is_taken_after_the_subcommand(session, monkeypatch):
    monkeypatch.chdir("/")
    assert ok("status", "-w", f"file://{session}", "--json").json["session_id"] == "s"


def test_the_environment_names_a_session(session, monkeypatch):
    monkeypatch.chdir("/")
    assert ok("status", "--json", env={"TAPSTORE_URL": str(session)}).json["session_id"] == "s"


def test_the_option_wins_over_the_environment(session):
    called = ok("-w", str(session), "status", "--json", env={"TAPSTORE_URL": "/nowhere"})
    assert called.json["session_id"] == "s"


def test_the_environment_wins_over_the_present_folder(session):
    assert call("status", env={"TAPSTORE_URL": str(session / "other")}).status == 6


@pytest.mark.usefixtures("session")
def test_an_empty_variable_names_nothing():
    assert ok("status", "--json", env={"TAPSTORE_URL": ""}).json["session_id"] == "s"


# Who


@pytest.mark.usefixtures("session")
def test_an_agent_is_named_by_the_environment():
    called = ok("claim", "coder", "--json", env={"TAPSTORE_AGENT": "c9"})
    assert called.json["agent"] == "c9"


@pytest.mark.usefixtures("session")
def test_an_agent_without_a_name_is_the_user_at_this_host():
    called = ok("claim", "coder", "--json", env={"LOGNAME": "ada"})
    assert re.fullmatch(r"ada@\S+", called.json["agent"])


# Where there is none


def test_no_session_at_all_is_not_found_and_says_how_to_make_one():
    called = call("status")
    assert called.status == 6
    assert "`tapstore init" in called.err


def test_a_package_that_is_missing_is_named():
    called = call("status", "-w", "nothing-like-it://bucket/x")
    assert called.status in (2, 10)
    assert "nothing-like-it" in called.err


def test_a_place_that_fails_is_told_from_a_session_that_is_not_there(here):
    (here / "file").write_text("")
    called = call("status", "-w", str(here / "file"))
    assert called.status in (6, 9)
