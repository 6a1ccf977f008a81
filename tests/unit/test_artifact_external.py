import subprocess
import sys
from importlib.util import find_spec

import fsspec
import msgspec
import pytest

from tapstore.artifacts.external import check_uri, register
from tapstore.artifacts.fetch import fetch_to, open_artifact, read_bytes
from tapstore.artifacts.model import Artifact
from tapstore.errors import (
    ArtifactNotFoundError,
    BackendNotInstalledError,
    ChecksumError,
    FormatError,
    InvalidKeyError,
    StoreError,
)
from tapstore.stores.memory import MemoryStore
from tests.unit.artifact_places import sha256

SECRET = "hunter2"  # noqa: S105


@pytest.fixture
def elsewhere():
    """The URI of a file in fsspec's memory filesystem."""
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/test_artifact_external/model.bin", b"weights")
    yield "memory://test_artifact_external/model.bin"
    filesystem.rm("/test_artifact_external", recursive=True)


def external(uri, **options):
    return register(uri, **({"name": "model.bin", "phase": "p", "producer": "coder-01"} | options))


# Registering


def test_the_uri_is_the_path_and_nothing_is_fetched():
    artifact = external("s3://no-such-bucket/model.bin", size=7, type="model", consumers=["r"])
    assert artifact == Artifact(
        name="model.bin", phase="p", path="s3://no-such-bucket/model.bin", size=7, type="model",
        producer="coder-01", consumer=("r",),
    )  # fmt: skip


@pytest.mark.parametrize(
    "uri",
    ["s3://bucket/key", "https://example.org/a/b.bin?version=3#part", "gs://b/k", "memory://a/b",
     "sftp://user@host/file", "abfs://container@account.dfs.core.windows.net/x",
     "s3://bucket/a%20b", "https://host:8443/monkey?page_key_id=1&keyboard=us"],
)  # fmt: skip
def test_uris_of_places_pass(uri):
    assert check_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"https://{SECRET}@host/x",
        f"sftp://user:{SECRET}@host/x",
        f"s3://bucket/x?X-Amz-Signature={SECRET}",
        f"s3://bucket/x?a=b&X-Amz-Credential={SECRET}",
        f"s3://bucket/x?AWSAccessKeyId={SECRET}",
        f"https://host/x?sig={SECRET}",
        f"https://host/x?access_token={SECRET}",
        f"https://host/x?accessToken={SECRET}",
        f"https://host/x?api_key={SECRET}",
        f"https://host/x#token={SECRET}",
    ],
)
def test_credentials_are_refused_and_not_shown(uri):
    with pytest.raises(InvalidKeyError, match="credential") as caught:
        external(uri)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///mnt/shared/x", "means something else on each machine"),
        ("FILE:///mnt/shared/x", "means something else on each machine"),
        ("file://localhost/x", "means something else on each machine"),
        ("local:///x", "means something else on each machine"),
        ("git://~/repo:main@x", "means something else on each machine"),
        ("simplecache::s3://bucket/x", "scheme://place/path"),
        ("s3://bucket/x::file:///etc/passwd", "chained"),
        ("zip://member::file:///etc/archive.zip", "means something else"),
        ("x.py", "scheme://place/path"),
        ("s3://", "scheme://place/path"),
        ("s3:///x", "scheme://place/path"),
        ("s3://bucket/a b", "percent-encode"),
        ("s3://bucket/a\nb", "percent-encode"),
        ("http://[", "Invalid IPv6"),
        ("s3://bucket/" + "x" * 2000, "longer than"),
    ],
)  # fmt: skip
def test_what_others_could_not_open_is_refused_with_the_reason(uri, reason):
    with pytest.raises(InvalidKeyError, match=reason):
        external(uri)


@pytest.mark.parametrize("changes", [{"name": "a/b"}, {"phase": "a/b"}, {"size": -1}])
def test_name_phase_and_size_are_checked(changes):
    with pytest.raises(InvalidKeyError):
        external("s3://bucket/x", **changes)


def test_a_checksum_that_nobody_could_verify_is_refused():
    with pytest.raises(FormatError, match="md5"):
        external("s3://bucket/x", checksum="md5:abc")


