"""Attempts to break commits under compare-and-set that once succeeded."""

import os

import msgspec
import pytest

import tapstore
from tapstore.errors import FormatError, OutcomeUnknownError, SessionNotFoundError
from tapstore.segments import Segments
from tapstore.sessions import config as configs
from tapstore.sessions import direct, history
from tapstore.sessions.logwriter import LogWriter
from tapstore.stores.memory import MemoryStore
from tapstore.tapfile import format
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost
from tapstore.types import OVERWRITE

TAPFILE = configs.TAPFILE_KEY


@pytest.fixture(autouse=True)
def behind(monkeypatch):
    """The log is written when the test says so."""
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)


@pytest.fixture
def place():
    store = MemoryStore()
    with tapstore.create(store, roles=["coder"], phase="one", tapfile_format="json") as session:
        session.set_phase("two")
    return store


@pytest.fixture
def half_made():
    """A session whose creator died before the Tapfile."""
    return die_before(TAPFILE, MemoryStore())


def die_before(key, store):
    with pytest.raises(SimulatedCrash):
        tapstore.create(
            FaultyStore(store, Fault("put", key, before=crash)), roles=["coder"], phase="one"
        )
    return store


def stopped_before_the_tapfile(store, meanwhile):
    """A session opened by one who is stopped before the first Tapfile, and goes on after."""
    return tapstore.open(FaultyStore(store, Fault("put", TAPFILE, before=lambda _: meanwhile())))


def forge(store, change):
    """Change the Tapfile, and make its hash fit."""
    document, logged, records = direct._split(store.get(TAPFILE).data)
    change(document)
    content = format.render_again(document, fmt="json")
    record = msgspec.json.decode(records[-1])
    record |= {"content": direct.sha256(content), "size": len(content)}
    records = (*records[:-1], msgspec.json.encode(record))
    store.put(TAPFILE, direct._joined(document, logged, records, "json"), OVERWRITE)


# Half-made, deleted, made again


def test_one_who_was_stopped_does_not_take_the_tapfile_of_the_next_session_for_a_ghost(half_made):
    def made_anew():
        for info in list(half_made.list("")):
            half_made.delete(info.key)
        tapstore.create(half_made, roles=["coder"], phase="new").set_phase("precious")

    stopped = stopped_before_the_tapfile(half_made, made_anew)
    with pytest.raises(SessionNotFoundError, match="another one"):
        _ = stopped.phase
    assert tapstore.open(half_made).phase == "precious"


def test_one_who_was_stopped_commits_nothing_beside_the_next_session(half_made):
    def half_made_anew():
        for info in list(half_made.list("")):
            half_made.delete(info.key)
        die_before(TAPFILE, half_made)

    stopped = stopped_before_the_tapfile(half_made, half_made_anew)
    with pytest.raises(SessionNotFoundError, match="another one"):
        stopped.set_phase("lost")
    assert [entry.rev for entry in tapstore.open(half_made).log()] == [1]


def test_one_who_was_stopped_builds_nothing_on_a_first_revision_that_comes_back(half_made):
    def gone_on():
        with tapstore.open(half_made) as other:
            other.set_phase("two")
            other.set_phase("three")
        half_made.delete(TAPFILE)

    stopped = stopped_before_the_tapfile(half_made, gone_on)
    with pytest.raises(FormatError, match="restore the newest Tapfile"):
        stopped.set_phase("four")


def test_two_who_find_the_ghost_of_a_deleted_session_at_once_make_one_of_it(place):
    ghost = place.get(TAPFILE).data
    for info in list(place.list("")):
        place.delete(info.key)
    place.put(TAPFILE, ghost)
    die_before(TAPFILE, place)

    def faster(_):
        tapstore.open(place).set_phase("next")

    late = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, nth=2, before=faster)))
    assert late.phase == "next"


def test_a_session_that_could_not_be_read_back_is_not_made():
    store = MemoryStore()
    with pytest.raises(FormatError, match="artifacts"):
        tapstore.create(store, fields={"big": "x" * (3 << 20)})
    assert list(store.list("")) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_logs_the_first_revision_before_it_commits_on_top():
    store = die_before("*/log/*", MemoryStore())
    session = tapstore.open(store)
    assert session.phase == "one"
    child = os.fork()
    if child == 0:
        session.set_phase("two")
        logged = [info.key[-12:] for info in store.list(f"{session.config.prefix}/log/")]
        os._exit(0 if logged == ["000000000001"] else 1)
    assert os.waitpid(child, 0)[1] == 0


# Threads


