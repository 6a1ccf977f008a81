"""The log is the commit: what `CommitLog` promises on a store that can only create."""

import msgspec
import pytest

from tapstore.abc import Store
from tapstore.commitlog import RECORDS_PER_FOLDER, CommitLog
from tapstore.errors import ConflictError, FormatError, OutcomeUnknownError, StoreError
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path, durability="none")


def extend(log, count, head=None):
    for _ in range(count):
        n = 1 if head is None else head.n + 1
        head = log.commit(head, f"w{n}", f"content {n}".encode(), {"n": n})
        log.collect(head)
    return head


def test_an_empty_log_has_no_head(store):
    assert CommitLog(store, "log").head() is None


def test_commits_are_numbered_and_read_back(store):
    log = CommitLog(store, "x")
    extend(log, 3)
    head, content = CommitLog(store, "x").read()
    assert (head.n, content, head.record.entry) == (3, b"content 3", {"n": 3})


def test_second_commit_of_the_same_parent_loses_and_leaves_nothing(store):
    log = CommitLog(store, "x")
    first = extend(log, 1)
    log.commit(first, "winner", b"w", {})
    before = [info.key for info in store.list("x/")]
    with pytest.raises(ConflictError):
        log.commit(first, "loser", b"l", {})
    assert [info.key for info in store.list("x/")] == before


def test_a_writer_that_slept_through_many_commits_loses(store):
    log = CommitLog(store, "x", keep=1)
    first = extend(log, 1)
    extend(log, 40, first)
    with pytest.raises(ConflictError):
        log.commit(first, "zombie", b"z", {})
    assert log.read()[1] == b"content 41"


