"""Where the Tapfile is the commit: what it costs, what follows behind, and what is noticed."""

import json
from collections import Counter

import msgspec
import pytest

import tapstore
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    NotAllowedError,
    OutcomeUnknownError,
    SessionNotFoundError,
)
from tapstore.sessions import config as configs
from tapstore.sessions import direct, history
from tapstore.sessions.logwriter import LogWriter
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.tapfile import format
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost
from tapstore.types import CREATE, OVERWRITE

TAPFILE = configs.TAPFILE_KEY


class Counting(WrapperStore):
    """Counts requests by what they are."""

    def __init__(self, inner):
        super().__init__(inner)
        self.requests = Counter()

    def take(self):
        taken, self.requests = dict(self.requests), Counter()
        return taken

    def get(self, key, *, start=0, end=None):
        self.requests["GET"] += 1
        return self.inner.get(key, start=start, end=end)

    def get_if_changed(self, key, version):
        got = self.inner.get_if_changed(key, version)
        self.requests["304" if got is None else "GET"] += 1
        return got

    def put(self, key, data, mode=CREATE):
        self.requests["PUT"] += 1
        return self.inner.put(key, data, mode)

    def list(self, prefix="", *, start_after=""):
        self.requests["LIST"] += 1
        return self.inner.list(prefix, start_after=start_after)


@pytest.fixture
def behind(monkeypatch):
    """The log is written when the test says so."""
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)


@pytest.fixture(params=["yaml", "json"])
def fmt(request):
    return request.param


@pytest.fixture
def place(fmt):
    store = MemoryStore()
    with tapstore.create(
        store, roles={"coder": 1, "reviewer": 2}, phase="one", tapfile_format=fmt
    ) as session:
        session.set_phase("two")
    return store


def log_keys(store, session):
    return [info.key.rpartition("/")[2] for info in store.list(f"{session.config.prefix}/log/")]


def stored(store):
    data = store.get(TAPFILE).data
    return format.parse(data)


# What it costs


@pytest.mark.usefixtures("behind")
def test_a_warm_commit_is_one_conditional_write(place):
    store = Counting(place)
    session = tapstore.open(store)
    session.set_phase("three")
    store.take()
    session.set_phase("four")
    assert store.take() == {"PUT": 1}


@pytest.mark.usefixtures("behind")
def test_a_cold_commit_is_one_read_and_one_write(place):
    store = Counting(place)
    session = tapstore.open(store)
    store.take()
    session.set_phase("three")
    assert store.take() == {"GET": 1, "PUT": 1}


@pytest.mark.usefixtures("behind")
def test_a_look_at_an_unchanged_session_is_one_304(place):
    store = Counting(place)
    session = tapstore.open(store)
    assert session.phase == "two"
    store.take()
    assert session.phase == "two"
    assert store.take() == {"304": 1}


@pytest.mark.usefixtures("behind")
def test_a_commit_that_others_were_faster_than_costs_one_more_read_and_write(place):
    store = Counting(place)
    session, other = tapstore.open(store), tapstore.open(place)
    session.set_phase("three")
    other.set_phase("four")
    store.take()
    session.set_phase("five")
    assert store.take() == {"PUT": 2, "GET": 1}


@pytest.mark.usefixtures("behind")
def test_a_refusal_is_confirmed_by_a_look(place):
    store = Counting(place)
    session, other = tapstore.open(store), tapstore.open(place)
    session.set_phase("three")
    store.take()
    with pytest.raises(NotAllowedError):
        session.set_phase("four", expected="elsewhere")
    assert store.take() == {"304": 1}
    other.set_phase("elsewhere")
    session.set_phase("four", expected="elsewhere")
    assert session.phase == "four"


# What follows behind


