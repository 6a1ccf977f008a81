"""Places and lock services are found by path, URL, object and name."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import bucket_filesystem as buckets
import fsspec
import pytest
from fsspec.implementations.cached import SimpleCacheFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from tapstore import registry
from tapstore.errors import BackendNotInstalledError, InvalidKeyError, UnsupportedOperationError
from tapstore.registry import open_locks, open_store
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore

ROOT = Path(__file__).parents[2]


# Folders


@pytest.mark.parametrize("form", ["{}", "file://{}", "local://{}"])
def test_a_path_or_file_url_is_a_folder(tmp_path, form):
    store = open_store(form.format(tmp_path / "a b#c?d%20"))
    store.put("k", b"x")
    assert (tmp_path / "a b#c?d%20" / "k").read_bytes() == b"x"


def test_a_path_object_is_a_folder(tmp_path):
    assert open_store(tmp_path).url == f"file://{tmp_path}"


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_store("here/it is").url == f"file://{tmp_path}/here/it is"


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/x").url == f"file://{tmp_path}/x"


def test_a_name_with_colons_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_store("run 12:30").url == f"file://{tmp_path}/run 12:30"


def test_durability_is_a_storage_option(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    open_store(tmp_path, storage_options={"durability": "none"}).put("a", b"")
    assert synced == []


@pytest.mark.parametrize("url", ["{}", "memory://options"])
def test_an_unknown_storage_option_is_refused_by_name(tmp_path, url):
    with pytest.raises(TypeError, match="'endpoint'"):
        open_store(url.format(tmp_path), storage_options={"endpoint": 1})


# Memory


def test_stores_of_one_memory_url_share_their_objects():
    open_store("memory://open-store/a").put("k", b"x")
    assert open_store("memory://open-store").get("a/k").data == b"x"


def test_memory_without_a_name_is_refused():
    with pytest.raises(InvalidKeyError, match="memory://name"):
        open_store("memory://")


# Malformed


@pytest.mark.parametrize(
    ("url", "advice"),
    [("", "give a path or a URL"), ("a\0b", "give a path or a URL"),
     ("file://host/a", "file:///absolute"), ("file://", "file:///absolute"),
     ("s3:/bucket/a", "two slashes"), ("file:/a", "two slashes"),
     ("simplecache::s3://bucket/a", "cache"), ("memory://a/../b", "segment")],
)  # fmt: skip
def test_a_malformed_url_is_refused_with_advice(url, advice):
    with pytest.raises(InvalidKeyError, match=advice):
        open_store(url)


@pytest.mark.parametrize("place", [None, 42, b"/tmp", ["a"]])
def test_what_is_no_place_is_refused(place):
    with pytest.raises(TypeError, match="cannot open a store"):
        open_store(place)


@pytest.mark.parametrize(
    "url",
    ["s3://KEY:hunter2@bucket/a?token=hunter2", "nosuch://u:hunter2@h/a", "s3:/u:hunter2@h",
     "nosuch://[hunter2@x", "file://u:hunter2@host/a", "simplecache::nosuch://u:hunter2@h/a"],
)  # fmt: skip
def test_no_error_shows_credentials(url):
    with pytest.raises((BackendNotInstalledError, InvalidKeyError)) as info:
        open_store(url)
    assert "hunter2" not in str(info.value)


# Packages


@pytest.fixture
def core_alone(monkeypatch):
    """As if no package of ours were installed but the core."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("url", ["s3://bucket/a", "s3a://bucket/a"])
def test_s3_names_the_package_to_install(url):
    with pytest.raises(BackendNotInstalledError, match=r'pip install "tapstore\[s3\]"'):
        open_store(url)


def test_a_filesystem_whose_package_is_missing_names_it():
    with pytest.raises(BackendNotInstalledError, match="pip install gcsfs"):
        open_store("gs://bucket/a")


