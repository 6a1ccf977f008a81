"""What FsspecStore promises beyond the contract of all stores, and what it refuses."""

from __future__ import annotations

import errno
import io
import os

import bucket_filesystem as buckets
import fsspec
import pytest

from tapstore.errors import (
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.keys import TEMP_MARK
from tapstore.stores.fsspec import FsspecStore
from tapstore.testing.place import Place
from tapstore.testing.stores import StoreTests
from tapstore.types import CREATE, OVERWRITE, Capabilities

CREATE_ONLY = Capabilities(create=True, update=False, conditional_delete=False, files=False)


class BucketPlace(Place):
    def __init__(self, root):
        self.bucket = os.urandom(8).hex()
        self.root = root
        self.below = f"{root}/" if root else ""
        self.objects = buckets.BucketFileSystem(self.bucket).objects

    def open(self):
        return FsspecStore(buckets.BucketFileSystem(self.bucket), self.root)

    def read(self, key):
        found = self.objects.get(self.below + key)
        return None if found is None else found[0]

    def write(self, key, data):
        buckets.BucketFileSystem(self.bucket).pipe_file(self.below + key, data)

    def names(self):
        return {name.removeprefix(self.below) for name in self.objects}


class TestBelowARoot(StoreTests):
    capabilities = CREATE_ONLY

    @pytest.fixture
    def place(self):
        return BucketPlace("team/alpha")


class TestAtTheTop(StoreTests):
    capabilities = CREATE_ONLY
    many = 50

    @pytest.fixture
    def place(self):
        return BucketPlace("")


def filesystem(kind=buckets.BucketFileSystem):
    return kind(os.urandom(8).hex())


@pytest.fixture
def fs():
    return filesystem()


@pytest.fixture
def store(fs):
    return FsspecStore(fs, "root")


# Exclusive creation


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(buckets.IgnoresTheMode, "overwrites what is there"),
     (buckets.OverwritesWithNothing, "overwrites what is there"),
     (buckets.LooksAndThenWrites, r"[0234] of 4 concurrent creates of one file succeeded"),
     (buckets.WritesInPieces, "shows a part"),
     (buckets.KnowsNoMode, "refuses mode='create'"),
     (buckets.InheritsIt, "looks and writes in two steps")],
)  # fmt: skip
def test_creation_that_is_not_exclusive_is_refused_by_name(kind, reason):
    store = FsspecStore(filesystem(kind), "root")
    assert not store.capabilities.create
    with pytest.raises(UnsupportedOperationError, match=f"'create': .*{reason}"):
        store.put("a", b"x", CREATE)


def test_fsspecs_own_memory_is_refused_with_what_to_use_instead():
    store = FsspecStore(fsspec.filesystem("memory", skip_instance_cache=True), "/refused")
    with pytest.raises(UnsupportedOperationError, match="memory://name"):
        store.put("a", b"x", CREATE)


def test_a_place_without_exclusive_creation_can_still_be_read_and_overwritten():
    store = FsspecStore(filesystem(buckets.IgnoresTheMode), "root")
    store.put("a", b"x", OVERWRITE)
    assert store.get("a").data == b"x"


def test_a_refusal_that_looks_like_any_error_proves_nothing():
    with pytest.raises(StoreError):
        _ = FsspecStore(filesystem(buckets.RaisesSomethingElse), "root").capabilities


@pytest.mark.parametrize("kind", [buckets.BucketFileSystem, buckets.IgnoresTheMode])
def test_finding_out_leaves_nothing_behind(kind):
    fs = filesystem(kind)
    _ = FsspecStore(fs, "root").capabilities
    assert fs.objects == {}


def test_finding_out_happens_once(store):
    store.put("a", b"1")
    before = buckets.BucketFileSystem.writes
    store.put("b", b"2")
    assert buckets.BucketFileSystem.writes == before + 1


def test_nothing_is_tried_by_who_only_reads(fs, store):
    fs.pipe_file("root/a", b"x")
    before = buckets.BucketFileSystem.writes
    store.get("a")
    list(store.list())
    assert buckets.BucketFileSystem.writes == before


def test_what_does_not_go_in_one_request_is_not_created(store):
    with pytest.raises(UnsupportedOperationError, match="larger than"):
        store.put("a", b"x" * 5_000_000)
    with pytest.raises(UnsupportedOperationError, match="larger than"):
        store.upload("a", io.BytesIO(b"x" * 5_000_000))


def test_what_does_not_go_in_one_request_may_be_uploaded_under_a_name_of_its_own(store):
    store.upload("a", io.BytesIO(b"x" * 9_000_000), OVERWRITE)
    assert store.head("a").size == 9_000_000


# What the filesystem lacks


def test_a_filesystem_that_tells_no_times_is_refused_by_name():
    store = FsspecStore(filesystem(buckets.WithoutTimes), "root")
    with pytest.raises(UnsupportedOperationError, match="does not say when"):
        store.put("a", b"x")


