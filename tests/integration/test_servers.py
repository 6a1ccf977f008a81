"""Each server starts, serves, ends, and keeps what its module promises."""

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
