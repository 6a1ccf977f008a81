import io
import os
import resource
import stat
from dataclasses import dataclass

import msgspec
import pytest

from tapstore.artifacts.fetch import fetch_to, open_artifact, read_bytes, read_text
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import stage
from tapstore.artifacts.streams import CHUNK_BYTES, DRAIN_BYTES, VerifyingReader, buffered
from tapstore.errors import (
    ArtifactNotFoundError,
    ChecksumError,
    FormatError,
    InvalidKeyError,
    StoreError,
)
from tapstore.stores.local import LocalStore
from tapstore.types import OVERWRITE
from tests.unit.artifact_places import make_place, sha256

SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES]


@pytest.fixture(params=["memory", "local"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def publish(place, data=b"data", **options):
    options = {"name": "x.py", "phase": "p", "suffix": "c1", "producer": "coder-01"} | options
    return stage(place.store, data, **options)


def tamper(place, artifact, data=b"DATA"):
    place.store.put(artifact.path, data, OVERWRITE)


def replace(artifact, **changes):
    return msgspec.structs.replace(artifact, **changes)


# Reading


@pytest.mark.parametrize("size", SIZES)
def test_what_was_published_is_read(place, size):
    assert read_bytes(place.store, publish(place, b"x" * size)) == b"x" * size


def test_text_is_decoded_and_its_line_ends_are_kept(place):
    assert read_text(place.store, publish(place, "é\r\n日本\n".encode())) == "é\r\n日本\n"


def test_what_is_not_text_is_told_by_the_artifacts_name(place):
    with pytest.raises(FormatError, match=r"artifact 'x.py' .* is not utf-8 text"):
        read_text(place.store, publish(place, b"\xff"))


def test_a_stream_reads_lines(place):
    with open_artifact(place.store, publish(place, b"one\ntwo\n")) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


def test_a_stream_can_be_wrapped_as_text(place):
    with open_artifact(place.store, publish(place, b"one\ntwo\n")) as stream:
        assert list(io.TextIOWrapper(stream)) == ["one\n", "two\n"]


def test_a_checksum_in_capitals_is_the_same_checksum(place):
    artifact = publish(place)
    upper = replace(artifact, checksum="sha256:" + artifact.checksum[7:].upper())
    assert read_bytes(place.store, upper) == b"data"


def test_an_artifact_that_another_program_registered_without_a_size_is_read(place):
    assert read_bytes(place.store, replace(publish(place), size=None)) == b"data"


# Verifying


def test_changed_bytes_name_both_sums_the_path_and_the_producer(place):
    artifact = publish(place)
    tamper(place, artifact)
    with pytest.raises(ChecksumError) as caught:
        read_bytes(place.store, artifact)
    for part in (sha256(b"data"), sha256(b"DATA"), "artifacts/p/x.py", "coder-01"):
        assert part in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"dat", b"data and more", b"x" * (CHUNK_BYTES * 3)])
def test_bytes_of_another_length_are_refused(place, data):
    artifact = publish(place)
    tamper(place, artifact, data)
    with pytest.raises(ChecksumError, match=sha256(b"data")):
        read_bytes(place.store, artifact)


def test_a_size_that_is_wrong_is_refused_though_the_sum_is_right(place):
    with pytest.raises(ChecksumError, match="5"):
        read_bytes(place.store, replace(publish(place), size=5))


@pytest.mark.parametrize("checksum", ["", "abc", "md5:abc", "sha256:abc123", "sha256:" + "g" * 64])
def test_bytes_that_cannot_be_verified_are_not_handed_out(place, checksum):
    with pytest.raises(FormatError, match=r"x\.py.*checksum"):
        read_bytes(place.store, replace(publish(place), checksum=checksum))


@pytest.mark.parametrize("size", SIZES[1:])
def test_the_last_bytes_of_a_wrong_stream_are_never_handed_out(place, size):
    artifact = publish(place, b"x" * size)
    tamper(place, artifact, b"x" * (size - 1) + b"y")
    got = b""

    def read_on(stream):
        nonlocal got
        while chunk := stream.read(1000):
            got += chunk

    with open_artifact(place.store, artifact) as stream, pytest.raises(ChecksumError):
        read_on(stream)
    assert len(got) < size