def test_registering_imports_no_fsspec():
    code = (
        "import sys; from tapstore.artifacts import external, publish, fetch, collect;"
        "external.register('s3://bucket/x', name='x', phase='');"
        "sys.exit('fsspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Fetching


@pytest.mark.parametrize("checksum", ["", sha256(b"weights")])
def test_bytes_elsewhere_are_read(elsewhere, checksum):
    artifact = external(elsewhere, checksum=checksum)
    assert read_bytes(MemoryStore(), artifact) == b"weights"


def test_bytes_elsewhere_are_fetched_to_a_file(elsewhere, tmp_path):
    fetch_to(MemoryStore(), external(elsewhere), "m.bin", inside=tmp_path)
    assert (tmp_path / "m.bin").read_bytes() == b"weights"


def test_bytes_elsewhere_are_verified_when_a_checksum_was_given(elsewhere, tmp_path):
    artifact = external(elsewhere, checksum=sha256(b"WEIGHTS"))
    with pytest.raises(ChecksumError, match=r"memory://.*model\.bin.*coder-01"):
        fetch_to(MemoryStore(), artifact, tmp_path / "m.bin")
    assert list(tmp_path.iterdir()) == []


def test_bytes_elsewhere_are_verified_by_size_when_only_that_was_given(elsewhere):
    with pytest.raises(ChecksumError, match="6 bytes"):
        read_bytes(MemoryStore(), external(elsewhere, size=6))


def test_nothing_at_the_uri_is_told_with_producer_and_advice(elsewhere):
    with pytest.raises(ArtifactNotFoundError, match=r"coder-01.*publish it again"):
        read_bytes(MemoryStore(), external(elsewhere + ".gone"))


@pytest.mark.parametrize("uri", ["file:///etc/hostname", "s3://b/x::file:///etc/hostname"])
def test_a_uri_that_others_wrote_is_checked_again(uri):
    artifact = Artifact(name="x", path=uri, checksum=sha256(b""))
    with pytest.raises(InvalidKeyError, match="invalid artifact URI"):
        read_bytes(MemoryStore(), artifact)


def test_credentials_that_others_wrote_are_not_shown():
    artifact = Artifact(name="x", path=f"s3://key:{SECRET}@bucket/x?sig={SECRET}")
    with pytest.raises(InvalidKeyError) as caught:
        read_bytes(MemoryStore(), artifact)
    assert SECRET not in str(caught.value)


@pytest.mark.skipif(find_spec("aiohttp") is not None, reason="aiohttp is installed")
def test_without_its_driver_the_command_that_installs_it_is_told():
    with pytest.raises(BackendNotInstalledError, match="pip install aiohttp requests"):
        read_bytes(MemoryStore(), external("https://localhost/x"))


def test_a_scheme_that_nobody_knows_is_told():
    with pytest.raises(BackendNotInstalledError, match="nosuch://"):
        read_bytes(MemoryStore(), external("nosuch://place/x"))


class Flaky(fsspec.AbstractFileSystem):
    """A filesystem whose driver fails in its own words."""

    protocol = "flaky"

    def __init__(self, *, when: str = "read", password: str = "", **options: object) -> None:
        super().__init__(**options)
        self.when, self.password = when, password

    def open(self, path, mode="rb", **_):
        if self.when == "open":
            raise RuntimeError(f"login of {self.password} failed for {path} {mode}")
        return self

    def read(self, size):
        raise RuntimeError(f"connection reset after {size} bytes, password {self.password}")

    def close(self):
        pass


@pytest.mark.parametrize("when", ["open", "read"])
def test_a_driver_that_fails_is_a_store_error_without_its_secrets(when):
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    options = {"when": when, "password": SECRET}
    with pytest.raises(StoreError, match=r"cannot read artifact.*RuntimeError") as caught:
        read_bytes(MemoryStore(), external("flaky://place/x"), storage_options=options)
    assert SECRET not in str(caught.value)


class Remembering(fsspec.AbstractFileSystem):
    """A filesystem that keeps the listing that it was made with, as many do."""

    protocol = "remembering"

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.memory = fsspec.filesystem("memory")
        self.listing = set(self.memory.find("/test_artifact_external"))

    def open(self, path, mode="rb", **_):
        if f"/{path}" not in self.listing:
            raise FileNotFoundError(path)
        return self.memory.open(path, mode)


@pytest.mark.usefixtures("elsewhere")
def test_what_came_after_an_earlier_look_is_found():
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    artifact = external("remembering://test_artifact_external/late")
    with pytest.raises(ArtifactNotFoundError):
        read_bytes(MemoryStore(), artifact)
    fsspec.filesystem("memory").pipe_file("/test_artifact_external/late", b"late")
    assert read_bytes(MemoryStore(), artifact) == b"late"


def test_an_error_of_the_reader_is_not_taken_for_one_of_the_driver(elsewhere):
    artifact = msgspec.structs.replace(external(elsewhere), size=None)
    with (
        pytest.raises(FileNotFoundError, match="mine"),
        open_artifact(MemoryStore(), artifact),
    ):
        raise FileNotFoundError("mine")