def test_records_follow_into_the_log_by_themselves(place, monkeypatch):
    monkeypatch.setattr("tapstore.sessions.logwriter.DELAY_SECONDS", 0.01)
    session = tapstore.open(place)
    session.set_phase("three")
    writer = session.state.revisions._writer
    writer._thread.join(0.0)
    for _ in range(1000):
        if writer.through == 3:
            break
        writer._thread.join(0.01)
    assert [head.n for head in session.state.revisions._segments.records()] == [1, 2, 3]


@pytest.mark.usefixtures("behind")
def test_records_that_come_fast_go_into_one_object(place):
    session = tapstore.open(place)
    for number in range(10):
        session.set_phase(f"p{number}")
    session.close()
    assert log_keys(place, session) == ["000000000001", "000000000002", "000000000003"]
    assert [entry.rev for entry in session.log()] == list(range(1, 13))


@pytest.mark.usefixtures("behind")
def test_what_is_known_to_be_logged_is_carried_no_longer(place):
    session = tapstore.open(place)
    session.set_phase("three")
    session.state.flush()
    assert stored(place)["tapstore"]["logged"] == 1
    session.set_phase("four")
    assert stored(place)["tapstore"]["logged"] == 3
    assert len(stored(place)["tapstore"]["records"]) == 1


@pytest.mark.usefixtures("behind")
def test_a_tapfile_carries_a_bounded_number_of_records(place, monkeypatch):
    monkeypatch.setattr(direct, "MAX_CARRIED", 5)
    session = tapstore.open(place)
    for number in range(23):
        session.set_phase(f"p{number}")
        assert len(stored(place)["tapstore"]["records"]) <= 5
    assert [entry.rev for entry in session.log()] == list(range(1, 26))


@pytest.mark.usefixtures("behind")
def test_a_tapfile_carries_a_bounded_number_of_bytes(place, monkeypatch):
    monkeypatch.setattr(direct, "MAX_CARRIED_BYTES", 3000)
    session = tapstore.open(place)
    for number in range(23):
        session.set_phase(f"p{number}", reason="r" * 900)
        assert sum(map(len, stored(place)["tapstore"]["records"])) <= 3000 + 3000
    assert list(history.verify(session.state.log)) == []


@pytest.mark.usefixtures("behind")
def test_the_next_one_logs_what_a_dead_one_left_in_the_tapfile(place):
    dead = tapstore.open(place)
    dead.set_phase("three")
    dead.set_phase("four")
    session = tapstore.open(place)
    session.set_phase("five")
    session.close()
    assert [head.n for head in session.state.revisions._segments.records()] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("behind")
def test_two_who_log_the_same_make_one_history(place):
    one, two = tapstore.open(place), tapstore.open(place)
    one.set_phase("three")
    two.set_phase("four")
    one.close()
    two.set_phase("five")
    two.close()
    assert [e.phase[1] for e in one.log() if e.phase] == ["two", "three", "four", "five"]
    assert list(history.verify(two.state.log)) == []


@pytest.mark.usefixtures("behind")
def test_every_entry_is_found_by_its_number_wherever_it_lies(place):
    session = tapstore.open(place)
    for number in range(5):
        session.set_phase(f"p{number}")
        if number == 2:
            session.state.flush()
    fresh = tapstore.open(place)
    found = [fresh.state.log.at(n) for n in range(1, 9)]
    assert [head and head.n for head in found] == [1, 2, 3, 4, 5, 6, 7, None]


def test_history_has_all_that_a_log_of_files_has(place):
    session = tapstore.open(place)
    with session.claim("coder", agent="a1") as claim:
        claim.publish("x", b"1", type="code")
        claim.complete()
    assert [entry.operations for entry in session.log()] == [
        (), ("set_phase",), ("claim",), ("publish",), ("complete",),
    ]  # fmt: skip


