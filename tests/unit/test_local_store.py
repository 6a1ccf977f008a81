"""What LocalStore promises beyond the contract of all stores."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from store_places import LocalPlace

from tapstore.errors import (
    AlreadyExistsError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.keys import TEMP_MARK
from tapstore.stores.local import LocalStore
from tapstore.testing.stores import StoreTests
from tapstore.types import CREATE, OVERWRITE, Capabilities

SHM = Path("/dev/shm")

LOCAL = Capabilities(create=True, update=False, conditional_delete=False, files=True)


class TestOnDisk(StoreTests):
    capabilities = LOCAL

    @pytest.fixture
    def place(self, tmp_path):
        return LocalPlace(tmp_path / "root")


class TestOnDiskNotDurable(StoreTests):
    capabilities = LOCAL

    @pytest.fixture
    def place(self, tmp_path):
        return LocalPlace(tmp_path / "root", durability="none")


@pytest.mark.skipif(not os.access(SHM, os.W_OK), reason="no writable tmpfs at /dev/shm")
class TestOnTmpfs(StoreTests):
    capabilities = LOCAL

    @pytest.fixture
    def place(self):
        folder = Path(tempfile.mkdtemp(dir=SHM))
        yield LocalPlace(folder / "root")
        shutil.rmtree(folder)


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "root")


@pytest.fixture
def root(store):
    return Path(store.root)


def leftovers(root):
    return [name for _, _, names in os.walk(root) for name in names if name.startswith(TEMP_MARK)]


# Opening


def test_opening_makes_nothing(tmp_path):
    LocalStore(tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_reading_makes_nothing(store, root):
    with pytest.raises(NotFoundError):
        store.get("a")
    assert not root.exists()


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(ValueError, match="durability"):
        LocalStore(tmp_path, durability="some")


# Files as others see them


def test_new_files_and_folders_follow_the_umask(store, root):
    before = os.umask(0o027)
    try:
        store.put("a/b", b"x")
        store.put("a/c", b"x", OVERWRITE)
    finally:
        os.umask(before)
    modes = {name: (root / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/c")}
    assert modes == {"a": 0o750, "a/b": 0o640, "a/c": 0o640}


def test_a_file_has_one_name_only(store, root):
    store.put("a", b"x")
    assert (root / "a").stat().st_nlink == 1


def test_an_overwrite_leaves_open_files_and_links_to_the_old_one_alone(store, root):
    store.put("a", b"old")
    os.link(root / "a", root / "kept")
    store.put("a", b"new", OVERWRITE)
    assert (root / "kept").read_bytes() == b"old"


def test_each_create_has_an_inode_of_its_own(store, root):
    for name in "abc":
        store.put(name, b"same")
    assert len({(root / name).stat().st_ino for name in "abc"}) == 3


# The costs


def calls_of(monkeypatch, action):
    """The names of os functions that `action` calls, in order."""
    seen = []

    def spy(name, function):
        def call(*args, **kwargs):
            seen.append(name)
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "write", "read", "fsync", "fstat", "close", "link", "unlink",
                     "replace", "stat", "lstat", "mkdir", "makedirs", "scandir"):  # fmt: skip
            patch.setattr(os, name, spy(name, getattr(os, name)))
        action()
    return seen


def test_a_durable_create_in_a_known_folder_makes_no_needless_call(store, monkeypatch):
    store.put("log/1", b"x")
    assert calls_of(monkeypatch, lambda: store.put("log/2", b"x")) == [
        "open", "write", "fsync", "fstat", "close", "link", "unlink", "open", "fsync", "close",
    ]  # fmt: skip


def test_a_create_that_need_not_last_syncs_nothing(tmp_path, monkeypatch):
    store = LocalStore(tmp_path, durability="none")
    store.put("log/1", b"x")
    assert calls_of(monkeypatch, lambda: store.put("log/2", b"x")) == [
        "open", "write", "fstat", "close", "link", "unlink",
    ]  # fmt: skip


def test_a_read_makes_no_needless_call(store, monkeypatch):
    store.put("log/1", b"x")
    assert calls_of(monkeypatch, lambda: store.get("log/1")) == ["open", "fstat", "read", "close"]


@pytest.fixture
def synced(monkeypatch):
    """The folders that are opened, which is done to sync them only."""
    found = []
    function = os.open

    def call(path, *arguments, **options):
        if TEMP_MARK not in str(path):
            found.append(path)
        return function(path, *arguments, **options)

    monkeypatch.setattr(os, "open", call)
    return found


def test_the_folders_that_lead_to_a_new_file_are_synced_too(store, root, synced):
    store.put("a/b/c", b"x")
    assert synced == [str(path) for path in (root / "a/b", root / "a", root, root.parent)]


def test_a_folder_that_another_process_made_is_synced_all_the_same(store, root, synced):
    (root / "a").mkdir(parents=True)
    store.put("a/b", b"x")
    assert synced == [str(path) for path in (root / "a", root, root.parent)]


def test_a_folder_that_is_made_again_is_synced_again(store, root, synced):
    store.put("a/b", b"x")
    shutil.rmtree(root / "a")
    synced.clear()
    store.put("a/b", b"x")
    assert str(root) in synced


def test_an_upload_needs_little_memory(store):
    class Zeros(io.BytesIO):
        left = 64

        def read(self, size=-1):
            self.left -= 1
            return b"\0" * min(size, 1 << 20) if self.left >= 0 else b""

    tracemalloc.start()
    try:
        store.upload("a", Zeros())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (store.head("a").size, peak < 8 << 20) == (64 << 20, True)


# Confinement


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.mark.parametrize("call", ["get", "head", "put", "delete", "local_path"])
def test_a_folder_that_leads_out_is_refused(store, root, outside, call):
    root.mkdir()
    (root / "link").symlink_to(outside)
    arguments = (b"x", OVERWRITE) if call == "put" else ()
    with pytest.raises(InvalidKeyError, match="leads out"):
        getattr(store, call)("link/secret", *arguments)
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("call", ["get", "head", "open", "local_path"])
def test_a_file_that_leads_out_is_refused(store, root, outside, call):
    root.mkdir()
    (root / "link").symlink_to(outside / "secret")
    with pytest.raises(InvalidKeyError, match="leads out"):
        getattr(store, call)("link")


def test_no_folder_is_made_where_a_link_leads_out(store, root, outside):
    root.mkdir()
    (root / "link").symlink_to(outside / "new")
    with pytest.raises(InvalidKeyError, match="leads out"):
        store.put("link/a", b"x")
    assert not (outside / "new").exists()


def test_folders_that_hold_nothing_are_removed_up_to_a_bound(store, root):
    for key in ("new/a/b/1", "new/a/c/2"):
        store.put(key, b"x")
    store.delete("new/a/b/1")
    store.drop_empty_folders("new/a/b/1", below="new/")
    assert os.listdir(root / "new/a") == ["c"]
    store.delete("new/a/c/2")
    store.drop_empty_folders("new/a/c/2", below="new/")
    assert os.listdir(root / "new") == []


def test_no_folder_is_removed_where_a_link_leads_out(store, root, outside):
    (outside / "b").mkdir()
    (root / "new").mkdir(parents=True)
    (root / "new/a").symlink_to(outside)
    store.drop_empty_folders("new/a/b/1", below="new/")
    assert (outside / "b").is_dir()


def test_a_file_that_stays_inside_is_read(store, root):
    store.put("a", b"data")
    (root / "link").symlink_to("a")
    assert (store.get("link").data, store.head("link").size) == (b"data", 4)


def test_a_folder_that_stays_inside_is_used(store, root):
    store.put("real/a", b"data")
    (root / "link").symlink_to("real")
    store.put("link/b", b"more")
    assert (root / "real/b").read_bytes() == b"more"


def test_an_overwrite_replaces_a_link_and_not_what_it_leads_to(store, root, outside):
    root.mkdir()
    (root / "link").symlink_to(outside / "secret")
    store.put("link", b"new", OVERWRITE)
    assert ((outside / "secret").read_bytes(), (root / "link").read_bytes()) == (b"secret", b"new")


def test_a_create_does_not_follow_a_link(store, root, outside):
    root.mkdir()
    (root / "link").symlink_to(outside / "new")
    with pytest.raises(AlreadyExistsError):
        store.put("link", b"x")
    assert not (outside / "new").exists()


def test_a_root_that_is_a_link_itself_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    store = LocalStore(tmp_path / "root")
    store.put("a/b", b"x")
    assert (store.get("a/b").data, (tmp_path / "real/a/b").read_bytes()) == (b"x", b"x")


def test_a_folder_that_was_replaced_by_a_link_that_leads_out_is_noticed_when_made_anew(
    store, root, outside
):
    store.put("a/b", b"x")
    shutil.rmtree(root / "a")
    (root / "a").symlink_to(outside / "gone")
    with pytest.raises(InvalidKeyError, match="leads out"):
        store.put("a/c", b"x")


def test_listings_leave_out_links_that_lead_out_or_nowhere_or_round(store, root, outside):
    store.put("a/b", b"x")
    (root / "out").symlink_to(outside / "secret")
    (root / "nowhere").symlink_to("missing")
    (root / "round").symlink_to("a")
    (root / "a/up").symlink_to("..")
    (root / "good").symlink_to("a/b")
    assert [info.key for info in store.list()] == ["a/b", "good"]
    assert list(store.children()) == ["a/", "good"]


def test_links_that_go_round_are_an_error_of_the_place(store, root):
    root.mkdir()
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(StoreError, match="circle"):
        store.get("one")


# Names


def test_what_is_no_key_is_not_listed(store, root):
    store.put("a", b"")
    for name in ("b:c", "CON", "end.", TEMP_MARK + "0", os.fsdecode(b"\xff"), "e\u0301"):
        (root / name).write_bytes(b"")
    (root / "f:").mkdir()
    (root / "f:/a").write_bytes(b"")
    assert ([info.key for info in store.list()], list(store.children())) == (["a"], ["a"])


def test_a_listing_does_not_look_into_folders_before_its_start(store, root, monkeypatch):
    for name in ("a/1", "b/1", "c/1", "d/1"):
        store.put(name, b"")
    looked = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked.append(path), scandir(path))[1])
    assert [info.key for info in store.list(start_after="c/0")] == ["c/1", "d/1"]
    assert looked == [f"{root}/", f"{root}/c/", f"{root}/d/"]


# What is in the way


def test_a_folder_where_a_file_should_be(store, root):
    (root / "a").mkdir(parents=True)
    for action in (
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: store.put("a", b"", CREATE),
        lambda: store.put("a", b"", OVERWRITE),
        lambda: store.delete("a"),
    ):
        with pytest.raises(
            StoreError, match=r"'a' in .*a folder is where a file should be"
        ) as info:
            action()
        assert info.value.errno == errno.EISDIR
    assert leftovers(root) == []


def test_a_file_where_a_folder_should_be(store):
    store.put("a", b"data")
    with pytest.raises(StoreError, match=r"'a/b/c' in .*a file is where a folder should be"):
        store.put("a/b/c", b"")
    assert store.get("a").data == b"data"


def test_below_a_file_nothing_is_found(store):
    store.put("a", b"data")
    with pytest.raises(NotFoundError):
        store.get("a/b")
    store.delete("a/b")
    assert list(store.list("a/")) == []


def test_a_fifo_does_not_block_its_reader(store, root):
    root.mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        store.get("pipe")


def raising(code, monkeypatch, name, times=1):
    """Let the next `times` calls of `os.<name>` fail."""
    function = getattr(os, name)
    left = [times]

    def call(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return function(*args, **kwargs)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("step", ["open", "write", "fsync", "fstat"])
@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "disk is full"), (errno.EIO, "system log"), (errno.EROFS, "read-only")],
)
def test_a_write_that_fails_leaves_all_as_it_was(store, root, monkeypatch, step, code, advice):
    store.put("a", b"old")
    raising(code, monkeypatch, step)
    with pytest.raises(StoreError, match=advice) as info:
        store.put("a", b"new", OVERWRITE)
    monkeypatch.undo()
    assert (info.value.errno, store.get("a").data, leftovers(root)) == (code, b"old", [])


def test_a_full_disk_that_shows_on_close_fails_the_write(store, root, monkeypatch):
    store.put("a", b"old")
    close = os.close

    def full(fd):
        close(fd)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "close", full)
    with pytest.raises(StoreError, match="disk is full"):
        store.put("b", b"new")
    monkeypatch.undo()
    assert [info.key for info in store.list()] == ["a"]
    assert leftovers(root) == []


def test_a_place_without_hard_links_lacks_create_by_name(store, monkeypatch):
    store.put("a", b"x")
    raising(errno.EPERM, monkeypatch, "link")
    with pytest.raises(UnsupportedOperationError, match=r"'create'.*hard links"):
        store.put("b", b"x")


# Lost replies on NFS, played by functions that do the work and then fail


def done_but(code, monkeypatch, name):
    function = getattr(os, name)

    def call(*args, **kwargs):
        function(*args, **kwargs)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO, errno.ETIMEDOUT])
def test_a_link_that_was_made_though_its_reply_says_no_is_ours(store, monkeypatch, code):
    store.put("a", b"")
    with monkeypatch.context() as patch:
        done_but(code, patch, "link")
        store.put("b", b"ours")
    assert store.get("b").data == b"ours"


def test_a_rename_that_was_done_though_its_reply_says_no_is_ours(store, monkeypatch):
    store.put("a", b"")
    with monkeypatch.context() as patch:
        done_but(errno.ENOENT, patch, "replace")
        store.put("a", b"ours", OVERWRITE)
    assert store.get("a").data == b"ours"


@pytest.mark.parametrize("name", ["link", "replace"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ETIMEDOUT])
def test_a_server_that_does_not_answer_leaves_the_outcome_unknown(store, monkeypatch, name, code):
    store.put("a", b"")
    raising(code, monkeypatch, name)
    with pytest.raises(OutcomeUnknownError, match="'b'"):
        store.put("b", b"", CREATE if name == "link" else OVERWRITE)


def test_a_name_that_may_not_last_is_an_unknown_outcome(store, monkeypatch):
    store.put("a", b"")
    fsync = os.fsync
    calls = []

    def second_fails(fd):
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(OutcomeUnknownError):
        store.put("b", b"")


def test_a_file_system_that_cannot_sync_folders_is_served(store, monkeypatch):
    fsync = os.fsync

    def only_files(fd):
        if not os.path.isfile(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", only_files)
    store.put("a", b"data")
    assert store.get("a").data == b"data"


@pytest.mark.parametrize("name", ["open", "link", "scandir"])
def test_a_stale_handle_is_looked_up_again(store, monkeypatch, name):
    store.put("a", b"data")
    raising(errno.ESTALE, monkeypatch, name, times=2)
    action = {"open": lambda: store.get("a"), "link": lambda: store.put("b", b""),
              "scandir": lambda: list(store.list())}[name]  # fmt: skip
    action()


def test_a_handle_that_stays_stale_is_an_error(store, monkeypatch):
    store.put("a", b"data")
    raising(errno.ESTALE, monkeypatch, "open", times=99)
    with pytest.raises(StoreError, match="stale"):
        store.get("a")


# Temporary files


def test_a_writer_whose_temporary_file_was_swept_writes_it_again(store, root, monkeypatch):
    store.put("a", b"")
    link = os.link
    swept = []

    def sweep_first(source, target):
        if not swept:
            swept.append(source)
            os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", sweep_first)
    store.put("b", b"data")
    assert (store.get("b").data, len(swept), leftovers(root)) == (b"data", 1, [])


def test_a_folder_that_is_removed_while_it_is_written_into_is_made_again(store, root, monkeypatch):
    store.put("a/b", b"")
    link = os.link
    removed = []

    def remove_first(source, target):
        if not removed:
            removed.append(source)
            shutil.rmtree(root / "a")
        link(source, target)

    monkeypatch.setattr(os, "link", remove_first)
    store.put("a/c", b"data")
    assert store.get("a/c").data == b"data"


@pytest.fixture
def abandoned(store, root):
    """Two temporary files of dead writers, an old and a fresh one, and an old file of others."""
    store.put("a/kept", b"")
    old, fresh = root / "a" / f"{TEMP_MARK}old", root / f"{TEMP_MARK}fresh"
    for path in (old, fresh, root / "a/.other-tmp"):
        path.write_bytes(b"")
    hour_ago = time.time() - 3600
    for path in (old, root / "a/kept", root / "a/.other-tmp"):
        os.utime(path, (hour_ago, hour_ago))
    return f"a/{TEMP_MARK}old"


def test_a_sweep_removes_old_temporary_files_only(store, root, abandoned):
    assert store.sweep(600) == (abandoned,)
    left = {path.name for path in root.rglob("*") if path.is_file()}
    assert left == {"kept", ".other-tmp", f"{TEMP_MARK}fresh"}


def test_a_sweep_can_be_looked_at_first(store, root, abandoned):
    assert store.sweep(600, dry_run=True) == (abandoned,)
    assert (root / abandoned).exists()


# The store's clock


class HostClock:
    """A host whose wall clock is a year off, and whose monotonic clock is moved by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def time(self):
        return time.time() - 365 * 86400

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


