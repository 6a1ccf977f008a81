"""Hostile and mistaken input: refused with a reason, before anything was changed."""

from pathlib import Path

import pytest

import tapstore
from tapstore.artifacts.model import Artifact
from tapstore.sessions import config, history
from tapstore.sessions.claim import ClaimNotEndedWarning
from tapstore.tapfile import format


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


LONG = "审查员" * 8


def test_an_agent_whose_heartbeats_could_not_be_stored_gets_no_claim(session):
    with pytest.raises(tapstore.InvalidKeyError, match="too long"):
        session.claim("coder", agent=LONG)
    assert session.tapfile.slots("coder")[0].status == "pending"
    assert session.judge() == []


@pytest.mark.parametrize("role", ["reviewer#2", LONG])
def test_a_role_that_would_be_taken_for_a_slot_or_has_no_inbox_is_refused(tmp_path, role):
    with pytest.raises(tapstore.InvalidKeyError):
        tapstore.create(str(tmp_path / "t"), roles={"reviewer": 2, role: 1})
    with pytest.raises(tapstore.SessionNotFoundError):
        tapstore.open(str(tmp_path / "t"))


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", ".tap/session", "artifacts"])
def test_an_artifact_made_by_hand_can_not_leave_the_session(session, path):
    with session.claim("coder", agent="a") as claim:
        with pytest.raises(tapstore.InvalidKeyError):
            claim.complete(publish=[Artifact(name="x", path=path)])
        claim.complete()
    assert session.tapfile.artifacts == ()


class Anything:
    pass


def nest(document):
    document["x"] = inner = []
    for _ in range(5000):
        inner.append([])
        inner = inner[0]


NO_TAPFILES = {
    "a key that is no text": lambda d: d.update({1: 2}),
    "a value that is no data": lambda d: d.update(x=Anything()),
    "a lone surrogate in a key": lambda d: d.update({"\ud800": 1}),
    "participants that are text": lambda d: d.update(participants="abc"),
    "a participant that is text": lambda d: d.update(participants=["a"]),
    "a participant without a role": lambda d: d["participants"].append({"status": "pending"}),
    "an artifact without anything": lambda d: d.update(artifacts=[{}]),
    "an artifact that is text": lambda d: d.update(artifacts=["x"]),
    "metadata that are a list": lambda d: d["artifacts"].append(
        {"name": "x", "path": "x", "metadata": [1]}
    ),
    "consumers that are text": lambda d: d["artifacts"].append(
        {"name": "x", "path": "x", "consumer": "reviewer"}
    ),
    "phases that are text": lambda d: d.update(phases="start"),
    "a status that there is not": lambda d: d["participants"][0].update(status=7),
    "a time that is none": lambda d: d["participants"][0].update(heartbeat=5),
    "no phase": lambda d: d.pop("current_phase"),
    "nothing": lambda d: d.clear(),
    "itself": lambda d: d.update(x=d),
    "too deep": nest,
}


@pytest.mark.parametrize("change", NO_TAPFILES.values(), ids=NO_TAPFILES)
def test_an_edit_that_makes_no_tapfile_is_refused_before_it_is_compared(session, change):
    with pytest.raises(tapstore.FormatError):
        session.edit(change)
    assert session.state.peek().rev == 1


def test_a_second_creation_does_not_change_the_rules_of_the_session(tmp_path):
    url = str(tmp_path / "t")
    limit, other = (b'{"properties": {"budget": {"maximum": %d}}}' % n for n in (10, 1000))
    tapstore.create(url, roles=["coder"], schema=limit).close()
    with pytest.raises(tapstore.AlreadyExistsError):
        tapstore.create(url, roles=["coder"], schema=other)
    with tapstore.open(url) as session, pytest.raises(tapstore.FormatError, match="budget"):
        session.edit(lambda d: d.update(budget=11))


@pytest.mark.parametrize(
    "options",
    [
        {"claim_ttl": "5"},
        {"claim_ttl": float("nan")},
        {"claim_ttl": 0},
        {"claim_ttl": 8 * 86400},
        {"tapfile_format": "toml"},
        {"keep_revisions": 0},
        {"keep_revisions": "5"},
        {"max_attempts": -1},
    ],
    ids=str,
)
def test_options_that_nobody_could_work_with_make_no_session(tmp_path, options):
    with pytest.raises(tapstore.NotAllowedError):
        tapstore.create(str(tmp_path / "t"), roles=["coder"], **options)
    assert not (tmp_path / "t" / ".tap" / "session").exists()


@pytest.mark.parametrize("field", ["participants", "session_id", "tapstore", "phases"])
def test_a_further_field_can_not_replace_one_of_the_tapfile(tmp_path, field):
    with pytest.raises(tapstore.NotAllowedError, match=field):
        tapstore.create(str(tmp_path / "t"), roles=["coder"], fields={field: []})