def test_a_filesystem_that_cannot_delete_is_refused_by_name(store, monkeypatch):
    monkeypatch.delattr(buckets.BucketFileSystem, "rm_file")
    with pytest.raises(UnsupportedOperationError):
        store.delete("a")


# Errors


def failing(monkeypatch, error, verb="pipe_file"):
    def fail(*args, **kwargs):  # noqa: ARG001
        raise error

    monkeypatch.setattr(buckets.BucketFileSystem, verb, fail)


class LibraryError(Exception):
    """Not of ours, and no OSError."""


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError("reset"), TimeoutError(), OSError(errno.EIO, "server error"),
     LibraryError("503")],
)  # fmt: skip
def test_a_write_that_breaks_may_have_happened(store, monkeypatch, error):
    store.put("a", b"x")
    failing(monkeypatch, error)
    with pytest.raises(OutcomeUnknownError, match="'b'"):
        store.put("b", b"x")


@pytest.mark.parametrize(
    ("error", "code"),
    [(PermissionError("denied"), errno.EACCES), (OSError(errno.ENOSPC, "full"), errno.ENOSPC)],
)
def test_a_write_that_is_refused_did_not_happen(store, monkeypatch, error, code):
    store.put("a", b"x")
    failing(monkeypatch, error)
    with pytest.raises(StoreError, match="'b'") as info:
        store.put("b", b"x")
    assert info.value.errno == code


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConnectionResetError("reset"), errno.ECONNRESET), (TimeoutError(), errno.ETIMEDOUT),
     (LibraryError("503"), None)],
)  # fmt: skip
def test_a_read_that_breaks_tells_what_may_pass_by_itself(store, monkeypatch, error, code):
    store.put("a", b"x")
    failing(monkeypatch, error, "cat_file")
    with pytest.raises(StoreError, match="'a'") as info:
        store.get("a")
    assert info.value.errno == code


def test_a_folder_is_not_found_as_an_object(store):
    store.put("a/b", b"x")
    with pytest.raises(NotFoundError):
        store.head("a")


def test_a_missing_folder_is_made_where_the_filesystem_needs_it(store, monkeypatch):
    made = []
    pipe_file = buckets.BucketFileSystem.pipe_file

    def needs_folder(self, path, value, mode="overwrite"):
        if path.rpartition("/")[0] not in made:
            raise FileNotFoundError(path)
        pipe_file(self, path, value, mode)

    monkeypatch.setattr(buckets.BucketFileSystem, "pipe_file", needs_folder)
    monkeypatch.setattr(
        buckets.BucketFileSystem, "makedirs", lambda _, path, **__: made.append(path)
    )
    store.put("a/b", b"x")
    assert made == ["root", "root/a"]


# Changes meanwhile


def test_a_read_that_is_overtaken_by_an_overwrite_is_of_one_version(fs, store, monkeypatch):
    store.put("a", b"old")
    info = buckets.BucketFileSystem.info
    overtaken = []

    def overtake(self, path):
        found = info(self, path)
        if not overtaken:
            overtaken.append(path)
            fs.pipe_file("root/a", b"new and longer")
        return found

    monkeypatch.setattr(buckets.BucketFileSystem, "info", overtake)
    found = store.get("a")
    assert (found.data, found.info.size) == (b"new and longer", 14)


def test_a_stream_that_is_overtaken_by_an_overwrite_is_of_one_version(fs, store, monkeypatch):
    store.put("a", b"old")
    cat_file = buckets.BucketFileSystem.cat_file
    overtaken = []

    def overtake(self, path):
        found = cat_file(self, path)
        if not overtaken:
            overtaken.append(path)
            fs.pipe_file("root/a", b"new")
        return found

    monkeypatch.setattr(buckets.BucketFileSystem, "cat_file", overtake)
    with store.open("a") as stream:
        assert stream.read() == b"new"


def test_what_the_filesystem_cached_is_not_believed(store, fs, monkeypatch):
    invalidated = []
    monkeypatch.setattr(fs, "invalidate_cache", lambda path=None: invalidated.append(path))
    store.put("a", b"x")
    for read in (lambda: store.get("a"), lambda: store.head("a"), lambda: list(store.list())):
        invalidated.clear()
        read()
        assert invalidated


def test_a_name_for_trials_is_never_listed(fs, store):
    fs.pipe_file(f"root/{TEMP_MARK}left-by-a-crash", b"")
    store.put("a", b"")
    assert [info.key for info in store.list()] == ["a"]


@pytest.mark.parametrize(
    "written", ["2024-04-15T10:30:00Z", "2024-04-15 10:30:00+00:00", 1713177000, 1713177000.0]
)
def test_times_are_read_in_the_forms_that_filesystems_give(fs, store, monkeypatch, written):
    fs.pipe_file("root/a", b"x")
    info = buckets.BucketFileSystem.info
    monkeypatch.setattr(
        buckets.BucketFileSystem, "info", lambda self, path: {**info(self, path), "mtime": written}
    )
    assert store.head("a").modified == 1713177000.0


def test_the_url_shows_no_credentials(fs):
    store = FsspecStore(fs, "bucket://user:secret@host/root")
    assert "secret" not in store.url
