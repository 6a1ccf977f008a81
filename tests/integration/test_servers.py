"""Each server starts, serves, ends, and keeps what its module promises."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tapstore.testing.servers.moto_app import OneAtATime


def status(call, **request):
    """The HTTP status of a call of boto3."""
    try:
        return call(**request)["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as exc:
        return exc.response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.fixture
def s3(s3_server):
    with s3_server.client() as client:
        client.bucket = s3_server.new_bucket()
        yield client


def test_an_object_comes_back_as_it_was_put(s3):
    s3.put_object(Bucket=s3.bucket, Key="a/b c+ü", Body=b"one", Metadata={"by": "me"})
    got = s3.get_object(Bucket=s3.bucket, Key="a/b c+ü")
    assert (got["Body"].read(), got["Metadata"]) == (b"one", {"by": "me"})


def test_of_clients_that_create_one_key_exactly_one_wins(s3_server, s3):
    rounds, clients = 5, 8
    barrier = threading.Barrier(clients)

    def contend(number):
        with s3_server.client() as client:
            for each in range(rounds):
                barrier.wait(60)
                request = {"Key": f"race/{each}", "Body": b"%d" % number, "IfNoneMatch": "*"}
                if status(client.put_object, Bucket=s3.bucket, **request) == 200:
                    yield each

    with ThreadPoolExecutor(clients) as pool:
        wins = [
            each
            for won in pool.map(lambda number: list(contend(number)), range(clients))
            for each in won
        ]
    assert sorted(wins) == list(range(rounds))


OTHER = '"0123456789abcdef0123456789abcdef"'


def test_conditions_of_writes_are_kept(s3):
    place = {"Bucket": s3.bucket, "Key": "k"}
    etag = s3.put_object(**place, Body=b"1", IfNoneMatch="*")["ETag"]
    assert status(s3.put_object, **place, Body=b"2", IfNoneMatch="*") == 412
    assert status(s3.put_object, **place, Body=b"2", IfMatch=OTHER) == 412
    # radosgw knows its ETags only without quotes.
    etags = [etag, etag.strip('"')]
    answers = [status(s3.put_object, **place, Body=b"2", IfMatch=each) for each in etags]
    assert 200 in answers
    assert s3.get_object(**place)["Body"].read() == b"2"


def test_the_gateway_of_juicefs_ignores_conditions(juicefs_s3):
    place = {"Bucket": juicefs_s3.new_bucket(), "Key": "k"}
    with juicefs_s3.client() as client:
        client.put_object(**place, Body=b"1")
        assert status(client.put_object, **place, Body=b"2", IfNoneMatch="*") == 200
        assert status(client.put_object, **place, Body=b"3", IfMatch=OTHER) == 200
        assert client.get_object(**place)["Body"].read() == b"3"


def test_moto_is_entered_by_one_request_at_a_time():
    meeting = threading.Barrier(2)

    def app(_, start_response):
        start_response("200 OK", [])
        yield b"alone" if never_met(meeting) else b"together"

    alone = OneAtATime(app)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(alone.answer, {}) for _ in range(2)]
    assert [each.result() for each in answers] == [(200, [], b"alone")] * 2


def never_met(barrier):
    try:
        barrier.wait(0.3)
    except threading.BrokenBarrierError:
        return True
    return False


def test_reads_of_moto_never_fail_while_the_object_is_overwritten(moto_s3):
    """As it comes, it answers 500 now and then."""
    place = {"Bucket": moto_s3.new_bucket(), "Key": "k"}
    done = threading.Event()

    def overwrite():
        with moto_s3.client() as client:
            while not done.is_set():
                client.put_object(**place, Body=b"x" * 10_000)

    with moto_s3.client() as client, ThreadPoolExecutor(2) as pool:
        client.put_object(**place, Body=b"x" * 10_000)
        writers = [pool.submit(overwrite) for _ in range(2)]
        try:
            answers = {status(client.get_object, **place) for _ in range(150)}
        finally:
            done.set()
        for writer in writers:
            writer.result()
    assert answers == {200}


def test_storage_options_are_those_of_fsspec(s3_server):
    assert s3_server.storage_options == {
        "key": s3_server.key,
        "secret": s3_server.secret,
        "endpoint_url": s3_server.endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    assert s3_server.secret not in repr(s3_server)


HALF_SENT = {
    "a length": b"Content-Length: 10\r\n\r\nhalf",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
}


@pytest.mark.parametrize("framing", HALF_SENT)
@pytest.mark.parametrize("fixture", ["moto_s3", "stub_s3_server"])
def test_an_upload_whose_client_leaves_in_the_middle_leaves_nothing(request, fixture, framing):
    server = request.getfixturevalue(fixture)
    bucket = server.new_bucket()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"PUT /{bucket}/k HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        connection.sendall(head + HALF_SENT[framing])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # it has made up its mind
    with server.client() as client:
        assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
