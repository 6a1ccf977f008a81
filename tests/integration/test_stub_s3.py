"""The stub answers as S3 does, and each defect that it promises really happens."""

import threading

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from tests.servers.faults import Cut, Hold, LoseReply, LoseRequest, Trickle, refuse
from tests.servers.s3 import code_of

OTHER = '"0123456789abcdef0123456789abcdef"'
MIB = 2**20


@pytest.fixture
def stub(stub_s3_server):
    return stub_s3_server


@pytest.fixture
def s3(stub):
    with stub.client(read_timeout=20) as client:
        yield BucketClient(client, stub.new_bucket())


class BucketClient:
    """boto3's client with the bucket filled in."""

    def __init__(self, client, bucket):
        self.client, self.bucket = client, bucket

    def __getattr__(self, name):
        call = getattr(self.client, name)
        return lambda **request: call(Bucket=self.bucket, **request)

    def text(self, key):
        return self.get_object(Key=key)["Body"].read()

    def keys(self, **request):
        return [each["Key"] for each in self.list_objects_v2(**request).get("Contents", [])]

    def upload(self, key, *parts, **conditions):
        upload = self.create_multipart_upload(Key=key, Metadata={"by": "parts"})["UploadId"]
        sent = [
            self.upload_part(Key=key, UploadId=upload, PartNumber=number, Body=part)["ETag"]
            for number, part in enumerate(parts, 1)
        ]
        return self.complete_multipart_upload(
            Key=key,
            UploadId=upload,
            MultipartUpload={
                "Parts": [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(sent, 1)]
            },
            **conditions,
        )


# As on AWS


def test_an_object_comes_back_as_it_was_put(s3):
    key, kept = "a//b c+ü", {"Metadata": {"by": "me"}, "ContentType": "text/plain"}
    put = s3.put_object(Key=key, Body=b"one", **kept)
    got, head = s3.get_object(Key=key), s3.head_object(Key=key)
    assert (got["Body"].read(), got["ETag"]) == (b"one", put["ETag"])
    for each in (got, head):
        assert (each["ContentLength"], kept.items() <= each.items()) == (3, True)


@pytest.mark.parametrize(
    ("wanted", "got"), [("bytes=1-2", b"12"), ("bytes=7-", b"789"), ("bytes=-3", b"789")]
)
def test_a_range_is_answered_with_its_bytes(s3, wanted, got):
    s3.put_object(Key="k", Body=b"0123456789")
    answer = s3.get_object(Key="k", Range=wanted)
    assert (answer["Body"].read(), answer["ResponseMetadata"]["HTTPStatusCode"]) == (got, 206)


def test_a_range_behind_the_end_is_refused(s3):
    s3.put_object(Key="k", Body=b"0123456789")
    assert code_of(s3.get_object, Key="k", Range="bytes=10-") == (416, "InvalidRange")


def test_reads_keep_their_conditions(s3):
    etag = s3.put_object(Key="k", Body=b"1")["ETag"]
    assert code_of(s3.get_object, Key="k", IfNoneMatch=etag)[0] == 304
    assert code_of(s3.get_object, Key="k", IfMatch=OTHER) == (412, "PreconditionFailed")
    assert s3.get_object(Key="k", IfNoneMatch=OTHER, IfMatch=etag)["Body"].read() == b"1"


