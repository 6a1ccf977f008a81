"""Views that lag, were tampered with, or are written by two at once."""

import json
from pathlib import Path

import msgspec
import pytest

import tapstore
from tapstore.errors import FormatError
from tapstore.sessions import history
from tapstore.sessions.view import ViewWarning


def lines(session):
    text = Path(session.store.local_path(".tap/session.log")).read_text()
    return [json.loads(line)["rev"] for line in text.splitlines()]


@pytest.fixture
def alone(tmp_path):
    """No lock around publishing."""
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], foreign=False) as session:
        yield session


def test_a_slower_writer_does_not_throw_away_the_log_lines_of_a_faster_one(alone):
    alone.set_phase("slow")
    slow = alone.state.peek()
    with tapstore.open(alone.store.root) as faster:
        for number in range(3):
            faster.set_phase(f"p{number}")
        assert lines(alone) == [1, 2, 3, 4, 5]
        alone.state._view.publish(slow, alone.state.log)
        assert lines(alone) == [1, 2, 3, 4, 5]
        faster.set_phase("last")
    assert lines(alone) == [1, 2, 3, 4, 5, 6]


def test_log_lines_of_another_session_are_replaced(alone):
    path = Path(alone.store.local_path(".tap/session.log"))
    path.write_text('{"rev": 99, "write_id": "of another"}\n')
    alone.set_phase("next")
    assert lines(alone) == [1, 2]


# What `verify` notices


@pytest.fixture
def logged(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], keep_revisions=2) as session:
        for number in range(9):
            session.set_phase(f"p{number}")
        yield session


def record(session, number):
    return next(Path(session.store.root).glob(f".tap/*/log/*/{number:012d}"))


def rewrite(path, change):
    data = msgspec.json.decode(path.read_bytes())
    change(data)
    path.write_bytes(msgspec.json.encode(data))


def faults(session):
    return list(history.verify(session.state.log))


def test_a_sound_log_has_no_faults(logged):
    assert faults(logged) == []


@pytest.mark.parametrize("number", [1, 5, 9])
def test_a_missing_record_is_noticed(logged, number):
    record(logged, number).unlink()
    assert faults(logged) == [f"log record {number} is missing; restore it from a backup"]


@pytest.mark.parametrize("number", [1, 5, 10])
def test_a_damaged_record_is_told_and_the_others_are_looked_at(logged, number):
    record(logged, number).write_bytes(b"{")
    (fault,) = faults(logged)
    assert f"{number:012d} is damaged" in fault


def test_a_changed_record_breaks_the_chain(logged):
    rewrite(record(logged, 5), lambda r: r["entry"].update(by="somebody else"))
    assert faults(logged) == ["log record 6 does not follow record 5: one of the two was replaced"]


@pytest.mark.parametrize("effect", [[["current_phase"], "forged"], [["no", "such"], 1]], ids=str)
def test_effects_that_do_not_make_the_newest_content_are_noticed(logged, effect):
    """Nobody names the hash of the newest record, but its content has to come out."""
    rewrite(record(logged, 10), lambda r: r["entry"]["effects"].append(effect))
    (fault,) = faults(logged)
    assert fault.startswith("log record 10: its effects do not")


def test_a_missing_newest_content_is_noticed(logged):
    for path in Path(logged.store.root).glob(".tap/*/revisions/000000000010-*"):
        path.unlink()
    assert faults(logged) == ["the content of the newest revision 10 is missing"]


def test_a_changed_content_is_noticed(logged):
    (path,) = Path(logged.store.root).glob(".tap/*/revisions/000000000009-*")
    path.write_bytes(path.read_bytes().replace(b"p7", b"p0"))
    (fault,) = faults(logged)
    assert "does not match the hash" in fault


@pytest.mark.parametrize(
    "content", [b"nonsense", b"[]", b"[" * 100_000, b'{"artifacts": [5]}', b'{"tapstore": 5}'],
)  # fmt: skip
def test_a_forged_content_is_an_error_and_a_finding(logged, content):
    """Who can write there can make its hash fit."""
    log = logged.state.log
    log.commit(log.head(), "forged", content, {"at": "2026-01-01T00:00:00Z", "effects": []})
    with pytest.raises(FormatError, match="revision 11 is damaged"):
        _ = tapstore.open(logged.store.root).phase
    assert len(faults(logged)) == 1


@pytest.mark.parametrize("effects", [5, [5], [[]], [[["no", "such"], 1]], [[["participants", 9]]]])
def test_a_revision_whose_effects_were_forged_can_not_be_made_again(logged, effects):
    rewrite(record(logged, 3), lambda r: r["entry"].update(effects=effects))
    with pytest.raises(FormatError, match="log record 3: its effects do not fit"):
        history.document_at(logged.state.log, 4)
    assert any("log record 3: its effects do not fit" in fault for fault in faults(logged))


# A Tapfile that cannot be read


def lead_out(path):
    path.unlink()
    path.symlink_to("/etc/hostname")


def be_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [lead_out, be_a_folder])
def test_a_tapfile_that_can_not_be_read_stops_neither_readers_nor_writers(logged, spoil):
    spoil(Path(logged.store.local_path(".tap")) / "Tapfile")
    with pytest.warns(ViewWarning, match="can neither be read nor published"):
        assert logged.phase == "p8"
    with tapstore.open(logged.store.root) as other:
        with pytest.warns(ViewWarning):
            other.set_phase("next")
        assert other.state.peek().tapfile.current_phase == "next"
