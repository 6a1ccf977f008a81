"""Tapfiles that were put back, forged or already there, and stores that say what is not so."""

import pytest

import tapstore
from tapstore.errors import ConflictError, FormatError, OutcomeUnknownError, TapstoreError
from tapstore.sessions import config as configs
from tapstore.sessions.logwriter import LogWriter
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, OVERWRITE

TAPFILE = configs.TAPFILE_KEY


@pytest.fixture(autouse=True)
def behind(monkeypatch):
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)


@pytest.fixture
def place():
    store = MemoryStore()
    with tapstore.create(store, roles=["coder"], phase="one", tapfile_format="json") as session:
        session.set_phase("two")
    return store


def test_a_conflict_that_cannot_be_explained_does_not_double_a_commit_in_doubt(place):
    late = []

    class Odd(WrapperStore):
        sent = 0

        def put(self, key, data, mode=CREATE):
            if key == TAPFILE:
                self.sent += 1
                if self.sent == 1:
                    late.append((key, data, mode))
                    raise OutcomeUnknownError("under way")
                if self.sent == 2:
                    raise ConflictError("409: another request is under way")
                if late:
                    self.inner.put(*late.pop())
            return self.inner.put(key, data, mode)

    session = tapstore.open(Odd(place))
    session.set_phase("three")
    assert [e.phase[1] for e in session.log() if e.phase] == ["two", "three"]
    assert [e.rev for e in session.log()] == [1, 2, 3]


def test_who_knows_a_newer_revision_builds_nothing_on_an_older_tapfile(place):
    session = tapstore.open(place)
    older = place.get(TAPFILE).data
    session.set_phase("three")
    session.close()
    place.put(TAPFILE, older, OVERWRITE)
    for attempt in (lambda: session.phase, lambda: session.set_phase("other")):
        with pytest.raises(FormatError, match="older"):
            attempt()


def test_a_carried_record_that_was_changed_never_comes_into_the_log(place):
    session = tapstore.open(place)
    session.set_phase("three")
    session.set_phase("four")
    data = place.get(TAPFILE).data
    assert data.count(b"three") > 1
    place.put(TAPFILE, data.replace(b"three", b"throe"), OVERWRITE)
    with pytest.raises(FormatError, match="another program"):
        _ = tapstore.open(place).phase


@pytest.mark.parametrize(
    "data", [b"version: 1\nsession_id: s\n", b"hello", b"", b'{"tapstore": {}}']
)
def test_no_session_is_made_over_a_tapfile_that_is_none_of_ours(data):
    store = MemoryStore()
    store.put(TAPFILE, data)
    with pytest.raises(TapstoreError, match="Tapfile"):
        tapstore.create(store, roles=["coder"], phase="one")
    assert [info.key for info in store.list("")] == [TAPFILE]


def test_to_close_a_session_tells_that_an_older_tapfile_was_put_back(place):
    older = place.get(TAPFILE).data
    with tapstore.open(place) as session:
        session.set_phase("three")
    place.put(TAPFILE, older, OVERWRITE)
    again = tapstore.open(place)
    again.set_phase("another three")
    with pytest.raises(FormatError, match="older Tapfile"):
        again.close()
