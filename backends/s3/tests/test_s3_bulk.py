"""Large objects: streams that go on after a broken connection, uploads in parts."""

from __future__ import annotations

import hashlib
import io
import itertools
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from s3_places import BucketPlace

from tapstore.errors import (
    AlreadyExistsError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.types import CREATE, OVERWRITE
from tests.servers import proxy, stub_operations
from tests.servers.faults import Cut, Hold, LoseReply, LoseRequest, refuse

MIB = 1 << 20


class Pattern(io.RawIOBase):
    """A source of `size` bytes of which no two blocks are alike; it gives odd pieces."""

    def __init__(self, size, breaks_after=None):
        self._left = size
        self._breaks_after = breaks_after
        self._blocks = (hashlib.sha256(b"%d" % n).digest() * 2048 for n in itertools.count())
        self.sum = hashlib.sha256()

    def read(self, size=-1):
        if self._breaks_after is not None and self._breaks_after <= 0:
            raise RuntimeError("the source broke")
        piece = next(self._blocks)[: min(size, self._left, 65_536)]
        self._left -= len(piece)
        if self._breaks_after is not None:
            self._breaks_after -= len(piece)
        self.sum.update(piece)
        return piece


def digest(stream):
    found = hashlib.sha256()
    while piece := stream.read(100_000):
        found.update(piece)
    return found.hexdigest()


@pytest.fixture
def stub(stub_s3_server):
    return stub_s3_server


@pytest.fixture
def place(stub):
    return BucketPlace(stub)


@pytest.fixture
def store(place):
    with place.open() as store:
        yield store


def begun(place):
    return place.oracle.list_multipart_uploads(Bucket=place.bucket).get("Uploads", [])


# Downloads


def test_a_stream_that_breaks_goes_on_where_it_was(stub, place, store):
    place.write("a", data := Pattern(5 * MIB).read(-1) * 80)
    for after in (100_000, 300_000, 0):
        stub.rules.add(Cut(after_bytes=after), operation="GetObject")
    stub.requests.clear()
    with store.open("a") as stream:
        assert stream.read() == data
    assert stub.counted() == {"GetObject": 4}


def test_a_stream_that_breaks_never_mixes_versions(stub, place, store):
    place.write("a", b"a" * MIB)
    stub.rules.add(Cut(after_bytes=300_000), operation="GetObject")
    with store.open("a") as stream:
        assert stream.read(10) == b"a" * 10
        place.write("a", b"b" * MIB)
        with pytest.raises(StoreError, match="overwritten while it was read"):
            stream.read()


def test_a_stream_that_breaks_never_mixes_versions_where_conditions_are_ignored(stub, place, store):
    stub.dialect.ignored.add("GetObject")
    place.write("a", b"a" * MIB)
    stub.rules.add(Cut(after_bytes=300_000), operation="GetObject")
    with store.open("a") as stream:
        assert stream.read(10) == b"a" * 10
        place.write("a", b"b" * MIB)
        with pytest.raises(StoreError, match="overwritten while it was read"):
            stream.read()


def test_a_stream_goes_on_where_it_was_on_a_server_without_ranges(stub, place, store, monkeypatch):
    monkeypatch.setattr(stub_operations, "_range", lambda *_: None)
    place.write("a", data := Pattern(MIB).read(-1) * 20)
    stub.rules.add(Cut(after_bytes=600_000), operation="GetObject")
    with store.open("a", start=300_000) as stream:
        assert stream.read() == data[300_000:]


def test_a_stream_that_breaks_at_its_end_is_noticed(stub, place, store):
    place.write("a", b"a" * MIB)
    stub.rules.add(Cut(after_bytes=MIB - 1), times=None, operation="GetObject", key=".*/a")
    with store.open("a") as stream:
        assert len(stream.read()) == MIB
    assert stub.counted()["GetObject"] == 2


def test_what_is_thrown_away_in_the_middle_does_not_break_the_next_call(place, store):
    place.write("a", b"a" * 4 * MIB)
    for _ in range(3):
        with store.open("a") as stream:
            stream.read(1)
    assert store.get("a", start=0, end=1).data == b"a"


# Uploads


@pytest.mark.parametrize("size", [8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB, 20 * MIB + 3])
def test_an_upload_of_any_size_is_stored_whole(place, store, size):
    source = Pattern(size)
    result = store.upload("a", source)
    info = store.head("a")
    assert (info.size, info.version, info.modified) == (size, result.version, result.modified)
    with store.open("a") as stream:
        assert digest(stream) == source.sum.hexdigest()
    assert begun(place) == []


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_large_source_that_breaks_leaves_nothing(place, store, mode):
    with pytest.raises(RuntimeError, match="the source broke"):
        store.upload("a", Pattern(40 * MIB, breaks_after=21 * MIB), mode)
    assert (place.names(), begun(place)) == (set(), [])


def test_an_interrupted_upload_leaves_nothing(place, store):
    class Interrupting(Pattern):
        def read(self, size=-1):
            if self._left < 10 * MIB:
                raise KeyboardInterrupt
            return super().read(size)

    with pytest.raises(KeyboardInterrupt):
        store.upload("a", Interrupting(30 * MIB))
    assert (place.names(), begun(place)) == (set(), [])


@pytest.mark.parametrize(
    "fault", [LoseReply(), LoseRequest(), refuse(500, "InternalError"), refuse(503, "SlowDown")]
)
@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]
)
@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_request_of_an_upload_that_is_lost_does_no_harm(
    stub, place, store, fault, operation, mode
):
    source = Pattern(20 * MIB)
    stub.rules.add(fault, operation=operation, key=".*/alpha/a")
    store.upload("a", source, mode)
    assert hashlib.sha256(place.read("a")).digest() == source.sum.digest()


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest(), refuse(500, "InternalError")])
@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_small_upload_whose_reply_was_lost_is_found_to_be_ours(stub, place, store, fault, mode):
    stub.rules.add(fault, operation="PutObject")
    result = store.upload("a", io.BytesIO(b"ours"), mode)
    assert (place.read("a"), store.head("a").version) == (b"ours", result.version)


