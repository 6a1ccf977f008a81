"""What each call costs in requests, and that a conditional one is sent exactly once."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from s3_places import BucketPlace

from tapstore.errors import AlreadyExistsError, ConflictError, NotFoundError
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore
from tapstore.types import CREATE, OVERWRITE, Update
from tests.servers import proxy
from tests.servers.faults import LoseReply, LoseRequest, refuse

MIB = 1 << 20


@pytest.fixture
def stub(stub_s3_server):
    return stub_s3_server


@pytest.fixture
def place(stub):
    return BucketPlace(stub)


@pytest.fixture
def store(stub, place):
    with place.open() as store:
        store.put("there", b"x")
        store.put("b/c", b"x")
        stub.requests.clear()
        yield store


CALLS = {
    "get": (lambda s: s.get("there"), {"GetObject": 1}),
    "get of a range": (lambda s: s.get("there", start=0, end=1), {"GetObject": 1}),
    "get of what is not there": (lambda s: s.get("gone"), {"GetObject": 1}),
    "head": (lambda s: s.head("there"), {"HeadObject": 1}),
    "head of what is not there": (lambda s: s.head("gone"), {"HeadObject": 1}),
    "create": (lambda s: s.put("a", b"x"), {"PutObject": 1}),
    "lost create": (lambda s: s.put("there", b"x"), {"PutObject": 1}),
    "overwrite": (lambda s: s.put("there", b"x", OVERWRITE), {"PutObject": 1}),
    "delete": (lambda s: s.delete("there"), {"DeleteObject": 1}),
    "list": (lambda s: list(s.list()), {"ListObjectsV2": 1}),
    "children": (lambda s: list(s.children()), {"ListObjectsV2": 1}),
    "open": (lambda s: s.open("there").__enter__().read(), {"GetObject": 1}),
    "upload": (lambda s: s.upload("a", io.BytesIO(b"x")), {"PutObject": 1}),
    "now": (lambda s: s.now(), {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_one_request(stub, store, call):
    action, expected = CALLS[call]
    try:
        action(store)
    except (NotFoundError, AlreadyExistsError):
        pass
    assert stub.counted() == Counter(expected)


def test_an_update_is_one_request(stub, store):
    version = store.head("there").version
    stub.requests.clear()
    store.put("there", b"y", Update(version))
    assert stub.counted() == {"PutObject": 1}


def test_a_conflict_is_one_request_once_an_etag_was_seen_to_match(stub, store):
    store.put("there", b"y", Update(store.head("there").version))
    stub.requests.clear()
    with pytest.raises(ConflictError):
        store.put("there", b"z", Update("0123456789abcdef0123456789abcdef"))
    assert stub.counted() == {"PutObject": 1}


def test_what_has_not_changed_is_one_304(stub, store):
    version = store.head("there").version
    stub.requests.clear()
    assert store.get_if_changed("there", version) is None
    assert [(each.operation, each.status) for each in stub.requests] == [("GetObject", 304)]


def test_a_listing_is_one_request_for_each_thousand(stub, place, store):
    for number in range(2500):
        place.write(f"many/{number:04}", b"")
    stub.requests.clear()
    assert sum(1 for _ in store.list("many/")) == 2500
    assert stub.counted() == {"ListObjectsV2": 3}


def test_a_first_page_is_not_followed_by_one_that_nobody_wants(stub, place, store):
    for number in range(1200):
        place.write(f"many/{number:04}", b"")
    stub.requests.clear()
    next(store.list("many/"))
    assert stub.counted() == {"ListObjectsV2": 1}


def test_the_time_is_asked_for_once_if_there_was_no_reply_yet(stub, place):
    with place.open() as store:
        stub.requests.clear()
        store.now()
        store.now()
        assert stub.counted() == {"HeadObject": 1}


def test_an_upload_in_parts_is_begun_sent_completed_and_looked_at(stub, store):
    stub.requests.clear()
    store.upload("large", io.BytesIO(bytes(20 * MIB)), OVERWRITE)
    assert stub.counted() == {
        "CreateMultipartUpload": 1, "UploadPart": 3, "CompleteMultipartUpload": 1, "HeadObject": 1
    }  # fmt: skip


def test_what_the_server_keeps_is_found_out_once(stub, store):
    _ = store.capabilities
    assert sum(stub.counted().values()) <= 8
    stub.requests.clear()
    _ = store.capabilities
    assert not stub.requests


# Quotes of ETags


@pytest.mark.parametrize("quotes", ["required", "refused", "any"])
def test_an_etag_is_sent_as_the_server_wants_it(stub, store, quotes):
    stub.dialect.quotes = quotes
    version = store.head("there").version
    version = store.put("there", b"2", Update(version)).version
    stub.requests.clear()
    version = store.put("there", b"3", Update(version)).version
    assert stub.counted() == {"PutObject": 1}
    assert store.get_if_changed("there", version) is None
    with pytest.raises(ConflictError):
        store.put("there", b"4", Update("0123456789abcdef0123456789abcdef"))
    store.delete("there", version=version)
    with pytest.raises(NotFoundError):
        store.get("there")


@pytest.mark.parametrize("quotes", ["required", "refused", "any"])
def test_the_form_of_etags_is_no_reason_to_refuse_a_server(stub, store, quotes):
    stub.dialect.quotes = quotes
    assert store.capabilities.update


# Lost replies, seen through what `registry.open_store` puts around the store


def resolved(store):
    return RetryStore(ReadBackStore(store, pause_seconds=0.001), first_pause_seconds=0.001)


@pytest.fixture
def wrapped(store):
    return resolved(store)


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest(), refuse(500, "InternalError")])
@pytest.mark.parametrize("mode", ["create", "update"])
def test_a_write_whose_reply_was_lost_counts_once(stub, place, wrapped, fault, mode):
    before = wrapped.head("there")
    stub.rules.add(fault, operation="PutObject")
    if mode == "create":
        result = wrapped.put("a", b"ours", CREATE)
        assert (place.read("a"), wrapped.head("a").version) == (b"ours", result.version)
    else:
        result = wrapped.put("there", b"ours", Update(before.version))
        assert (place.read("there"), wrapped.head("there").version) == (b"ours", result.version)


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest(), refuse(500, "InternalError")])
def test_a_deletion_whose_reply_was_lost_happens(stub, place, wrapped, fault):
    version = wrapped.head("there").version
    stub.rules.add(fault, operation="DeleteObject", key=".*/there")
    wrapped.delete("there", version=version)
    assert place.read("there") is None


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "ConditionalRequestConflict"), (409, "OperationAborted"), (503, "SlowDown"),
     (429, "TooManyRequests")],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_what_was_not_decided_is_repeated(stub, wrapped, status, code, verb):
    version = wrapped.head("there").version
    _ = wrapped.capabilities
    stub.rules.add(refuse(status, code), times=3, operation="PutObject|DeleteObject")
    stub.requests.clear()
    if verb == "create":
        wrapped.put("a", b"ours")
    elif verb == "update":
        wrapped.put("there", b"ours", Update(version))
    else:
        wrapped.delete("there", version=version)
    operation = "DeleteObject" if verb == "delete" else "PutObject"
    assert stub.counted() == {operation: 4}


def test_no_layer_repeats_a_write_whose_reply_was_lost_on_the_way(stub):
    with proxy.http(stub.port) as link:
        with BucketPlace(stub.at(link.endpoint)).open() as inner:
            store = resolved(inner)
            store.put("n", b"0")
            for number in range(1, 21):
                if number % 3 == 0:
                    link.rules.add(LoseReply(), method="PUT", path=".*/n")
                version = store.head("n").version
                store.put("n", b"%d" % number, Update(version))
            assert store.get("n").data == b"20"
        puts = [each for each in link.requests if each.method == "PUT" and each.path.endswith("/n")]
        assert len(puts) == 21
