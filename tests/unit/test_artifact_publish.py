import dataclasses
import errno
import io
import os
import re
from pathlib import Path

import pytest

from tapstore.artifacts.condemned import condemn
from tapstore.artifacts.manifest import object_key
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import alternatives
from tapstore.artifacts.place import REUSE_SECONDS
from tapstore.artifacts.publish import stage
from tapstore.artifacts.sources import SPOOL_BYTES
from tapstore.errors import (
    AlreadyExistsError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.stores.local import LocalStore
from tapstore.types import CREATE, OVERWRITE
from tests.unit.artifact_places import make_place, sha256


@pytest.fixture(params=["memory", "local"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def publish(place, source, **options):
    options = {"name": "x.py", "phase": "p", "suffix": "c1"} | options
    return stage(place.store, source, **options)


class Pipe(io.RawIOBase):
    """A stream that cannot be rewound, in chunks smaller than asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 1000) if size >= 0 else 1000)


# What is published


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO, Pipe])
def test_bytes_and_streams_are_stored_as_they_are(place, kind):
    assert place.get(publish(place, kind(b"data"))) == b"data"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_published_by_its_path(place, tmp_path, kind):
    (tmp_path / "file").write_bytes(b"data")
    assert place.get(publish(place, kind(tmp_path / "file"))) == b"data"


def test_a_stream_is_read_from_where_it_stands(place):
    stream = io.BytesIO(b"header data")
    stream.seek(7)
    assert place.get(publish(place, stream)) == b"data"


def test_a_published_stream_stays_open(place):
    stream = io.BytesIO(b"data")
    publish(place, stream)
    assert not stream.closed


def test_no_bytes_are_an_artifact_too(place):
    assert place.get(publish(place, b"")) == b""


def test_checksum_and_size_are_those_of_the_stored_bytes(place):
    artifact = publish(place, Pipe(b"data" * 5000))
    assert (artifact.checksum, artifact.size) == (sha256(b"data" * 5000), 20_000)


def test_the_artifact_has_what_the_caller_said(place):
    artifact = publish(
        place, b"data", type="code", producer="coder-01", consumers=["reviewer"],
        media_type="text/x-python", metadata={"lines": 1},
    )  # fmt: skip
    assert artifact == Artifact(
        name="x.py", phase="p", path="artifacts/p/x.py", checksum=sha256(b"data"), size=4,
        type="code", producer="coder-01", consumer=("reviewer",), media_type="text/x-python",
        metadata={"lines": 1},
    )  # fmt: skip


def test_a_missing_file_is_told_with_the_way_to_publish_text(place):
    with pytest.raises(NotFoundError, match=r"no file 'print\(1\)' .* pass it as bytes"):
        publish(place, "print(1)")


def test_an_unreadable_file_is_told_by_its_name(place, tmp_path):
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(StoreError, match="loop") as caught:
        publish(place, tmp_path / "loop")
    assert caught.value.errno == errno.ELOOP


def test_a_pipe_by_its_path_is_refused_and_not_waited_for(place, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidKeyError, match="not a regular file"):
        publish(place, tmp_path / "pipe")


def test_a_text_stream_is_refused_with_the_reason(place):
    with pytest.raises(TypeError, match="binary mode"):
        publish(place, io.StringIO("text"))


def test_what_is_no_source_is_refused(place):
    with pytest.raises(TypeError, match="cannot publish int"):
        publish(place, 42)


@pytest.mark.parametrize("rewinds", [True, False])
def test_a_stream_that_fails_leaves_nothing(place, rewinds):
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 3_000_000:
                raise OSError(errno.EIO, "disk on fire")
            return super().read(size)

        def seekable(self) -> bool:
            return rewinds

    with pytest.raises(StoreError, match="disk on fire"):
        publish(place, Failing(b"x" * 5_000_000))
    assert place.everything() == []


# Where it is stored


def test_the_asked_path_is_taken_if_it_is_free(place):
    assert publish(place, b"data", path="out/report.py").path == "out/report.py"


def test_without_a_phase_there_is_no_phase_folder(place):
    assert publish(place, b"data", phase="").path == "artifacts/x.py"


def test_other_bytes_at_the_path_make_the_suffix_part_of_it(place):
    publish(place, b"first")
    assert publish(place, b"second", suffix="c2").path == "artifacts/p/x~c2.py"


def test_what_was_there_is_never_overwritten(place):
    first = publish(place, b"first")
    publish(place, b"second")
    assert place.get(first) == b"first"


@pytest.mark.parametrize("size", [10, SPOOL_BYTES + 10])
def test_a_stream_that_cannot_rewind_survives_a_taken_path(place, size):
    publish(place, b"first")
    assert place.get(publish(place, Pipe(b"x" * size))) == b"x" * size


@pytest.mark.parametrize("kind", ["bytes", "stream", "file"])
def test_losing_the_path_between_the_look_and_the_write_takes_the_suffix(tmp_path, kind):
    class Beaten(LocalStore):
        def upload(self, key, source, mode):
            if key == "artifacts/p/x.py":
                LocalStore(self.root).put(key, b"first")
            return super().upload(key, source, mode)

    class Place:
        store = Beaten(tmp_path / "session", durability="none")

    data = b"second" * 1_000_000
    (tmp_path / "file").write_bytes(data)
    source = {"bytes": data, "stream": Pipe(data), "file": tmp_path / "file"}[kind]
    told = []
    artifact = publish(Place, source, on_progress=lambda done, _: told.append(done))
    assert artifact.path == "artifacts/p/x~c1.py"
    assert Place.store.get(artifact.path).data == data
    assert max(told) == len(data)


def test_each_further_version_of_one_claim_gets_a_path(place):
    versions = [publish(place, data) for data in (b"one", b"two", b"three")]
    assert [place.get(version) for version in versions] == [b"one", b"two", b"three"]


def test_the_same_bytes_are_not_stored_twice(place):
    first = publish(place, b"data")
    assert publish(place, io.BytesIO(b"data"), suffix="c2").path == first.path
    assert place.everything() == [first.path]


def test_a_retry_finds_what_it_stored_under_the_suffix(place):
    publish(place, b"other", suffix="c0")
    first = publish(place, b"data")
    assert publish(place, Pipe(b"data")) == first


def test_bytes_of_the_same_length_are_not_taken_for_the_same(place):
    publish(place, b"data")
    assert place.get(publish(place, b"DATA")) == b"DATA"


def test_an_old_file_that_nobody_registered_is_not_relied_upon(place):
    publish(place, b"data")
    place.grow_old(REUSE_SECONDS + 1)
    assert publish(place, b"data", suffix="c2").path == "artifacts/p/x~c2.py"


def test_an_old_file_that_is_registered_is_used_again(place):
    first = publish(place, b"data")
    place.grow_old(REUSE_SECONDS + 1)
    again = publish(place, b"data", name="copy.py", path=first.path, registered=[first])
    assert again.path == first.path


def test_a_name_that_was_collected_is_never_used_again(place):
    condemn(place.store, "artifacts/p/x.py", now=0)
    artifact = publish(place, b"data")
    assert artifact.path == "artifacts/p/x~c1.py"
    assert "artifacts/p/x.py" not in place.everything()


def test_a_file_that_is_being_collected_is_not_relied_upon(place):
    publish(place, b"data")
    condemn(place.store, "artifacts/p/x.py", now=0)
    assert publish(place, b"data").path == "artifacts/p/x~c1.py"


def test_a_hundred_versions_of_one_suffix_are_enough(place):
    for path in alternatives("artifacts/p/x.py", "c1"):
        place.store.put(path, b"old")
    with pytest.raises(AlreadyExistsError, match="under a new claim"):
        publish(place, b"new")


@pytest.fixture
def small(place):
    """A place that creates exclusively only what fits into one request."""

    class Small(type(place.store)):
        def upload(self, key, source, mode):
            if mode is CREATE and len(data := source.read()) > 1000:
                raise UnsupportedOperationError("too large to create exclusively")
            return super().upload(key, source if mode is OVERWRITE else io.BytesIO(data), mode)

    place.store.__class__ = Small
    return place


@pytest.mark.parametrize("kind", [bytes, io.BytesIO, Pipe])
def test_what_cannot_be_created_exclusively_gets_a_name_of_its_own(small, kind):
    versions = [publish(small, kind(letter * 5000)) for letter in (b"a", b"b", b"b")]
    assert [small.get(version) for version in versions] == [b"a" * 5000, b"b" * 5000, b"b" * 5000]
    assert len({version.path for version in versions}) == 3
    assert all(re.fullmatch(r"artifacts/p/x~c1-[0-9a-f]{16}\.py", v.path) for v in versions)


def test_large_files_of_a_directory_are_stored_by_their_sum_anywhere(small, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/large").write_bytes(b"x" * 5000)
    publish(small, tmp_path / "tree", name="tree")
    assert object_key(sha256(b"x" * 5000)[7:]) in small.everything()


def test_where_nothing_can_be_created_exclusively_publishing_is_refused(small):
    small.store.capabilities = dataclasses.replace(small.store.capabilities, create=False)
    with pytest.raises(UnsupportedOperationError):
        publish(small, b"x" * 5000)
    assert small.everything() == []


# What is refused


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "artifacts/p/x\0", ".tap/Tapfile", "inbox/coder/x", "artifacts/p/NUL"],
)
def test_a_path_that_leaves_its_place_is_refused_by_the_artifacts_name(place, path):
    with pytest.raises(InvalidKeyError, match=r"cannot publish artifact 'x.py' of phase 'p': .+"):
        publish(place, b"data", path=path)
    assert place.everything() == []


@pytest.mark.parametrize(
    ("path", "other"), [("artifacts/p/a/b", "artifacts/p/a"), ("artifacts/p/a", "artifacts/p/a/b")]
)
class TestAFileWhereAnotherNeedsAFolder:
    def test_is_refused_by_what_is_registered(self, place, path, other):
        registered = [Artifact(name="other", path=other)]
        with pytest.raises(InvalidKeyError, match="folder"):
            publish(place, b"data", path=path, registered=registered)

    def test_is_refused_by_what_the_store_holds(self, place, path, other):
        place.store.put(other, b"other")
        with pytest.raises(InvalidKeyError, match="folder"):
            publish(place, b"data", path=path)

    def test_is_allowed_when_the_registration_moves_there(self, place, path, other):
        registered = [Artifact(name="x.py", phase="p", path=other)]
        assert publish(place, b"data", path=path, registered=registered).path == path


def test_an_empty_folder_at_the_path_is_a_clear_error(tmp_path):
    (tmp_path / "artifacts/p/x.py").mkdir(parents=True)
    with pytest.raises(StoreError, match="folder is where a file should be"):
        stage(LocalStore(tmp_path), b"data", name="x.py", phase="p", suffix="c1")


def test_a_link_that_leaves_the_session_is_refused_by_the_artifacts_name(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "session/artifacts").mkdir(parents=True)
    (tmp_path / "session/artifacts/p").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidKeyError, match=r"artifact 'x.py' of phase 'p': .*symbolic link"):
        stage(LocalStore(tmp_path / "session"), b"data", name="x.py", phase="p", suffix="c1")
    assert not list((tmp_path / "outside").iterdir())


# Progress


@pytest.mark.parametrize("taken", [False, True])
def test_progress_is_told_up_to_the_end(place, taken):
    if taken:
        publish(place, b"other")
    told = []
    data = b"x" * 3_000_000
    publish(place, io.BytesIO(data), on_progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3_000_000, None)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_progress_knows_the_total_of_a_file(place, tmp_path):
    (tmp_path / "file").write_bytes(b"data")
    told = []
    publish(place, tmp_path / "file", on_progress=lambda *progress: told.append(progress))
    assert told[-1] == (4, 4)