def test_repeating_a_commit_that_landed_tells_so(store):
    log = CommitLog(store, "x")
    first = extend(log, 1)
    once = log.commit(first, "same", b"same", {"a": 1})
    assert log.commit(first, "same", b"same", {"a": 1}) == once


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_only_the_newest_contents_are_kept(store, keep):
    log = CommitLog(store, "x", keep=keep)
    extend(log, 30)
    kept = len(list(store.list("x/revisions/")))
    assert keep <= kept <= keep + max(1, keep // 2)


def test_of_many_writers_one_collects(store, monkeypatch):
    listed = []
    children = store.children
    monkeypatch.setattr(store, "children", lambda *args: listed.append(args) or children(*args))
    head = None
    for _ in range(100):
        head = extend(CommitLog(store, "x", keep=10), 1, head)
    assert len(listed) <= 100 / 5


def test_what_a_collector_left_behind_is_removed_by_the_next(store):
    log = CommitLog(store, "x", keep=4)
    head = None
    for n in range(1, 41):
        head = log.commit(head, f"w{n}", b"", {})
    log.collect(head)
    kept = [info.key.rpartition("/")[2] for info in store.list("x/revisions/")]
    assert [int(name.partition("-")[0]) for name in kept] == [37, 38, 39, 40]


def test_records_are_never_collected(store):
    log = CommitLog(store, "x", keep=1)
    extend(log, 30)
    assert [head.n for head in log.records()] == list(range(1, 31))


def test_a_reader_whose_content_was_collected_goes_on_to_the_head(store):
    log = CommitLog(store, "x", keep=1)
    first = extend(log, 1)
    extend(log, 5, first)
    assert log.content(first) is None
    assert CommitLog(store, "x").read(first)[0].n == 6


def test_a_listing_that_shows_nothing_does_not_hide_the_head(store):
    extend(CommitLog(store, "x"), 3)

    class Blind(type(store)):
        def __init__(self):
            self.__dict__ = store.__dict__

        def children(self, prefix=""):  # noqa: ARG002
            return iter(())

    assert CommitLog(Blind(), "x").head().n == 3


def test_whoever_is_behind_finds_the_head(store):
    log = CommitLog(store, "x")
    heads = [extend(log, 1)]
    for length in range(2, 40):
        heads.append(extend(log, 1, heads[-1]))
        assert [log.head(known).n for known in heads] == [length] * length


def test_whoever_is_far_behind_looks_at_few_records(store, monkeypatch):
    log = CommitLog(store, "x")
    first = extend(log, 1)
    extend(log, 1000, first)
    looks = []
    at = log.at
    monkeypatch.setattr(log, "at", lambda n: looks.append(n) or at(n))
    assert log.head(first).n == 1001
    assert len(looks) <= 20


def test_a_hint_that_lies_is_only_a_hint(store):
    extend(CommitLog(store, "x"), 3)
    assert CommitLog(store, "x").head(hint=99).n == 3


def test_records_go_a_thousand_to_a_folder(tmp_path):
    store = LocalStore(tmp_path, durability="none")
    extend(CommitLog(store, "x", keep=1), RECORDS_PER_FOLDER + 2)
    assert len(list(store.children("x/log/"))) == 2
    assert CommitLog(store, "x").head().n == RECORDS_PER_FOLDER + 2


def test_a_changed_content_is_reported_not_served(tmp_path):
    store = LocalStore(tmp_path)
    log = CommitLog(store, "x")
    extend(log, 1)
    path = next((tmp_path / "x" / "revisions").iterdir())
    path.write_bytes(b"tampered!")
    with pytest.raises(FormatError, match=r"does not match the hash"):
        log.read()


def test_a_damaged_record_is_reported_with_its_key(tmp_path):
    store = LocalStore(tmp_path)
    log = CommitLog(store, "x")
    extend(log, 1)
    next(p for p in (tmp_path / "x" / "log").rglob("*") if p.is_file()).write_bytes(b"{")
    with pytest.raises(FormatError, match=r"x/log/000000000/000000000001 is damaged"):
        log.head()


def test_a_record_renamed_by_hand_is_refused(tmp_path):
    store = LocalStore(tmp_path)
    log = CommitLog(store, "x")
    extend(log, 1)
    path = next(p for p in (tmp_path / "x" / "log").rglob("*") if p.is_file())
    (path.parent / "000000000002").write_bytes(path.read_bytes())
    with pytest.raises(FormatError, match=r"says that it is commit 1"):
        log.head()


def test_each_record_names_the_hash_of_the_one_before(store):
    log = CommitLog(store, "x")
    extend(log, 3)
    heads = list(log.records())
    assert [h.record.parent for h in heads] == ["", heads[0].digest, heads[1].digest]


class _Lossy(MemoryStore):
    """Applies the write of a record, then says that it does not know; or fails before it."""

    def __init__(self, *, applied, error):
        super().__init__()
        self.applied, self.error = applied, error
        self.armed = False

    def put(self, key, data, mode=None):
        if not (self.armed and "/log/" in key):
            return super().put(key, data, mode)
        self.armed = False
        if self.applied:
            super().put(key, data, mode)
        raise self.error


def test_a_lost_reply_of_a_commit_that_landed_is_a_success():
    store = _Lossy(applied=True, error=OutcomeUnknownError("?"))
    log = CommitLog(store, "x")
    first = extend(log, 1)
    store.armed = True
    assert log.commit(first, "mine", b"m", {}).n == 2


def test_a_write_that_never_arrived_stays_unknown_and_can_be_repeated():
    store = _Lossy(applied=False, error=OutcomeUnknownError("?"))
    log = CommitLog(store, "x")
    first = extend(log, 1)
    store.armed = True
    with pytest.raises(OutcomeUnknownError):
        log.commit(first, "mine", b"m", {})
    assert log.commit(first, "mine", b"m", {}).n == 2


def test_a_full_disk_leaves_the_old_state_and_no_content():
    store = _Lossy(applied=False, error=StoreError("full"))
    log = CommitLog(store, "x")
    first = extend(log, 1)
    store.armed = True
    with pytest.raises(StoreError):
        log.commit(first, "mine", b"m", {})
    assert log.read()[0].n == 1
    assert len(list(store.list("x/revisions/"))) == 1


def test_strays_are_contents_that_no_record_names(store):
    log = CommitLog(store, "x")
    head = extend(log, 2)
    store.put("x/revisions/000000000002-lost", b"l")
    store.put("x/revisions/000000000003-dead", b"d")
    assert sorted(log.strays(head)) == [
        "x/revisions/000000000002-lost",
        "x/revisions/000000000003-dead",
    ]


def test_a_content_whose_record_is_missing_is_no_stray(store):
    log = CommitLog(store, "x")
    head = extend(log, 3)
    store.delete("x/log/000000000/000000000002")
    assert list(log.strays(head)) == []


def test_records_are_plain_json(store):
    extend(CommitLog(store, "x"), 1)
    record = msgspec.json.decode(store.get("x/log/000000000/000000000001").data)
    assert record["n"] == 1
    assert record["write_id"] == "w1"