# Lost replies


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_request_or_reply_is_lost_counts_once(place, when):
    faulty = FaultyStore(place, Fault("put", TAPFILE, **{when: lost}))
    session = tapstore.open(faulty)
    session.set_phase("three")
    assert [e.phase[1] for e in session.log() if e.phase] == ["two", "three"]


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("logged", [False, True])
def test_a_lost_reply_is_resolved_though_others_have_committed_on_top(place, logged):
    other = tapstore.open(place)

    def overtaken(key):
        for number in range(5):
            other.set_phase(f"on top {number}")
        if logged:
            other.state.flush()
            other.set_phase("knows")
        lost(key)

    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, after=overtaken)))
    claim = session.claim("coder", agent="a1")
    entries = list(session.log())
    assert [e.operations for e in entries].count(("claim",)) == 1
    assert claim.token == 3
    claim.release()


@pytest.mark.usefixtures("behind")
def test_a_lost_request_that_others_were_faster_than_is_applied_to_what_they_made(place):
    other = tapstore.open(place)

    def overtaken(key):
        other.set_phase("elsewhere")
        lost(key)

    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, before=overtaken)))
    session.set_phase("three")
    assert [e.phase[1] for e in session.log() if e.phase] == ["two", "elsewhere", "three"]


@pytest.mark.usefixtures("behind")
def test_a_place_that_never_says_is_an_unknown_outcome(place):
    session = tapstore.open(FaultyStore(place, Fault("put", TAPFILE, times=99, before=lost)))
    with pytest.raises(OutcomeUnknownError, match="write_id"):
        session.set_phase("three")


@pytest.mark.usefixtures("behind")
def test_a_wrapper_that_reads_back_itself_changes_nothing_of_that(place):
    faulty = FaultyStore(place, Fault("put", TAPFILE, times=2, after=lost))
    session = tapstore.open(ReadBackStore(faulty, pause_seconds=0))
    session.set_phase("three")
    session.set_phase("four")
    assert [e.phase[1] for e in session.log() if e.phase] == ["two", "three", "four"]


# Creation


@pytest.mark.parametrize("key", ["*/first", ".tap/session", TAPFILE, "*/log/*"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_creator_that_dies_leaves_no_session_or_a_whole_one(key, when):
    store = MemoryStore()
    dying = FaultyStore(store, Fault("put", key, **{when: crash}))
    with pytest.raises(SimulatedCrash):
        tapstore.create(dying, roles=["coder"], phase="one")
    exists = key in (TAPFILE, "*/log/*") or (key == ".tap/session" and when == "after")
    if exists:
        session = tapstore.open(store)
        with pytest.raises(AlreadyExistsError):
            tapstore.create(store, roles=["other"])
    else:
        session = tapstore.create(store, roles=["coder"], phase="one")
    session.set_phase("two")
    assert [entry.rev for entry in session.log()] == [1, 2]


@pytest.mark.usefixtures("behind")
def test_a_deleted_tapfile_is_an_error_and_never_an_empty_session(place):
    session = tapstore.open(place)
    session.set_phase("three")
    place.delete(TAPFILE)
    for attempt in (lambda: session.phase, lambda: session.set_phase("four")):
        with pytest.raises(SessionNotFoundError, match="Tapfile"):
            attempt()
    with pytest.raises(SessionNotFoundError, match="Tapfile"):
        _ = tapstore.open(place).phase
    assert "Tapfile" not in str(list(place.children(".tap/")))


@pytest.mark.usefixtures("behind")
def test_a_session_made_anew_is_not_touched_by_one_who_knew_the_old_one(place):
    old = tapstore.open(place)
    old.set_phase("three")
    for info in list(place.list("")):
        place.delete(info.key)
    tapstore.create(place, roles=["coder"], phase="new").close()
    with pytest.raises(SessionNotFoundError, match="another one"):
        old.set_phase("ghost")
    assert tapstore.open(place).phase == "new"


@pytest.mark.usefixtures("behind")
def test_the_ghost_of_a_deleted_session_gives_way(place):
    ghost = place.get(TAPFILE).data
    for info in list(place.list("")):
        place.delete(info.key)
    place.put(TAPFILE, ghost)  # a request of somebody who had been stopped
    session = tapstore.create(place, roles=["coder"], phase="new")
    assert (session.phase, session.tapfile.roles()) == ("new", ("coder",))


@pytest.mark.usefixtures("behind")
def test_a_first_revision_that_comes_back_is_not_built_upon(place):
    session = tapstore.open(place)
    session.set_phase("three")
    session.close()
    first = place.get(f"{session.config.prefix}/revisions/first").data
    place.put(TAPFILE, first, OVERWRITE)
    with pytest.raises(FormatError, match="restore the newest"):
        tapstore.open(place).set_phase("four")


# Who writes without a condition


@pytest.mark.usefixtures("behind")
def test_an_edit_by_another_program_is_noticed(place, fmt):
    document = stored(place)
    document["current_phase"] = "forged"
    data = format.render(document, fmt=fmt)
    place.put(TAPFILE, data, OVERWRITE)
    with pytest.raises(FormatError, match="changed by another program"):
        _ = tapstore.open(place).phase


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"- a", b'{"tapstore": 1}', b'{"tapstore": {"records": [], "logged": 0}}',
             b"\xff\xfe", b'{"tapstore": {"records": ["x"], "logged": 0, "rev": 1}}']
)  # fmt: skip
def test_what_is_no_tapfile_is_an_error(place, data):
    place.put(TAPFILE, data, OVERWRITE)
    with pytest.raises(FormatError):
        _ = tapstore.open(place).phase