def test_an_upload_in_doubt_is_not_taken_for_one_of_another(stub, place, store):
    """Their object comes between our request, which was lost, and our look."""
    look = Hold()
    stub.rules.add(LoseRequest(), operation="PutObject", key=".*/a")
    stub.rules.add(look, operation="HeadObject", key=".*/a")

    def write_theirs():
        look.arrived.wait(30)
        place.write("a", b"theirs")
        look.release()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_theirs)
        with pytest.raises(OutcomeUnknownError):
            store.upload("a", io.BytesIO(b"ours"))
        writing.result()
    assert place.read("a") == b"theirs"


def test_a_large_create_does_not_replace_what_is_there(place, store):
    place.write("a", b"theirs")
    with pytest.raises(AlreadyExistsError):
        store.upload("a", Pattern(20 * MIB))
    assert (place.read("a"), begun(place)) == (b"theirs", [])


def test_a_large_create_that_is_overtaken_loses(place, store):
    class Overtaken(Pattern):
        def read(self, size=-1):
            if 0 < self._left < 2 * MIB:
                place.write("a", b"theirs")
            return super().read(size)

    with pytest.raises(AlreadyExistsError):
        store.upload("a", Overtaken(20 * MIB))
    assert (place.read("a"), begun(place)) == (b"theirs", [])


def test_a_large_create_is_refused_by_name_where_the_server_ignores_its_condition(
    stub, place, store
):
    stub.dialect.ignored.add("CompleteMultipartUpload")
    with pytest.raises(UnsupportedOperationError, match=r"'create': 'a' is larger than"):
        store.upload("a", Pattern(20 * MIB))
    assert (place.names(), begun(place)) == (set(), [])
    store.upload("a", Pattern(20 * MIB), OVERWRITE)
    store.upload("b", io.BytesIO(b"fits into one request"))


