"""A server that accepts a condition and ignores it is found out, and refused by name."""

from __future__ import annotations

import io

import pytest
from s3_places import BucketPlace

from tapstore.errors import ConflictError, StoreError, UnsupportedOperationError
from tapstore.types import CREATE, OVERWRITE, Capabilities, Update
from tests.servers.faults import LoseReply, Refuse, refuse


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


@pytest.mark.parametrize(
    ("ignored", "missing"),
    [(set(), set()),
     ({"PutObject If-None-Match"}, {"create"}),
     ({"PutObject If-Match"}, {"update"}),
     ({"PutObject"}, {"create", "update"}),
     ({"DeleteObject"}, {"conditional_delete"}),
     ({"PutObject", "DeleteObject"}, {"create", "update", "conditional_delete"})],
)  # fmt: skip
def test_a_condition_that_is_ignored_is_found_out(stub, place, store, ignored, missing):
    stub.dialect.ignored |= ignored
    expected = {
        name: name not in missing for name in ("create", "update", "conditional_delete")
    }  # fmt: skip
    assert store.capabilities == Capabilities(**expected, files=False)
    assert place.names() == set()


def test_what_is_known_to_be_ignored_is_refused_by_name(stub, place, store):
    stub.dialect.ignored |= {"PutObject", "DeleteObject"}
    place.write("a", b"theirs")
    version = store.head("a").version
    _ = store.capabilities
    with pytest.raises(UnsupportedOperationError, match=r"'create': .*ignores"):
        store.put("a", b"x", CREATE)
    with pytest.raises(UnsupportedOperationError, match=r"'update': .*ignores"):
        store.put("a", b"x", Update(version))
    with pytest.raises(UnsupportedOperationError, match="'conditional_delete'"):
        store.delete("a", version=version)
    assert place.read("a") == b"theirs"
    store.put("a", b"ours", OVERWRITE)


def test_a_deletion_with_a_version_asks_first_whether_it_would_be_compared(stub, place, store):
    stub.dialect.ignored.add("DeleteObject")
    place.write("a", b"theirs")
    with pytest.raises(UnsupportedOperationError, match="'conditional_delete'"):
        store.delete("a", version="0123456789abcdef0123456789abcdef")
    assert place.read("a") == b"theirs"


def test_a_deletion_with_a_wrong_version_changes_nothing(place, store):
    place.write("a", b"theirs")
    with pytest.raises(ConflictError):
        store.delete("a", version="0123456789abcdef0123456789abcdef")
    assert place.read("a") == b"theirs"


def test_a_server_that_updates_what_is_gone_is_found_out(stub, store):
    """So did MinIO until August 2025: a late commit would bring a deleted Tapfile back."""
    done = Refuse(200, (("ETag", '"0123456789abcdef0123456789abcdef"'),))
    # Before it come two creates, an update of a wrong version and one of the right one.
    stub.rules.add(done, operation="PutObject", nth=5)
    assert not store.capabilities.update


def test_a_trial_whose_reply_is_lost_is_made_again(stub, store):
    stub.rules.add(LoseReply(), operation="PutObject", nth=2)
    assert store.capabilities.create


def test_who_may_not_write_is_told_so(stub, store):
    stub.rules.add(refuse(403, "AccessDenied"), times=None, operation="PutObject|DeleteObject")
    with pytest.raises(StoreError, match="not allowed s3:PutObject"):
        _ = store.capabilities


def test_who_only_reads_and_writes_is_not_tried(stub, store):
    store.put("a", b"x")
    store.get("a")
    list(store.list())
    assert {each.key for each in stub.requests if "tapstore-tmp" in each.key} == set()


def test_a_gateway_that_ignores_conditions_is_refused(juicefs_s3):
    place = BucketPlace(juicefs_s3)
    with place.open() as store:
        assert not store.capabilities.create
        assert not store.capabilities.update
        with pytest.raises(UnsupportedOperationError, match="ignores"):
            store.put("a", b"x")
        assert place.names() == set()


@pytest.mark.parametrize("operation", ["CompleteMultipartUpload", "AbortMultipartUpload"])
@pytest.mark.parametrize("ignored", [set(), {"CompleteMultipartUpload"}])
def test_a_reply_lost_in_a_trial_has_it_tried_again(stub, place, store, operation, ignored):
    stub.dialect.ignored |= ignored
    lost = stub.rules.add(LoseReply(), operation=operation)
    if ignored:
        with pytest.raises(UnsupportedOperationError, match="'create'"):
            store.upload("a", io.BytesIO(bytes(9 << 20)), CREATE)
    else:
        store.upload("a", io.BytesIO(bytes(9 << 20)), CREATE)
    assert lost.hits == (not ignored or operation != "AbortMultipartUpload")
    assert place.names() == (set() if ignored else {"a"})
    assert not place.oracle.list_multipart_uploads(Bucket=place.bucket).get("Uploads")