@pytest.mark.usefixtures("behind")
def test_an_older_tapfile_that_is_put_back_is_noticed_when_its_history_meets_the_log(place):
    session = tapstore.open(place)
    older = place.get(TAPFILE).data
    session.set_phase("three")
    session.close()
    place.put(TAPFILE, older, OVERWRITE)
    again = tapstore.open(place)
    again.set_phase("another three")
    with pytest.raises(FormatError, match="an older Tapfile was put back"):
        again.state.revisions._writer.flush()


@pytest.mark.usefixtures("behind")
def test_the_tapfile_says_who_may_write_it(place, fmt):
    data = place.get(TAPFILE).data
    if fmt == "json":
        assert json.loads(data)["current_phase"] == "two"
    else:
        assert b"Only tapstore may write it" in data.splitlines()[0]


@pytest.mark.usefixtures("behind")
def test_a_tapfile_that_could_not_be_read_back_is_not_written(place):
    session = tapstore.open(place)
    big = "x" * (3 << 19)  # once in the document, and twice in the record
    with pytest.raises(FormatError, match=r"artifacts; 3,1.* are the record of this very commit"):
        session.edit(lambda document: document.update(big=big))
    assert session.phase == "two"
    session.edit(lambda document: document.update(big=big[: len(big) // 2]))
    assert session.phase == "two"


def test_no_lock_file_is_used(place):
    session = tapstore.open(place)
    assert not session.config.foreign
    assert session.config.locks == "store"
    with pytest.raises(ConflictError):
        place.put(TAPFILE, b"", CREATE)
    assert [k.key for k in place.list(".tap/locks/")] == []


def test_records_are_chained_byte_for_byte(place):
    session = tapstore.open(place)
    carried = stored(place)["tapstore"]["records"]
    parent = msgspec.json.decode(carried[-1])["parent"]
    before = session.state.log.at(session.state.peek().rev - 1)
    assert parent == before.digest


@pytest.mark.usefixtures("behind")
def test_a_long_history_is_verified_with_few_requests(place):
    session = tapstore.open(place)
    for number in range(200):
        session.set_phase(f"p{number}")
        session.state.flush()  # as slow commits are logged: one at a time
    counting = Counting(place)
    fresh = tapstore.open(counting)
    assert list(history.verify(fresh.state.log)) == []
    taken = counting.take()
    assert taken["LIST"] <= 3
    assert taken["GET"] <= 202 + 5