@pytest.mark.parametrize("options", [{"roles": "coder"}, {"phases": "done"}], ids=str)
def test_a_single_text_is_not_taken_for_a_list_of_letters(tmp_path, options):
    with pytest.raises(TypeError, match="a list of names"):
        tapstore.create(str(tmp_path / "t"), **options)


@pytest.mark.parametrize("source", [b"1", "https://example.org/x"], ids=["bytes", "uri"])
def test_a_single_consumer_is_not_taken_for_a_list_of_letters(session, source):
    with pytest.raises(TypeError, match="a list of names"):
        session.publish("x", source, consumers="reviewer")


@pytest.mark.parametrize("both_look_first", [False, True])
def test_a_creation_that_comes_second_leaves_nothing(session, monkeypatch, both_look_first):
    def files():
        return [info.key for info in session.store.list(".tap/")]

    before = files()
    if both_look_first:
        monkeypatch.setattr(config, "refuse_second", lambda _: None)
    with pytest.raises(tapstore.AlreadyExistsError, match="there is a session"):
        tapstore.create(session.store.root, roles=["x"], schema=b"{}")
    assert files() == before


@pytest.mark.parametrize("reason", [5, None, b"x", ["x"], "\ud800"], ids=ascii)
def test_a_reason_that_is_no_text_does_not_damage_the_log(session, reason):
    with pytest.raises(tapstore.FormatError):
        session.set_phase("next", reason=reason)
    session.set_phase("later")
    assert list(history.verify(session.state.log)) == []
    assert list(session.state.log.strays(session.state.peek().head)) == []


@pytest.mark.parametrize("message", ["no file 'bad\udcff'", "x" * 5_000_000], ids=["bytes", "long"])
def test_an_error_whose_message_can_not_be_kept_as_it_is_fails_the_claim_all_the_same(
    session, message
):
    with pytest.raises(RuntimeError), session.claim("coder", agent="a"):
        raise RuntimeError(message)
    coder = session.tapfile.slots("coder")[0]
    assert coder.status == "failed"
    assert len(coder.reason) < 5000
    assert coder.reason.startswith(f"RuntimeError: {message[:10]}")


@pytest.mark.filterwarnings("error")
def test_a_claim_is_released_also_where_the_warning_about_it_is_an_error(session):
    with pytest.raises(ClaimNotEndedWarning), session.claim("coder", agent="a"):
        pass
    assert session.tapfile.slots("coder")[0].status == "pending"


@pytest.mark.parametrize(
    ("tapfile_format", "text"),
    [("yaml", "x" * 4_200_000), ("json", "x" * 4_200_000), ("yaml", "\x7f" * 1_100_000)],
    ids=["yaml", "json", "yaml-escaped"],
)
def test_a_tapfile_never_grows_beyond_what_is_read(tmp_path, tapfile_format, text):
    with tapstore.create(
        str(tmp_path / "t"), roles=["coder"], tapfile_format=tapfile_format
    ) as session:
        with pytest.raises(tapstore.FormatError, match="belong into artifacts"):
            session.publish("x", b"1", metadata={"text": text})
        assert session.state.peek().rev == 1


def test_a_tapfile_that_is_just_not_too_large_is_read_back(session):
    session.publish("x", b"1", metadata={"text": "\x7f" * 1_040_000})
    data = Path(session.store.local_path(".tap/Tapfile")).read_bytes()
    assert format.parse(data) == session.state.peek().document


def test_a_session_is_not_made_with_a_tapfile_beyond_what_is_read(tmp_path):
    with pytest.raises(tapstore.FormatError, match="belong into artifacts"):
        tapstore.create(str(tmp_path / "t"), roles=["coder"], fields={"x": "y" * 5_000_000})


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"format": 1', '"format": 2', "upgrade"),
        ('"incarnation": "', '"incarnation": "../', "letters and digits"),
        ('"format": 1', '"format": "1"', "damaged"),
    ],
)
def test_a_session_file_that_leads_astray_is_refused(session, old, new, match):
    path = Path(session.store.local_path(".tap/session"))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(tapstore.FormatError, match=match):
        tapstore.open(session.store.root)


@pytest.mark.parametrize(
    ("text", "data"),
    [(b"", None), (b"go!\n", "go!\n"), (b"\xff", "\\xff"), (b"[1]", "[1]"), (b"{}", None)],
)
def test_a_signal_that_a_plain_program_gives_by_making_the_file_counts(session, text, data):
    session.store.put(".tap/signals/go", text)
    session.wait_for(signal="go", timeout=0)
    assert session.read_signal("go")["data"] == data


@pytest.mark.parametrize(
    "data",
    [Anything(), float("nan"), {1: 2}, "\ud800", b"x", {1, 2}],
    ids=lambda data: type(data).__name__,
)
def test_a_signal_with_what_can_not_be_kept_is_not_given(session, data):
    with pytest.raises(tapstore.FormatError):
        session.signal("go", data)
    assert session.signals() == []
