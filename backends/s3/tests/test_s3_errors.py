"""What a server says, and what the store makes of it: by status and code, with what to do next."""

from __future__ import annotations

import errno
import io
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest
from s3_places import BucketPlace, connect

from tapstore.abc import Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.types import CREATE, OVERWRITE, Update
from tapstore_s3 import open_store
from tests.servers import stub_operations
from tests.servers.faults import Cut, LoseReply, LoseRequest, Refuse, refuse
from tests.servers.process import free_ports
from tests.servers.stub_s3 import Stub

CONDITIONAL = [CREATE, Update("0123456789abcdef0123456789abcdef")]


@pytest.fixture
def stub(stub_s3_server: Stub) -> Stub:
    return stub_s3_server


@pytest.fixture
def store(stub: Stub) -> Store:
    with BucketPlace(stub).open() as store:
        store.put("there", b"x")
        stub.requests.clear()
        yield store


@pytest.mark.parametrize("mode", CONDITIONAL)
@pytest.mark.parametrize(
    "fault",
    [LoseRequest(), LoseReply(), refuse(500, "InternalError"), refuse(502, "BadGateway"),
     refuse(504, "GatewayTimeout"), Refuse(503, body=b"upstream connect error")],
    ids=["request lost", "reply lost", "500", "502", "504", "503 of a proxy"],
)  # fmt: skip
def test_a_write_that_may_have_happened_is_of_unknown_outcome(stub, store, fault, mode):
    stub.rules.add(fault, operation="PutObject")
    with pytest.raises(OutcomeUnknownError, match="'a'"):
        store.put("a", b"x", mode)
    assert stub.counted()["PutObject"] == 1


def test_a_body_that_does_not_fit_its_checksum_may_be_asked_for_again(stub, monkeypatch):
    answered = stub_operations.get_object

    def damaged(*request):
        status, headers, body = answered(*request)
        return status, [*headers, ("x-amz-checksum-crc32", "AAAAAA==")], body

    monkeypatch.setitem(stub_operations.OPERATIONS, "GetObject", damaged)
    config = {"response_checksum_validation": "when_supported"}
    with BucketPlace(stub, config_kwargs=config).open() as store:
        store.put("a", b"x")
        with pytest.raises(StoreError, match="checksum") as caught:
            store.get("a")
    assert caught.value.errno == errno.ECONNRESET


@pytest.fixture
def losing_proxy():
    """The URL of an HTTP proxy that takes each request and answers none."""

    class Lose(BaseRequestHandler):
        def handle(self):
            self.request.recv(65_536)

    with ThreadingTCPServer(("127.0.0.1", 0), Lose) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_reply_that_was_lost_behind_a_proxy_leaves_the_outcome_unknown(stub, losing_proxy):
    config = {"proxies": {"http": losing_proxy}}
    with (
        connect("s3://bucket/a", stub, config_kwargs=config) as store,
        pytest.raises(OutcomeUnknownError, match="'a'"),
    ):
        store.put("a", b"x")


def test_a_proxy_that_is_not_there_was_sent_nothing(stub):
    (port,) = free_ports(1)
    config = {"proxies": {"http": f"http://127.0.0.1:{port}"}}
    with (
        connect("s3://bucket/a", stub, config_kwargs=config) as store,
        pytest.raises(StoreError) as caught,
    ):
        store.put("a", b"x")
    assert (type(caught.value), caught.value.errno) == (StoreError, errno.ECONNREFUSED)


@pytest.mark.parametrize("zone", ["GMT", "-0000", ""])
def test_a_moment_to_retry_at_may_come_without_a_zone(stub, store, zone):
    text = f"Thu, 31 Dec 2099 23:59:59 {zone}".strip()
    fault = Refuse(
        503, body=b"<Error><Code>SlowDown</Code></Error>", headers=(("Retry-After", text),)
    )
    stub.rules.add(fault, operation="PutObject")
    with pytest.raises(StoreError, match="throttles") as caught:
        store.put("a", b"x")
    assert caught.value.retry_after_seconds > 3600


@pytest.mark.parametrize("fault", [LoseReply(), refuse(500, "InternalError")])
def test_a_deletion_that_may_have_happened_is_of_unknown_outcome(stub, store, fault):
    stub.rules.add(fault, operation="DeleteObject")
    with pytest.raises(OutcomeUnknownError, match="the deletion of 'there'"):
        store.delete("there")