@pytest.mark.parametrize("size", SIZES[1:])
def test_reading_exactly_as_many_bytes_as_registered_verifies_them(place, size):
    artifact = publish(place, b"x" * size)
    tamper(place, artifact, b"x" * (size - 1) + b"y")
    with open_artifact(place.store, artifact) as stream, pytest.raises(ChecksumError):
        stream.read(size)


def test_a_stream_that_failed_is_not_read_on():
    class Flaky(io.RawIOBase):
        def __init__(self):
            self.answers = [b"one", OSError("once"), b"two", b""]

        def read(self, _size: int = -1) -> bytes:
            answer = self.answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

    stream = buffered(VerifyingReader(Flaky(), what="it", checksum=sha256(b"onetwo"), size=6))
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot read it: once"):
            stream.read()


def test_a_wrong_stream_stays_wrong(place):
    artifact = publish(place)
    tamper(place, artifact)
    with open_artifact(place.store, artifact) as stream:
        for _ in range(2):
            with pytest.raises(ChecksumError):
                stream.read()


def test_bytes_that_do_not_end_are_not_read_for_ever():
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"x" * size

    source = Endless()
    with pytest.raises(ChecksumError, match="more than the 4 bytes"):
        buffered(VerifyingReader(source, what="it", checksum=sha256(b"data"), size=4)).read()
    assert source.given <= DRAIN_BYTES + 3 * CHUNK_BYTES


def test_more_bytes_than_registered_are_told_with_both_sums(place):
    artifact = publish(place, b"abc")
    place.store.put(artifact.path, b"abc and more", OVERWRITE)
    with pytest.raises(ChecksumError) as caught:
        read_bytes(place.store, artifact)
    for text in (artifact.checksum, sha256(b"abc and more"), artifact.path):
        assert text in str(caught.value)


def test_missing_bytes_are_told_with_path_producer_checksum_and_advice(place):
    artifact = publish(place)
    place.store.delete(artifact.path)
    with pytest.raises(ArtifactNotFoundError) as caught:
        read_bytes(place.store, artifact)
    for part in ("artifacts/p/x.py", "coder-01", artifact.checksum, "publish it again"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", ".tap/Tapfile", "artifacts/../../secret", "logs/a.log"]
)
def test_a_path_that_others_wrote_is_checked_again(place, path):
    with pytest.raises(InvalidKeyError, match=r"refused to read artifact 'x\.py'"):
        read_bytes(place.store, replace(publish(place), path=path))


@pytest.mark.parametrize("link", ["artifacts/p/x.py", "artifacts/p"])
def test_a_link_that_leaves_the_session_is_not_followed(tmp_path, link):
    outside = tmp_path / "outside"
    target = outside / "x.py" if link.endswith(".py") else outside
    outside.mkdir()
    (outside / "x.py").write_bytes(b"data")
    (tmp_path / "session" / link).parent.mkdir(parents=True)
    (tmp_path / "session" / link).symlink_to(target)
    artifact = Artifact(name="x.py", path="artifacts/p/x.py", checksum=sha256(b"data"))
    with pytest.raises(InvalidKeyError, match=r"artifact 'x\.py'.*symbolic link"):
        read_bytes(LocalStore(tmp_path / "session"), artifact)


# To a file


@dataclass
class Target:
    """A folder to fetch into, and what is in it."""

    path: os.PathLike

    def names(self):
        return sorted(os.listdir(self.path))


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target").mkdir()
    return Target(tmp_path / "target")


def test_a_file_is_fetched_and_its_path_returned(place, target):
    path = fetch_to(place.store, publish(place), target.path / "deep/x.py")
    assert path == str(target.path / "deep/x.py")
    assert (target.path / "deep/x.py").read_bytes() == b"data"


