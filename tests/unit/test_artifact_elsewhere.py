"""Artifact bytes in another place than the session: the same promises, in two places at once."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import tapstore
from tapstore import registry
from tapstore.errors import (
    ArtifactNotFoundError,
    ChecksumError,
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    NotFoundError,
    SessionNotFoundError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.sessions import garbage
from tapstore.sessions.garbage import ARTIFACT, GHOST, TEMPORARY
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock
from tapstore.types import OVERWRITE

DAY = timedelta(days=1)
_numbers = itertools.count()


class Places:
    """Two places in memory, by their URLs."""

    def __init__(self, clock):
        self.clock = clock
        self.name = f"elsewhere-{next(_numbers)}"
        self.session = f"memory://{self.name}-state/s"
        self.bytes = f"memory://{self.name}-bytes/b"

    def create(self, **options):
        options = {"roles": ["coder"], "phase": "p", "artifacts": self.bytes} | options
        return tapstore.create(self.session, keep_revisions=1, clock=self.clock, **options)

    def open(self, **options):
        return tapstore.open(self.session, clock=self.clock, **options)

    def everything(self):
        """All that is in the other place."""
        return [info.key for info in registry.open_store(self.bytes, clock=self.clock).list()]

    def keys(self, session):
        """What is there of one session; without what says whose it is."""
        folder = f"tapstore-{session.config.incarnation}/"
        found = [key.removeprefix(folder) for key in self.everything() if key.startswith(folder)]
        return [key for key in found if key != "place.json"]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def places(clock):
    return Places(clock)


@pytest.fixture
def session(places):
    with places.create() as made:
        yield made


def at_home(session):
    return [info.key for info in session.store.list("artifacts/")]


def found(session, kind, older_than=DAY):
    return [g.key for g in garbage.find(session, older_than=older_than) if g.kind == kind]


def collect(session, older_than=DAY):
    listed = garbage.find(session, older_than=older_than)
    return [g.key for g in garbage.remove(session, listed, older_than=older_than)]


def pass_days(clock, days):
    clock.advance(days * 86400)


# Where bytes go


def test_bytes_go_to_the_other_place_and_come_back_from_it(places, session):
    session.publish("x.py", b"bytes")
    assert at_home(session) == []
    assert places.keys(session) == ["artifacts/p/x.py"]
    assert session.artifacts["x.py"].read_bytes() == b"bytes"


def test_whoever_opens_the_session_finds_them(places, session, tmp_path):
    session.publish("x.py", b"bytes")
    with places.open() as other:
        assert other.artifacts["x.py"].read_text() == "bytes"
        other.artifacts["x.py"].save(tmp_path / "x.py")
        other.publish("y.py", b"more")
    assert (tmp_path / "x.py").read_bytes() == b"bytes"
    assert places.keys(session) == ["artifacts/p/x.py", "artifacts/p/y.py"]


def test_the_registration_is_a_url_that_programs_without_tapstore_can_open(tmp_path):
    import fsspec

    with tapstore.create(str(tmp_path / "s"), artifacts=str(tmp_path / "big")) as session:
        path = session.publish("x.py", b"bytes", phase="p").path
        document = session.store.get(".tap/Tapfile").data.decode()
    assert path.startswith(f"file://{tmp_path}/big/")
    assert path in document
    with fsspec.open(path, "rb") as stream:
        assert stream.read() == b"bytes"


def test_only_what_is_larger_goes_there_if_a_size_was_given(places, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 11)
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/a").write_bytes(b"x" * 6)
    (tmp_path / "tree/sub/b").write_bytes(b"y" * 6)

    class Unseekable(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *_):
            raise OSError("a pipe")

    rewound = io.BytesIO(b"skipped" + b"x" * 10)
    rewound.seek(7)
    with places.create(artifacts_above=10) as session:
        for name, source in {
            "bytes-10": b"x" * 10,
            "bytes-11": b"x" * 11,
            "file-11": tmp_path / "file",
            "stream-10": rewound,
            "pipe-10": Unseekable(b"x" * 10),
            "pipe-11": Unseekable(b"x" * 11),
            "tree-12": tmp_path / "tree",
        }.items():
            session.publish(name, source)
        there = {key.rpartition("/")[2] for key in places.keys(session) if ".objects" not in key}
        here = {key.rpartition("/")[2] for key in at_home(session)}
        assert there == {"bytes-11", "file-11", "pipe-11", "tree-12"}
        assert here == {"bytes-10", "stream-10", "pipe-10"}
        for name in here | there - {"tree-12"}:
            assert session.artifacts[name].read_bytes() == b"x" * int(name[-2:])


def test_all_means_also_what_is_empty(places, session):
    session.publish("empty", b"")
    assert places.keys(session) == ["artifacts/p/empty"]
    assert session.artifacts["empty"].read_bytes() == b""


def test_a_directory_lies_there_with_all_its_files(places, session, tmp_path):
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/a").write_bytes(b"one")
    session.publish("tree", tmp_path / "tree")
    assert at_home(session) == []
    assert len(places.keys(session)) == 2
    session.artifacts["tree"].save(tmp_path / "copy")
    assert (tmp_path / "copy/sub/a").read_bytes() == b"one"


def test_a_file_of_a_directory_is_there_once(places, session, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"same")
        (tmp_path / name / name).write_bytes(name.encode())
        session.publish(name, tmp_path / name)
    assert sum(".objects" in key for key in places.keys(session)) == 3


def test_work_is_given_its_inputs_from_there(session, tmp_path):
    from tapstore.tasks.work import Work

    artifact = session.publish("x.py", b"bytes")
    claim = session.claim("coder", agent="c1")
    work = Work(session, claim, task=None, inputs=(artifact,))
    ((_, path),) = work.fetch(tmp_path)
    assert Path(path).read_bytes() == b"bytes"
    claim.release()


# The same rules as at home


def test_other_bytes_never_replace_what_is_there(session):
    first = session.publish("x", b"first")
    second = session.publish("x", b"second", overwrite=True)
    assert first.path != second.path
    assert session.artifacts.of(first).read_bytes() == b"first"
    assert session.artifacts["x"].read_bytes() == b"second"


def test_a_zombie_cannot_damage_what_the_winner_published(places, session):
    zombie = session.claim("coder", agent="c1")
    zombie.detach()
    with places.open() as other:
        other.reset("coder")
        with other.claim("coder", agent="c2") as winner:
            winner.publish("x", b"winner")
            winner.complete()
    with places.open() as asleep:
        asleep.stage("x", b"zombie", claim=zombie)
        with pytest.raises(tapstore.ClaimLostError):
            asleep.publish("x", b"zombie", claim=zombie)
    assert session.artifacts["x"].read_bytes() == b"winner"


def test_a_crash_before_the_registration_is_repaired_by_the_next_attempt(places, session):
    with session.claim("coder", agent="c1") as claim:
        orphan = session.stage("x", b"bytes", claim=claim)  # and here it died
        again = claim.publish("x", b"bytes")
        claim.complete()
    assert again.path == orphan.path
    assert places.keys(session) == ["artifacts/p/x"]


def test_damaged_bytes_are_not_handed_out(session):
    path = session.publish("x", b"bytes").path
    store, artifact = session.artifact_places.locate(session.tapfile.artifacts[0])
    store.put(artifact.path, b"BYTES", OVERWRITE)
    with pytest.raises(ChecksumError) as caught:
        session.artifacts["x"].read_bytes()
    assert artifact.path in str(caught.value)
    assert path.endswith(artifact.path)


def test_a_path_that_leads_out_of_the_folder_is_refused(session):
    session.publish("x", b"bytes")
    hostile = msgspec.structs.replace(
        session.tapfile.artifacts[0], path=session.artifact_places.path_away("../x")
    )
    with pytest.raises(InvalidKeyError, match=r"\.\."):
        session.artifacts.of(hostile).read_bytes()


def test_what_lies_beside_the_folder_is_somebody_elses(tmp_path):
    (tmp_path / "big").mkdir()
    (tmp_path / "big/secret").write_bytes(b"secret")
    with tapstore.create(str(tmp_path / "s"), artifacts=str(tmp_path / "big")) as session:
        artifact = msgspec.structs.replace(
            session.publish("x", b"1"), path=f"file://{tmp_path}/big/secret", checksum="", size=6
        )
        with pytest.raises(InvalidKeyError, match="means something else on each machine"):
            session.artifacts.of(artifact).read_bytes()


# What is remembered


@pytest.mark.parametrize(
    "url",
    [
        "sftp://user:hunter2@host/x",
        "s3://key:hunter2@bucket/x",
        "s3://hunter2@bucket/x",
        "gs://bucket/x?token=hunter2",
        "s3://key:hunter2@bucket\n/x",
        "s3://key:hunter2@[bucket/x",
    ],
)
def test_a_url_with_credentials_is_refused_without_showing_them(places, url):
    with pytest.raises(InvalidKeyError, match="artifacts=") as caught:
        places.create(artifacts=url)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SessionNotFoundError):
        places.open()


@pytest.mark.parametrize("place", ["/", "file:///", "s3://", "big\n"])
def test_what_is_no_place_is_refused(places, place):
    with pytest.raises(InvalidKeyError, match="artifacts="):
        places.create(artifacts=place)


def test_a_relative_path_is_remembered_as_what_it_means_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tapstore.create("s", artifacts="big") as session:
        assert session.config.artifacts == f"file://{tmp_path}/big"


def test_a_session_that_is_too_large_to_be_made_leaves_nothing_there(places):
    with pytest.raises(FormatError, match="artifacts"):
        places.create(fields={"big": "x" * (3 << 20)})
    assert places.everything() == []


@pytest.mark.parametrize("options", [{"artifacts_above": -1}, {"artifacts_above": "5"}])
def test_a_size_that_is_none_is_refused(places, options):
    with pytest.raises(NotAllowedError):
        places.create(**options)
    assert places.everything() == []


def test_a_size_without_a_place_is_refused(places):
    with pytest.raises(NotAllowedError, match="artifacts=URL"):
        places.create(artifacts=None, artifacts_above=5)


def test_a_place_that_cannot_create_exclusively_is_refused(places, monkeypatch):
    weak = replace(MemoryStore.capabilities, create=False)
    real = registry.open_store

    def open_store(place, **options):
        store = real(place, **options)
        if "-bytes" in store.url:
            store.capabilities = weak
        return store

    monkeypatch.setattr(registry, "open_store", open_store)
    with pytest.raises(UnsupportedOperationError, match="'create'"):
        places.create()
    with pytest.raises(SessionNotFoundError):
        places.open()


def test_the_options_of_the_opener_reach_the_place(tmp_path):
    url = f"file://{tmp_path}/big"
    tapstore.create(f"memory://options-{next(_numbers)}/s", artifacts=url).close()
    asked = []

    def options(url):
        asked.append(url)
        return {"durability": "none"}

    with tapstore.create(
        f"memory://options-{next(_numbers)}/s", artifacts=url, artifact_options=options
    ) as session:
        session.publish("x", b"1")
        folder = session.artifact_places.path_away("")
    assert asked
    assert {each.rstrip("/") for each in asked} == {folder.rstrip("/")}


def test_sessions_of_a_root_are_opened_with_them(tmp_path):
    asked = []

    def options(url):
        asked.append(url)
        return {"durability": "none"}

    for _ in range(2):
        with tapstore.root(str(tmp_path / "root"), artifact_options=options) as root:
            if not list(root.places()):
                root.create("s", phase="p", artifacts=str(tmp_path / "big"))
            for session in root.sessions():
                session.publish(f"x{len(asked)}", b"1")
                assert asked
        asked.clear()


def test_an_option_that_the_place_does_not_know_is_told(places):
    with pytest.raises(FormatError, match=r"memory://.*colour"):
        places.create(artifact_options={"colour": "red"})


# Without the place


@pytest.fixture
def gone(tmp_path):
    """A session in a folder, whose other place is not there (any more)."""
    with tapstore.create(
        str(tmp_path / "s"), roles=["coder"], phase="p", artifacts=str(tmp_path / "big"),
        artifacts_above=3,
    ) as session:  # fmt: skip
        session.publish("large", b"large")
        shutil.move(tmp_path / "big", tmp_path / "unmounted")
        (tmp_path / "big").mkdir()
        yield session


def test_a_place_that_is_not_mounted_is_not_written_to(gone, tmp_path):
    with pytest.raises(StoreError, match=r"is it mounted"):
        gone.publish("x", b"bytes")
    assert gone.tapfile.artifact("x") is None
    assert list((tmp_path / "big").iterdir()) == []


def test_everything_else_goes_on(gone):
    with gone.claim("coder", agent="c1") as claim:
        claim.publish("small", b"1")
        claim.complete(phase="q")
    assert gone.phase == "q"
    with pytest.raises(ArtifactNotFoundError):
        gone.artifacts["large"].read_bytes()


def test_nothing_is_collected_there_as_long_as_it_is_gone(gone):
    with pytest.raises(StoreError, match="is it mounted"):
        garbage.find(gone, older_than=DAY)


def test_when_it_is_back_all_is_as_it_was(gone, tmp_path):
    (tmp_path / "big").rmdir()
    shutil.move(tmp_path / "unmounted", tmp_path / "big")
    gone.publish("x", b"bytes")
    assert gone.artifacts["large"].read_bytes() == b"large"


# Collection


def test_bytes_that_nobody_registered_can_go(session, places, clock):
    path = session.stage("x", b"bytes").path
    session.publish("y", b"registered")
    pass_days(clock, 2)
    assert found(session, ARTIFACT) == [path]
    assert collect(session) == [path]
    assert [k for k in places.keys(session) if ".collected" not in k] == ["artifacts/p/y"]


def test_also_what_was_asked_to_lie_outside_the_folder_artifacts(session, clock):
    path = session.stage("x", b"bytes", path="src/x").path
    pass_days(clock, 2)
    assert collect(session) == [path]


def test_what_says_whose_it_is_is_spared(session, clock):
    pass_days(clock, 3000)
    assert collect(session) == []
    session.publish("x", b"1")


def test_in_both_places_at_once(places, clock):
    with places.create(artifacts_above=3) as session:
        paths = {session.stage("a", b"1").path, session.stage("b", b"large").path}
        session.publish("c", b"2")
        session.publish("d", b"larger")
        pass_days(clock, 2)
        assert set(collect(session)) == paths
        assert at_home(session)[-1] == "artifacts/p/c"
        assert places.keys(session)[-1] == "artifacts/p/d"


def test_files_of_registered_directories_are_spared(session, clock, tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    session.publish("tree", tmp_path)
    pass_days(clock, 30)
    assert found(session, ARTIFACT) == []


@pytest.mark.parametrize("years", [-30, 30])
def test_age_is_judged_in_the_clock_of_the_place(places, clock, years, monkeypatch):
    # What a store calls now, and the time of what it stores, is its own.
    monkeypatch.setattr(MemoryStore, "now", lambda self: self._clock.time() + _ahead(self, years))
    real = MemoryStore.list

    def listed(self, *args, **options):
        for info in real(self, *args, **options):
            yield msgspec.structs.replace(info, modified=info.modified + _ahead(self, years))

    monkeypatch.setattr(MemoryStore, "list", listed)
    with places.create() as session:
        claim = session.claim("coder", agent="c1", ttl=7 * 86400)
        old = session.stage("x", b"bytes", claim=claim)
        pass_days(clock, 2)
        assert found(session, ARTIFACT) == [], "the claim lives"
        claim.release()
        session.stage("y", b"young")
        assert found(session, ARTIFACT) == [old.path]


def _ahead(store, years):
    return years * 365 * 86400 if "-bytes" in store.url else 0


# Sessions that come and go


def test_a_session_made_anew_shares_nothing_with_the_one_before(places):
    with places.create() as first:
        first.publish("x", b"first")
        for info in list(first.store.list()):
            first.store.delete(info.key)
    with places.create() as second:
        assert second.publish("x", b"second").path.endswith("artifacts/p/x")
        with pytest.raises(NotFoundError):
            first.publish("y", b"late")
        assert places.keys(second) == ["artifacts/p/x"]
        assert second.artifacts["x"].read_bytes() == b"second"


def test_what_an_earlier_session_left_there_can_go_with_what_it_left_here(places, clock):
    with places.create() as first:
        left = first.publish("x", b"first").path
        first.store.delete(".tap/session")
        first.store.delete(".tap/Tapfile")
    with places.create() as second:
        mine = second.publish("x", b"second").path
        assert found(second, GHOST) == []
        pass_days(clock, 2)
        ghosts = collect(second)
        assert left in ghosts
        assert mine not in ghosts
        folder = left.partition("artifacts/")[0].rpartition("/")[0].rpartition("/")[2]
        assert not any(key.startswith(folder) for key in places.everything())
        assert second.artifacts["x"].read_bytes() == b"second"


def test_another_sessions_bytes_in_the_same_place_are_nobodys_garbage(places, session, clock):
    other = Places(clock)
    other.bytes = places.bytes
    with other.create() as second:
        second.publish("x", b"theirs")
        pass_days(clock, 400)
        assert garbage.find(session, older_than=DAY) == []
        assert second.artifacts["x"].read_bytes() == b"theirs"


def grow_old(folder):
    """Make all files in a folder two days older."""
    long_ago = time.time() - 2 * 86400
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))


def test_a_copy_of_a_session_collects_none_of_the_originals_bytes(tmp_path):
    original, copied = str(tmp_path / "s"), str(tmp_path / "copy")
    with tapstore.create(original, phase="p", artifacts=str(tmp_path / "big")) as session:
        shutil.copytree(original, copied)
        session.publish("x", b"after the copy")
        orphan = session.stage("y", b"orphan").path
        grow_old(tmp_path / "big")
        with tapstore.open(copied) as copy:
            obstacle = copy.artifact_places.why_not_collected()
            assert "may be a copy" in obstacle
            assert session.url in obstacle
            assert found(copy, ARTIFACT) == []
        assert found(session, ARTIFACT) == [orphan]


# Unfinished writes


def test_unfinished_writes_there_can_go(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), phase="p", artifacts=str(tmp_path / "big")
    ) as session:
        session.publish("x", b"1")
        folder = tmp_path / "big" / f"tapstore-{session.config.incarnation}"
        left = folder / "artifacts/p/.tapstore-tmp-0000"
        left.write_bytes(b"half")
        other = tmp_path / "big/.tapstore-tmp-0001"
        other.write_bytes(b"of somebody else")
        grow_old(tmp_path / "big")
        name = session.artifact_places.path_away("artifacts/p/.tapstore-tmp-0000")
        assert found(session, TEMPORARY) == [name]
        assert collect(session) == [name]
        assert not left.exists()
        assert other.exists()


def test_writes_that_a_live_claim_may_have_begun_are_not_swept(session, clock, monkeypatch):
    swept = []

    def sweep(store, seconds, *, dry_run=False):
        assert dry_run
        swept.append((store.url, seconds))
        return ()

    monkeypatch.setattr(MemoryStore, "sweep", sweep)
    claim = session.claim("coder", agent="c1", ttl=7 * 86400)
    pass_days(clock, 3)
    garbage.find(session, older_than=DAY)
    claim.release()
    garbage.find(session, older_than=DAY)
    assert [seconds for _, seconds in swept] == pytest.approx([3 * 86400] * 2 + [86400] * 2, abs=2)
    assert len({url for url, _ in swept}) == 2