@pytest.mark.parametrize("mode", CONDITIONAL)
@pytest.mark.parametrize(
    ("status", "code", "number"),
    [(503, "SlowDown", errno.EAGAIN), (429, "TooManyRequests", errno.EAGAIN),
     (503, "SlowDownWrite", errno.EAGAIN), (400, "RequestTimeout", errno.ETIMEDOUT),
     (409, "ConditionalRequestConflict", errno.EBUSY), (409, "OperationAborted", errno.EBUSY),
     (403, "AccessDenied", errno.EACCES), (400, "ExpiredToken", errno.EACCES),
     (507, "InsufficientStorage", errno.ENOSPC), (403, "QuotaExceeded", errno.EDQUOT),
     (400, "EntityTooLarge", errno.EFBIG), (501, "NotImplemented", errno.ENOSYS)],
)  # fmt: skip
def test_a_write_that_was_refused_changed_nothing(stub, store, status, code, number, mode):
    if status == 507:
        code = "XMinioStorageFull"
    stub.rules.add(refuse(status, code), operation="PutObject")
    with pytest.raises((StoreError, OutcomeUnknownError), match=code) as caught:
        store.put("a", b"x", mode)
    if status == 507:
        # A disk may be full after the bytes were written.
        assert isinstance(caught.value, OutcomeUnknownError)
    else:
        assert isinstance(caught.value, StoreError)
        assert caught.value.errno == number
    assert stub.counted()["PutObject"] == 1


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_409_of_a_race_is_no_conflict(stub, store, code):
    """Every contender would believe that somebody else had won."""
    stub.rules.add(refuse(409, code), operation="PutObject")
    with pytest.raises(StoreError, match="nothing was decided") as caught:
        store.put("a", b"x")
    assert not isinstance(caught.value, ConflictError)


@pytest.mark.parametrize("detail", ["full", "no condition", "none"])
def test_a_412_is_understood_whatever_it_carries(stub, store, detail):
    stub.dialect.detail = detail
    with pytest.raises(AlreadyExistsError):
        store.put("there", b"y")
    with pytest.raises(ConflictError):
        store.put("there", b"y", CONDITIONAL[1])


@pytest.mark.parametrize("status", [404, 412])
def test_an_update_of_what_is_gone_is_a_conflict(stub, store, status):
    stub.dialect.missing_status = status
    with pytest.raises(ConflictError, match="gone"):
        store.put("gone", b"x", CONDITIONAL[1])


@pytest.mark.parametrize("header", [("Retry-After", "7"), None])
def test_throttling_says_so_and_for_how_long(stub, store, header):
    stub.rules.add(
        refuse(503, "SlowDown", retry_after=7 if header else None), operation="PutObject"
    )
    with pytest.raises(StoreError, match="throttles") as caught:
        store.put("a", b"x")
    assert caught.value.retry_after_seconds == (7 if header else None)


def test_a_refused_permission_names_the_action_and_the_policy(stub, store):
    calls = {
        "s3:PutObject": ("PutObject", lambda: store.put("a", b"x", OVERWRITE)),
        "s3:GetObject": ("GetObject", lambda: store.get("there")),
        "s3:DeleteObject": ("DeleteObject", lambda: store.delete("there")),
        "s3:ListBucket": ("ListObjectsV2", lambda: list(store.list())),
    }
    for action, (operation, call) in calls.items():
        stub.rules.add(refuse(403, "AccessDenied"), operation=operation)
        with pytest.raises(StoreError, match=f"not allowed {action}: check the polic") as caught:
            call()
        assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [(403, "RequestTimeTooSkewed", "clock of this host"),
     (403, "InvalidAccessKeyId", "check the credentials"),
     (403, "SignatureDoesNotMatch", "secret is not that of this key"),
     (400, "ExpiredToken", "expired"),
     (301, "PermanentRedirect", "region"),
     (400, "AuthorizationHeaderMalformed", "region")],
)  # fmt: skip
def test_what_a_user_can_mend_is_said(stub, store, status, code, advice):
    stub.rules.add(refuse(status, code), times=None, operation="PutObject|GetObject|HeadObject")
    for call in (lambda: store.get("there"), lambda: store.put("a", b"x")):
        with pytest.raises(StoreError, match=advice):
            call()