def test_now_is_the_time_of_the_file_system_not_of_the_host(tmp_path):
    store = LocalStore(tmp_path, clock=HostClock())
    assert abs(store.now() - time.time()) < 5


def test_now_is_carried_on_without_writing(tmp_path):
    clock = HostClock()
    store = LocalStore(tmp_path, clock=clock)
    first = store.now()
    os.rmdir(tmp_path)
    clock.sleep(10)
    assert store.now() == pytest.approx(first + 10)


def test_now_is_looked_at_again_after_a_minute(tmp_path):
    clock = HostClock()
    store = LocalStore(tmp_path, clock=clock)
    first = store.now()
    clock.sleep(61)
    # The file system's clock did not move by that minute, only ours did.
    assert store.now() - first < 30


def test_a_write_tells_the_time_for_free(tmp_path):
    store = LocalStore(tmp_path, clock=HostClock())
    modified = store.put("a", b"").modified
    shutil.rmtree(tmp_path)
    assert store.now() == pytest.approx(modified)


# Concurrency


def test_a_create_racing_with_the_removal_of_its_folder_ends_well(store, root):
    stop = threading.Event()

    def remove():
        while not stop.is_set():
            shutil.rmtree(root / "a", ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(50):
            try:
                store.put(f"a/{number}", b"x")
            except StoreError as exc:
                assert exc.errno == errno.ENOENT  # noqa: PT017 - most of them succeed
            except OutcomeUnknownError:
                pass  # it was removed when it was there, and before its name was synced
    finally:
        stop.set()
        remover.join()