def test_a_fetched_file_replaces_the_one_that_is_there(place, target):
    (target.path / "x.py").write_bytes(b"older")
    fetch_to(place.store, publish(place), target.path / "x.py")
    assert (target.path / "x.py").read_bytes() == b"data"


def test_a_fetched_file_has_the_mode_that_the_umask_gives(place, target):
    before = os.umask(0o027)
    try:
        fetch_to(place.store, publish(place), target.path / "x.py")
    finally:
        os.umask(before)
    assert stat.S_IMODE((target.path / "x.py").stat().st_mode) == 0o640


@pytest.mark.parametrize("old", [None, b"older"])
def test_a_wrong_checksum_leaves_the_target_as_it_was(place, target, old):
    artifact = publish(place, b"x" * 3_000_000)
    tamper(place, artifact, b"x" * 2_999_999 + b"y")
    if old is not None:
        (target.path / "x.py").write_bytes(old)
    with pytest.raises(ChecksumError):
        fetch_to(place.store, artifact, target.path / "x.py")
    assert [(target.path / name).read_bytes() for name in target.names()] == [old] * bool(old)


def test_an_interrupted_fetch_leaves_nothing(place, target):
    def interrupt(*_):
        assert target.names() != ["x.py"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_to(place.store, publish(place), target.path / "x.py", on_progress=interrupt)
    assert target.names() == []


def test_progress_is_told_with_the_total_up_to_the_end(place, target):
    told = []
    artifact = publish(place, b"x" * 3_000_000)
    fetch_to(place.store, artifact, target.path / "x", on_progress=lambda *p: told.append(p))
    assert told[-1] == (3_000_000, 3_000_000)
    assert len(told) > 2


def test_no_bytes_are_progress_too(place, target):
    told = []
    artifact = publish(place, b"")
    fetch_to(place.store, artifact, target.path / "x", on_progress=lambda *p: told.append(p))
    assert told == [(0, 0)]


def test_a_folder_is_not_replaced_by_a_file(place, target):
    with pytest.raises(InvalidKeyError, match="is a folder"):
        fetch_to(place.store, publish(place), target.path)


def test_a_full_disk_is_told_and_leaves_nothing(place, target):
    artifact = publish(place, b"x" * 3_000_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot write .*x\.py"):
            fetch_to(place.store, artifact, target.path / "x.py")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.names() == []


# Inside a folder


def test_a_name_from_others_is_fetched_inside_the_folder(place, target):
    path = fetch_to(place.store, publish(place), "p/x.py", inside=target.path)
    assert path == str(target.path / "p/x.py")


@pytest.mark.parametrize("dest", ["../x", "/tmp/x", "a/../../x", "", "a\\..\\x", "x\0", "NUL"])
def test_a_name_that_leads_out_of_the_folder_is_refused(place, target, dest):
    with pytest.raises(InvalidKeyError, match="refused to write"):
        fetch_to(place.store, publish(place), dest, inside=target.path)
    assert target.names() == []


def test_a_link_that_leads_out_of_the_folder_is_refused(place, target, tmp_path):
    (tmp_path / "outside").mkdir()
    (target.path / "p").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidKeyError, match="symbolic link"):
        fetch_to(place.store, publish(place), "p/deep/x.py", inside=target.path)
    assert not os.listdir(tmp_path / "outside")


def test_a_link_at_the_target_is_replaced_and_not_followed(place, target, tmp_path):
    (tmp_path / "outside").write_bytes(b"precious")
    (target.path / "x.py").symlink_to(tmp_path / "outside")
    fetch_to(place.store, publish(place), "x.py", inside=target.path)
    assert (tmp_path / "outside").read_bytes() == b"precious"


def test_the_folder_itself_may_be_reached_by_a_link(place, target, tmp_path):
    (tmp_path / "link").symlink_to(target.path)
    fetch_to(place.store, publish(place), "x.py", inside=tmp_path / "link")
    assert target.names() == ["x.py"]