def test_a_record_is_looked_up_while_another_thread_loads_a_segment(place):
    session = tapstore.open(place)
    session.set_phase("three")
    session.state.flush()
    session.set_phase("four")
    session.state.flush()
    segments = Segments(place, session.config.prefix)

    class Switching(tuple):
        """The other thread runs just when this one looks here."""

        __slots__ = ()

        def __len__(self):
            segments._load(1)
            return 1

    segments._cache[2] = Switching(segments._load(2))
    segments._load(3)
    assert segments.at(4).n == 4


def test_a_commit_stands_though_no_thread_can_be_started(place, monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(LogWriter, "_start", refused)
    session = tapstore.open(place)
    assert session.phase == "two"
    session.set_phase("three")
    session.close()
    assert [entry.rev for entry in tapstore.open(place).log()] == [1, 2, 3]


# Hostile bytes


@pytest.mark.parametrize(
    "data",
    [
        b'{"tapstore": {"records": ' + b"[" * 100_000,
        b'{"tapstore": {"rev": 1, "logged": 0, "records": ["{\\"entry\\": {\\"a\\": '
        + b"[" * 100_000
        + b'"]}}',
    ],
)
def test_a_tapfile_that_is_nested_too_deep_is_an_error(place, data):
    place.put(TAPFILE, data, OVERWRITE)
    with pytest.raises(FormatError, match="damaged"):
        _ = tapstore.open(place).phase


@pytest.mark.parametrize("artifacts", [["x"], [1], [[]], "x", {"a": 1}])
def test_a_forged_tapfile_with_values_of_wrong_types_is_an_error(place, artifacts):
    forge(place, lambda document: document.update(artifacts=artifacts))
    with pytest.raises(FormatError, match="Tapfile"):
        _ = tapstore.open(place).phase


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"\xff\xfe\n", b"[" * 100_000,
        b'{"n": 1, "write_id": "", "content": "", "size": 1, "entry": {"a": ' + b"[" * 100_000,
        b'{"n": 2, "write_id": "", "content": "", "size": 1}\n',
        b'{"n": true, "write_id": "", "content": "", "size": 1}\n',
        b'{"n": 1, "write_id": "\xff", "content": "", "size": 1}\n',
    ],
)  # fmt: skip
def test_a_damaged_segment_is_an_error_and_a_finding(place, data):
    session = tapstore.open(place)
    place.put(f"{session.config.prefix}/log/000000000001", data, OVERWRITE)
    with pytest.raises(FormatError):
        list(session.log())
    assert list(history.verify(session.state.log)) != []


def test_to_validate_a_session_with_a_damaged_tapfile_comes_to_an_end(place):
    place.put(TAPFILE, b"{}", OVERWRITE)
    findings = list(history.verify(tapstore.open(place).state.log))
    assert "damaged" in findings[0]


def test_an_operation_of_a_later_version_is_no_damage(place):
    tapstore.open(place).set_phase("three")
    document, logged, records = direct._split(place.get(TAPFILE).data)
    record = msgspec.json.decode(records[-1])
    record["entry"]["operations"] = [{"op": "teleport", "id": "x"}]
    records = (*records[:-1], msgspec.json.encode(record))
    place.put(TAPFILE, direct._joined(document, logged, records, "json"), OVERWRITE)
    session = tapstore.open(place)
    session.set_phase("four")
    session.close()
    assert [entry.operations for entry in session.log()][2:] == [("teleport",), ("set_phase",)]
    assert list(history.verify(session.state.log)) == []


# Doubt


def test_an_unknown_outcome_names_the_write_id_that_tells(place):
    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, times=99, before=lost)))
    sent = []
    commit = session.state.revisions.commit

    def spied(before, draft):
        sent.append(draft.write_id)
        return commit(before, draft)

    session.state.revisions.commit = spied
    with pytest.raises(OutcomeUnknownError) as caught:
        session.set_phase("three")
    assert set(sent) == {sent[0]}
    assert sent[0] in str(caught.value)


def test_a_refusal_of_the_second_attempt_says_nothing_of_the_first(place):
    def lost_and_found(key):
        writer = session.state.revisions._writer
        writer._fault = FormatError("the log is another one")  # as its thread finds out meanwhile
        lost(key)

    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, before=lost_and_found)))
    with pytest.raises(OutcomeUnknownError):
        session.set_phase("three")


def test_a_tapfile_that_is_damaged_before_the_look_leaves_the_outcome_unknown(place):
    def damaged(key):
        place.put(TAPFILE, b"{}", OVERWRITE)
        lost(key)

    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, after=damaged)))
    with pytest.raises(OutcomeUnknownError, match="damaged"):
        session.set_phase("three")