def test_writes_keep_their_conditions(s3):
    etag = s3.put_object(Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert code_of(s3.put_object, Key="k", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert code_of(s3.put_object, Key="k", IfMatch=OTHER) == (412, "PreconditionFailed")
    assert code_of(s3.put_object, Key="absent", IfMatch=etag) == (404, "NoSuchKey")
    assert s3.text("k") == b"1"
    s3.put_object(Key="k", Body=b"2", IfMatch=etag)
    assert s3.text("k") == b"2"


def test_a_failed_condition_is_named(s3):
    s3.put_object(Key="k", Body=b"1")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Key="k", IfNoneMatch="*")
    assert caught.value.response["Error"]["Condition"] == "If-None-Match"


def test_deletions_keep_their_conditions(s3):
    etag = s3.put_object(Key="k", Body=b"1")["ETag"]
    assert code_of(s3.delete_object, Key="k", IfMatch=OTHER) == (412, "PreconditionFailed")
    assert code_of(s3.delete_object, Key="absent", IfMatch=etag) == (404, "NoSuchKey")
    s3.delete_object(Key="k", IfMatch=etag)
    s3.delete_object(Key="k")
    assert code_of(s3.get_object, Key="k") == (404, "NoSuchKey")


def test_many_are_deleted_at_once_each_under_its_condition(s3):
    for key in ("a", "b", "c"):
        s3.put_object(Key=key, Body=b"1")
    objects = [{"Key": "a"}, {"Key": "b", "ETag": OTHER}, {"Key": "absent"}]
    answer = s3.delete_objects(Delete={"Objects": objects})
    assert [each["Key"] for each in answer["Deleted"]] == ["a", "absent"]
    assert [(each["Key"], each["Code"]) for each in answer["Errors"]] == [
        ("b", "PreconditionFailed")
    ]
    assert s3.keys() == ["b", "c"]


def test_a_copy_keeps_its_conditions(s3):
    s3.put_object(Key="a", Body=b"1", Metadata={"by": "me"})
    source = {"Bucket": s3.bucket, "Key": "a"}
    s3.copy_object(Key="b", CopySource=source, IfNoneMatch="*")
    assert code_of(s3.copy_object, Key="b", CopySource=source, IfNoneMatch="*")[0] == 412
    assert (s3.text("b"), s3.head_object(Key="b")["Metadata"]) == (b"1", {"by": "me"})


def test_a_listing_is_in_the_order_of_bytes(s3):
    keys = ["a", "a b", "a+b", "a-b", "a/b", "a<&>b", "ab", "z", "ä", "\U0001f600"]
    for key in reversed(keys):
        s3.put_object(Key=key, Body=b"1")
    assert s3.keys() == keys == sorted(keys, key=str.encode)


def test_pages_of_a_listing_have_each_key_and_prefix_once(s3):
    for key in ("a", "b/1", "b/2", "b/3", "c", "d/1", "d/2", "e"):
        s3.put_object(Key=key, Body=b"1")
    found, token = [], {}
    while True:
        page = s3.list_objects_v2(Delimiter="/", MaxKeys=1, **token)
        found += [each["Key"] for each in page.get("Contents", [])]
        found += [each["Prefix"] for each in page.get("CommonPrefixes", [])]
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    assert found == ["a", "b/", "c", "d/", "e"]


def test_a_listing_starts_after_a_key_below_a_prefix(s3):
    for key in ("l/1", "l/2", "l/3", "m"):
        s3.put_object(Key=key, Body=b"1")
    assert s3.keys(Prefix="l/", StartAfter="l/1") == ["l/2", "l/3"]
    page = s3.list_objects_v2(Delimiter="/", StartAfter="l/1")
    assert page["CommonPrefixes"] == [{"Prefix": "l/"}]


def test_parts_become_one_object_under_a_condition(s3):
    s3.upload("k", b"a" * 5 * MIB, b"b", IfNoneMatch="*")
    head = s3.head_object(Key="k")
    assert (head["ContentLength"], head["Metadata"]) == (5 * MIB + 1, {"by": "parts"})
    assert head["ETag"].endswith('-2"')
    assert code_of(s3.upload, "k", b"c", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert code_of(s3.upload, "k", b"c", IfMatch=OTHER) == (412, "PreconditionFailed")
    assert s3.text("k")[-1:] == b"b"


def test_small_and_missing_parts_are_refused(s3):
    assert code_of(s3.upload, "k", b"a", b"b") == (400, "EntityTooSmall")
    upload = s3.create_multipart_upload(Key="k")["UploadId"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": OTHER}]}
    call = s3.complete_multipart_upload
    assert code_of(call, Key="k", UploadId=upload, MultipartUpload=parts) == (400, "InvalidPart")


def test_an_upload_and_its_parts_are_listed_until_it_is_aborted(s3):
    uploads = [s3.create_multipart_upload(Key=f"k{n}")["UploadId"] for n in range(3)]
    for number in (1, 2, 3):
        s3.upload_part(Key="k1", UploadId=uploads[1], PartNumber=number, Body=b"a")
    first = s3.list_parts(Key="k1", UploadId=uploads[1], MaxParts=2)
    rest = s3.list_parts(
        Key="k1", UploadId=uploads[1], PartNumberMarker=first["NextPartNumberMarker"]
    )
    assert [part["PartNumber"] for page in (first, rest) for part in page["Parts"]] == [1, 2, 3]
    s3.abort_multipart_upload(Key="k1", UploadId=uploads[1])
    first = s3.list_multipart_uploads(MaxUploads=1)
    rest = s3.list_multipart_uploads(KeyMarker=first["NextKeyMarker"], UploadIdMarker=uploads[0])
    listed = [each["UploadId"] for page in (first, rest) for each in page["Uploads"]]
    assert listed == [uploads[0], uploads[2]]
    assert code_of(s3.list_parts, Key="k1", UploadId=uploads[1]) == (404, "NoSuchUpload")


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_a_body_that_does_not_fit_its_checksum_is_refused(s3, algorithm):
    s3.put_object(Key="k", Body=b"1", ChecksumAlgorithm=algorithm)
    wrong = {f"Checksum{algorithm}": "AAAAAA=="}
    assert code_of(s3.put_object, Key="k", Body=b"2", **wrong) == (400, "BadDigest")
    assert s3.text("k") == b"1"


# Dialects


@pytest.mark.parametrize("detail", ["no condition", "none"])
def test_a_412_may_come_without_detail(stub, s3, detail):
    stub.dialect.detail = detail
    s3.put_object(Key="k", Body=b"1")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Key="k", IfNoneMatch="*")
    assert "Condition" not in caught.value.response["Error"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert ("PreconditionFailed" in str(caught.value)) == (detail == "no condition")


def test_if_match_without_an_object_may_be_a_412(stub, s3):
    stub.dialect.missing_status = 412
    assert code_of(s3.put_object, Key="k", IfMatch=OTHER) == (412, "PreconditionFailed")
    assert code_of(s3.delete_object, Key="k", IfMatch=OTHER) == (412, "PreconditionFailed")


@pytest.mark.parametrize(("quotes", "works"), [("required", '"{}"'), ("refused", "{}")])
def test_an_etag_may_match_in_one_form_only(stub, s3, quotes, works):
    stub.dialect.quotes = quotes
    etag = s3.put_object(Key="k", Body=b"1")["ETag"].strip('"')
    forms = {form: form.format(etag) for form in ('"{}"', "{}")}
    answers = {
        form: code_of(s3.put_object, Key="k", Body=b"1", IfMatch=etag)[0]
        for form, etag in forms.items()
    }
    assert answers == {form: 200 if form == works else 412 for form in forms}


IGNORING = {
    "PutObject If-None-Match": lambda s3: s3.put_object(Key="k", Body=b"2", IfNoneMatch="*"),
    "PutObject If-Match": lambda s3: s3.put_object(Key="k", Body=b"2", IfMatch=OTHER),
    "DeleteObject": lambda s3: s3.delete_object(Key="k", IfMatch=OTHER),
    "DeleteObjects": lambda s3: s3.delete_objects(
        Delete={"Objects": [{"Key": "k", "ETag": OTHER}], "Quiet": True}
    ),
    "CompleteMultipartUpload": lambda s3: s3.upload("k", b"2", IfMatch=OTHER),
    "CopyObject": lambda s3: s3.copy_object(
        Key="k", CopySource={"Bucket": s3.bucket, "Key": "other"}, IfNoneMatch="*"
    ),
}


@pytest.mark.parametrize("ignored", IGNORING)
def test_conditions_may_be_ignored_by_one_operation_alone(stub, s3, ignored):
    s3.put_object(Key="other", Body=b"2")
    s3.put_object(Key="k", Body=b"1")
    stub.dialect.ignored = {ignored}
    # Those that the server does keep come first: they must not change anything.
    for each in sorted(IGNORING, key=lambda each: each == ignored):
        assert went_through(IGNORING[each], s3) == (each == ignored), each
    left = s3.keys()
    assert left == (["other"] if ignored.startswith("Delete") else ["k", "other"])
    assert {s3.text(key) for key in left} == {b"2"}


def went_through(call, s3):
    """False for a 412, also for one of a single key."""
    try:
        return not call(s3).get("Errors")
    except ClientError as exc:
        if exc.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
            raise
        return False


def test_listings_may_be_stale(stub, s3):
    s3.put_object(Key="old", Body=b"1")
    s3.keys()
    stub.dialect.listing_lag = 2
    s3.put_object(Key="new", Body=b"1")
    s3.delete_object(Key="old")
    assert [s3.keys() for _ in range(3)] == [["old"], ["old"], ["new"]]
    assert s3.text("new") == b"1"


def test_etags_may_say_nothing_of_the_content(stub, s3):
    stub.dialect.etags = "opaque"
    assert len({s3.put_object(Key="k", Body=b"same")["ETag"] for _ in range(3)}) == 3


def test_the_clock_may_be_wrong(stub, s3):
    right = s3.put_object(Key="k", Body=b"1")["ResponseMetadata"]["HTTPHeaders"]["date"]
    at = s3.head_object(Key="k")["LastModified"]
    stub.dialect.clock_ahead_seconds = 3600
    wrong = s3.put_object(Key="k", Body=b"1")["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert right != wrong
    assert 3500 < (s3.head_object(Key="k")["LastModified"] - at).total_seconds() < 3700


# Faults of single requests


def test_a_lost_reply_leaves_the_write_in_place(stub, s3):
    stub.rules.add(LoseReply(), operation="PutObject", key="k")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Key="k", Body=b"1", IfNoneMatch="*")
    assert s3.text("k") == b"1"


def test_a_lost_request_leaves_nothing(stub, s3):
    stub.rules.add(LoseRequest(), operation="PutObject", key="k")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Key="k", Body=b"1")
    assert s3.keys() == []


def test_a_client_that_repeats_a_write_whose_reply_was_lost_fails_against_itself(stub, s3):
    stub.rules.add(LoseReply(), operation="PutObject")
    with stub.client(retries={"total_max_attempts": 3}) as client:
        answer = code_of(client.put_object, Bucket=s3.bucket, Key="k", Body=b"1", IfNoneMatch="*")
    assert (answer, s3.text("k")) == ((412, "PreconditionFailed"), b"1")


@pytest.mark.parametrize(
    ("status", "code", "retry_after"),
    [
        (409, "ConditionalRequestConflict", None),
        (429, "SlowDown", None),
        (429, "SlowDown", 2),
        (503, "SlowDown", None),
        (503, "SlowDown", 2),
    ],
)
def test_a_refusal_is_answered_and_nothing_is_done(stub, s3, status, code, retry_after):
    stub.rules.add(refuse(status, code, retry_after=retry_after), operation="PutObject")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Key="k", Body=b"1" * MIB)
    answer = caught.value.response
    assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]) == (status, code)
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers.get("retry-after") == (retry_after and str(retry_after))
    assert s3.keys() == []