def test_a_part_that_fails_for_good_ends_the_upload(stub, place, store):
    stub.rules.add(refuse(403, "AccessDenied"), times=None, operation="UploadPart", nth=5)
    with pytest.raises(StoreError, match="not allowed s3:PutObject"):
        store.upload("a", Pattern(60 * MIB), OVERWRITE)
    assert (place.names(), begun(place)) == (set(), [])


# Memory, with a server in a process of its own


@pytest.fixture
def far(moto_s3):
    return BucketPlace(moto_s3, max_concurrency=2, default_block_size=5 * MIB)


def test_an_upload_keeps_a_few_parts_in_memory(far):
    with far.open() as store:
        store.upload("warm", io.BytesIO(bytes(11 * MIB)), OVERWRITE)
        tracemalloc.start()
        try:
            store.upload("a", source := Pattern(100 * MIB), OVERWRITE)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 35 * MIB
        with store.open("a") as stream:
            assert digest(stream) == source.sum.hexdigest()


def test_a_download_keeps_a_buffer_in_memory(far):
    far.write("a", bytes(50 * MIB))
    with far.open() as store, store.open("a") as stream:
        stream.read(1)
        tracemalloc.start()
        try:
            assert sum(iter(lambda: len(stream.read(100_000)), 0)) == 50 * MIB - 1
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3 * MIB


# A link that is cut


def cut_link(far, link, size):
    """Send and fetch over a link of 20 ms that is cut twice each way; how it went."""
    with BucketPlace(far.server.at(link.endpoint)).open() as store:
        cuts = itertools.chain([size // 3, 2 * size // 3], itertools.repeat(size + 1))

        class Cutting(Pattern):
            sent, due = 0, next(cuts)

            def read(self, amount=-1):
                piece = super().read(amount)
                self.sent += len(piece)
                if self.sent >= self.due:
                    link.cut()
                    self.due = next(cuts)
                return piece

        source = Cutting(size)
        store.upload("a", source)
        fetched = hashlib.sha256()
        got, due = 0, [size // 3, 2 * size // 3]
        with store.open("a") as stream:
            while piece := stream.read(1 << 18):
                fetched.update(piece)
                got += len(piece)
                if due and got >= due[0]:
                    due.pop(0)
                    link.cut()
        return source.sum.hexdigest(), fetched.hexdigest(), got


@pytest.mark.parametrize(
    "size", [20 * MIB + 1, pytest.param(200 * MIB + 1, marks=pytest.mark.soak)]
)
def test_a_link_that_is_cut_twice_each_way_loses_nothing(far, size):
    with proxy.http(far.server.port, delay_seconds=0.02) as link:
        sent, fetched, got = cut_link(far, link, size)
    assert (got, fetched) == (size, sent)


# Sweeps


def test_a_sweep_aborts_what_never_ended_and_spares_what_is_young(place, store):
    place.oracle.create_multipart_upload(Bucket=place.bucket, Key=place.below + "old")
    elsewhere = place.oracle.create_multipart_upload(Bucket=place.bucket, Key="elsewhere")
    assert store.sweep(3600) == ()
    assert store.sweep(-60, dry_run=True) == ("old",)
    assert store.sweep(-60) == ("old",)
    assert [each["Key"] for each in begun(place)] == [elsewhere["Key"]]


def test_a_sweep_removes_trials_that_a_crash_left(place, store):
    place.write(".tapstore-tmp-0123", b"")
    assert store.sweep(-60) == (".tapstore-tmp-0123",)
    assert place.names() == set()


def test_parts_that_cannot_be_sent_are_a_failure_and_no_doubt(stub, place):
    with place.open() as store:
        stub.rules.add(LoseRequest(), operation="UploadPart", times=None)
        patient = store._uploads._patience
        patient._seconds = 0.2
        with pytest.raises(StoreError) as caught:
            store.upload("a", Pattern(20 * MIB), OVERWRITE)
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert begun(place) == []