@pytest.mark.parametrize(
    "call",
    [lambda store: store.get("a"), lambda store: store.head("a"), lambda store: store.put("a", b""),
     lambda store: list(store.list()), lambda store: store.open("a").__enter__(),
     lambda store: store.get_if_changed("a", "1")],
    ids=["get", "head", "put", "list", "open", "get_if_changed"],
)  # fmt: skip
def test_a_bucket_that_is_not_there_is_said_to_be(stub, call):
    with connect("s3://no-such-bucket/a", stub) as store:
        with pytest.raises(StoreError, match="there is no bucket 'no-such-bucket'") as caught:
            call(store)
        assert not isinstance(caught.value, NotFoundError)


def test_a_key_that_is_too_long_is_an_invalid_key(stub, store):
    stub.rules.add(refuse(400, "KeyTooLongError"), operation="PutObject")
    with pytest.raises(InvalidKeyError):
        store.put("a", b"x")


def test_a_server_that_is_not_there_was_sent_nothing(stub):
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    with connect("s3://bucket/a", stub, endpoint_url=address) as store:
        with pytest.raises(StoreError, match="no answer from http://127") as caught:
            store.put("a", b"x")
        assert caught.value.errno == errno.ECONNREFUSED


def test_without_credentials_it_says_where_they_are_looked_for(stub):
    with (
        connect("s3://bucket/a", stub, key=None, secret=None) as store,
        pytest.raises(StoreError, match="no credentials were found"),
    ):
        store.put("a", b"x")


def test_a_profile_that_is_not_there_is_named(stub):
    with (
        connect("s3://bucket/a", stub, key=None, secret=None, profile="nobody") as store,
        pytest.raises(StoreError, match="nobody"),
    ):
        store.put("a", b"x")


def test_a_body_that_breaks_off_is_not_taken_for_the_object(stub, store):
    store.put("long", b"x" * 100_000)
    stub.rules.add(Cut(after_bytes=5000), operation="GetObject")
    with pytest.raises(StoreError) as caught:
        store.get("long")
    assert caught.value.errno == errno.ECONNRESET


def test_a_closed_store_says_so(stub):
    store = BucketPlace(stub).open()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.put("a", b"x")


# Credentials


SECRETS = {"key": "AKIAVERYSECRET", "secret": "s3cr3t/of+ours", "token": "t0ken-of-ours"}


def test_no_error_shows_credentials_that_a_server_repeats(stub, caplog):
    caplog.set_level("DEBUG")
    customer = {
        "SSECustomerAlgorithm": "AES256",
        "SSECustomerKey": "c0stomerkey-of-32-bytes-exactly!",
    }
    shown = []
    with connect("s3://bucket/a", stub, **SECRETS, s3_additional_kwargs=customer) as store:
        text = " ".join([*SECRETS.values(), customer["SSECustomerKey"]])
        stub.rules.add(refuse(403, "AccessDenied", message=text), times=None)
        for call in (
            lambda: store.get("a"),
            lambda: store.put("a", b"x"),
            lambda: store.upload("a", io.BytesIO(b"x")),
            lambda: list(store.list()),
            lambda: store.delete("a"),
            lambda: store.sweep(0),
            lambda: store.capabilities,
        ):
            with pytest.raises(StoreError, match=r"\*\*\*") as caught:
                call()
            shown += chain(caught.value)
        shown += [repr(store), repr(store.__dict__), store.url]
    shown += [record.getMessage() for record in caplog.records]
    for secret in (*SECRETS.values(), customer["SSECustomerKey"]):
        assert [text for text in shown if secret in text] == []


def chain(error: BaseException) -> list[str]:
    """What a traceback would show of an error and of those before it."""
    shown = []
    while error is not None:
        shown += [str(error), repr(error), repr(getattr(error, "response", ""))]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return shown


def test_credentials_in_the_address_of_an_endpoint_are_not_shown(stub):
    address = f"http://user:pass-w0rd@127.0.0.1:{free_ports(1)[0]}"
    with connect("s3://bucket/a", stub, endpoint_url=address) as store:
        with pytest.raises(StoreError) as caught:
            store.put("a", b"x")
        assert "pass-w0rd" not in " ".join(chain(caught.value))


@pytest.mark.parametrize("url", ["s3://key:s3cr3t@bucket/a", "s3://key:s3cr3t@/a"])
def test_credentials_in_a_url_are_refused_without_being_shown(url):
    with pytest.raises(InvalidKeyError) as caught:
        open_store(url, storage_options={}, clock=SYSTEM_CLOCK)
    assert "s3cr3t" not in str(caught.value)