def test_an_error_may_come_with_status_200(stub, s3):
    """As AWS does when assembling the parts takes long."""
    stub.rules.add(refuse(200, "InternalError"), operation="CompleteMultipartUpload")
    assert code_of(s3.upload, "k", b"1") == (500, "InternalError")
    assert s3.keys() == []


def test_a_rule_acts_on_the_nth_request_that_meets_it_and_as_often_as_told(stub, s3):
    rule = stub.rules.add(refuse(503, "SlowDown"), operation="PutObject", key="a.*", nth=2, times=2)
    answers = [
        code_of(s3.put_object, Key=key, Body=b"1")[0] for key in ("a", "b", "a1", "b", "a", "a")
    ]
    assert (answers, rule.hits) == ([200, 200, 503, 200, 503, 200], 2)


def test_a_body_may_end_early(stub, s3):
    s3.put_object(Key="k", Body=b"x" * MIB)
    stub.rules.add(Cut(after_bytes=1000), operation="GetObject")
    with pytest.raises((IncompleteReadError, ResponseStreamingError)):
        s3.text("k")
    assert len(s3.text("k")) == MIB


def test_an_upload_may_be_cut(stub, s3):
    stub.rules.add(Cut(after_bytes=1000, of="request"), operation="PutObject")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Key="k", Body=b"x" * 8 * MIB)
    assert s3.keys() == []