def test_an_unknown_scheme_says_so():
    with pytest.raises(BackendNotInstalledError, match=r"nosuch://host/a.*spelling"):
        open_store("nosuch://host/a")


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Install packages with entry points, as pip does, where Python looks for them."""

    def install(name, group, points, code):
        module = name.replace("-", "_")
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
        (tmp_path / f"{module}.py").write_text(code)

    monkeypatch.syspath_prepend(tmp_path)
    return install


def test_a_package_adds_a_store_that_need_neither_repeat_nor_read_back(plug_in):
    plug_in("tap-good", "tapstore.stores", "good = tap_good:open", (
        "from tapstore.stores.memory import MemoryStore\n"
        "def open(url, *, storage_options, clock):\n"
        "    store = MemoryStore()\n"
        "    store.seen = (url, dict(storage_options))\n"
        "    return store\n"
    ))  # fmt: skip
    store = open_store("good://host/a", storage_options={"x": 1})
    assert isinstance(store, RetryStore)
    assert isinstance(store.inner, ReadBackStore)
    assert store.inner.inner.seen == ("good://host/a", {"x": 1})


def test_a_broken_package_is_reported_with_its_name(plug_in):
    plug_in("tap-broken", "tapstore.stores", "broken = tap_broken:open", "import no_such_module\n")
    with pytest.raises(BackendNotInstalledError, match=r"tap-broken .*no_such_module.*pip install"):
        open_store("broken://host/a")


def test_a_broken_package_harms_nobody_else(plug_in, tmp_path):
    plug_in("tap-bad", "tapstore.stores", "bad = tap_bad:open\nfile = tap_bad:open", "1 / 0\n")
    assert isinstance(open_store(tmp_path), LocalStore)
    with pytest.raises(BackendNotInstalledError, match="gcsfs"):
        open_store("gs://bucket/a")


def test_two_packages_that_offer_the_same_are_refused_by_name(plug_in):
    for name in ("tap-one", "tap-two"):
        plug_in(name, "tapstore.stores", "twice = tap_one:open", "")
    with pytest.raises(BackendNotInstalledError, match="tap-one, tap-two"):
        open_store("twice://host/a")


# Objects of fsspec


def test_a_filesystem_of_folders_is_a_local_store(tmp_path):
    for place in (
        (LocalFileSystem(), str(tmp_path)),
        DirFileSystem(str(tmp_path), LocalFileSystem()),
        fsspec.open(f"file://{tmp_path}"),
    ):
        store = open_store(place)
        assert isinstance(store, LocalStore)
        assert store.root == str(tmp_path)


def test_a_filesystem_object_is_a_store_at_its_top():
    fs = buckets.BucketFileSystem(os.urandom(8).hex())
    open_store(fs).put("a/b", b"x")
    assert fs.cat_file("a/b") == b"x"


def test_a_pair_of_filesystem_and_path_is_a_store_below_it():
    fs = buckets.BucketFileSystem(os.urandom(8).hex())
    open_store((fs, "team/alpha")).put("a", b"x")
    assert fs.cat_file("team/alpha/a") == b"x"


def test_folders_of_a_filesystem_are_looked_through():
    fs = buckets.BucketFileSystem(os.urandom(8).hex())
    open_store((DirFileSystem("team", DirFileSystem("x", fs)), "alpha")).put("a", b"x")
    assert fs.cat_file("x/team/alpha/a") == b"x"


@pytest.fixture
def registered():
    """Make fsspec know `bucket://`, as a package that brings a filesystem does."""
    fsspec.register_implementation("bucket", buckets.BucketFileSystem, clobber=True)


@pytest.mark.usefixtures("registered")
def test_a_url_of_a_registered_filesystem_is_a_store():
    open_store("bucket://team/alpha", storage_options={"name": "by-url"}).put("a", b"x")
    assert buckets.BucketFileSystem("by-url").cat_file("team/alpha/a") == b"x"


class Cachable(buckets.BucketFileSystem):
    protocol = "cachable"
    cachable = True


def test_what_fsspec_opens_caches_nothing():
    fsspec.register_implementation("cachable", Cachable, clobber=True)
    first, second = (open_store("cachable://team").inner.inner._fs for _ in range(2))
    assert not first.dircache.use_listings_cache
    assert first is not second


def test_a_lost_reply_is_resolved_for_every_filesystem(monkeypatch):
    fs = buckets.BucketFileSystem(os.urandom(8).hex())
    store = open_store((fs, "a"))
    store.put("first", b"x")
    pipe_file = buckets.BucketFileSystem.pipe_file

    def lose_the_reply(self, path, value, mode="overwrite"):
        pipe_file(self, path, value, mode)
        monkeypatch.undo()
        raise ConnectionResetError("reset")

    monkeypatch.setattr(buckets.BucketFileSystem, "pipe_file", lose_the_reply)
    store.put("k", b"ours")
    assert fs.cat_file("a/k") == b"ours"


def test_a_filesystem_that_caches_is_refused():
    cached = SimpleCacheFileSystem(fs=buckets.BucketFileSystem())
    with pytest.raises(UnsupportedOperationError, match="the filesystem below it"):
        open_store(cached)


def test_storage_options_of_an_object_are_its_own():
    with pytest.raises(TypeError, match="storage_options"):
        open_store(buckets.BucketFileSystem(), storage_options={"x": 1})


def test_an_s3_object_names_the_package_to_install():
    class S3Like(buckets.BucketFileSystem):
        protocol = ("s3", "s3a")

    with pytest.raises(BackendNotInstalledError, match=r"tapstore\[s3\]"):
        open_store((S3Like(), "bucket/a"))


# Lock services


def test_a_package_adds_a_lock_service_by_its_entry_point(plug_in):
    plug_in("tap-locks", "tapstore.locks", "tapred = tap_locks:open", (
        "def open(store, prefix, *, url, scope, clock):\n    return (store, prefix, url, scope)\n"
    ))  # fmt: skip
    store = MemoryStore()
    assert open_locks("tapred://cache:6379/0", store, ".tap/locks", scope="s1") == (
        store, ".tap/locks", "tapred://cache:6379/0", "s1",
    )  # fmt: skip


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "rediss+cluster"])
def test_redis_names_the_package_to_install(scheme):
    with pytest.raises(BackendNotInstalledError, match=r'pip install "tapstore\[redis\]"') as info:
        open_locks(f"{scheme}://u:hunter2@cache:6379/0", MemoryStore(), "locks", scope="s1")
    assert "hunter2" not in str(info.value)


@pytest.mark.parametrize("name", ["", "://", "redis://", "nosuch"])
def test_a_lock_service_that_nobody_offers_is_refused(name):
    with pytest.raises((InvalidKeyError, BackendNotInstalledError)):
        open_locks(name, MemoryStore(), "locks", scope="s1")


def test_the_built_in_lock_services_are_our_entry_points():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["tapstore.locks"] == registry._BUILT_IN_LOCKS


# Costs


def test_opening_a_folder_imports_no_fsspec_and_scans_no_packages(tmp_path):
    code = (
        "import sys; from tapstore.registry import open_store; "
        f"open_store({str(tmp_path)!r}); open_store('memory://x'); "
        "assert not {'fsspec', 'importlib.metadata'} & set(sys.modules)"
    )
    # -S: site itself imports importlib.metadata for some editable installs.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env=environment)
