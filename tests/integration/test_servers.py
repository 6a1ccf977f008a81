"""Each server starts, serves, ends, and keeps what its module promises."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError


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