def test_a_body_may_come_slowly(stub, s3):
    s3.put_object(Key="k", Body=b"x" * 10)
    stub.rules.add(Trickle(piece_bytes=1, pause_seconds=0.02), operation="GetObject")
    body = s3.get_object(Key="k")["Body"]
    assert body.read() == b"x" * 10
    stub.rules.add(Trickle(piece_bytes=1, pause_seconds=30), operation="GetObject")
    with stub.client(read_timeout=0.1) as hasty, pytest.raises(ReadTimeoutError):
        hasty.get_object(Bucket=s3.bucket, Key="k")["Body"].read()


def test_a_request_may_be_carried_out_when_its_client_has_given_up(stub, s3):
    hold = Hold()
    stub.rules.add(hold, operation="PutObject", key="k")
    with stub.client(read_timeout=0.2) as hasty, pytest.raises(ReadTimeoutError):
        hasty.put_object(Bucket=s3.bucket, Key="k", Body=b"late")
    assert hold.arrived.wait(10)
    assert s3.keys() == []
    hold.release()
    assert hold.done.wait(10)
    assert s3.text("k") == b"late"


def test_a_held_request_is_answered_if_somebody_still_waits(stub, s3):
    hold = Hold()
    stub.rules.add(hold, operation="PutObject")
    writer = threading.Thread(target=s3.put_object, kwargs={"Key": "k", "Body": b"1"})
    writer.start()
    assert hold.arrived.wait(10)
    hold.release()
    writer.join(10)
    assert (writer.is_alive(), s3.text("k")) == (False, b"1")


def test_requests_are_counted(stub, s3):
    stub.requests.clear()
    stub.rules.add(LoseReply(), operation="DeleteObject")
    s3.put_object(Key="k", Body=b"1")
    code_of(s3.put_object, Key="k", IfNoneMatch="*")
    with pytest.raises(ConnectionClosedError):
        s3.delete_object(Key="k")
    assert [(each.operation, each.key, each.status) for each in stub.requests] == [
        ("PutObject", "k", 200),
        ("PutObject", "k", 412),
        ("DeleteObject", "k", 0),
    ]
    assert stub.counted() == {"PutObject": 2, "DeleteObject": 1}
