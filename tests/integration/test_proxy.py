"""The proxy passes on what it should, counts it, delays it, and does wrong when told to."""

import os
import socket
import threading
import time
from dataclasses import replace

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from tests.servers import proxy
from tests.servers.faults import Cut, Hold, LoseReply, LoseRequest, Trickle, refuse
from tests.servers.proxy_link import PIECE_BYTES
from tests.servers.s3 import code_of

MIB = 2**20
DELAY = 0.05


@pytest.fixture
def bucket(stub_s3_server):
    return stub_s3_server.new_bucket()


@pytest.fixture
def link(stub_s3_server):
    with proxy.http(stub_s3_server.port) as running:
        yield running


@pytest.fixture
def s3(stub_s3_server, link):
    """A client that goes through the proxy."""
    with stub_s3_server.at(link.endpoint).client() as client:
        yield client


@pytest.fixture
def direct(stub_s3_server):
    """One that does not."""
    with stub_s3_server.client() as client:
        yield client


def keys(client, bucket):
    return [each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def text(client, bucket, key):
    return client.get_object(Bucket=bucket, Key=key)["Body"].read()


def test_bodies_of_any_size_go_through_in_both_directions(s3, bucket):
    for size in (0, 1, 70_000, 9 * MIB):
        body = os.urandom(size)
        s3.put_object(Bucket=bucket, Key="k", Body=body)
        assert text(s3, bucket, "k") == body


@pytest.mark.parametrize("fixture", ["seaweedfs", "radosgw", "juicefs_s3"])
def test_a_server_that_checks_signatures_takes_what_came_through_the_proxy(request, fixture):
    server = request.getfixturevalue(fixture)
    bucket = server.new_bucket()
    with replace(server, secret=server.secret[::-1]).client() as stranger:
        assert code_of(stranger.list_objects_v2, Bucket=bucket)[0] == 403
    with proxy.http(server.port) as link, server.at(link.endpoint).client() as client:
        client.put_object(Bucket=bucket, Key="a b/ü", Body=b"one" * 100_000)
        assert text(client, bucket, "a b/ü") == b"one" * 100_000
        assert keys(client, bucket) == ["a b/ü"]


def test_requests_are_counted_with_their_status(s3, link, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    code_of(s3.put_object, Bucket=bucket, Key="k", IfNoneMatch="*")
    code_of(s3.head_object, Bucket=bucket, Key="none")
    keys(s3, bucket)
    s3.delete_object(Bucket=bucket, Key="k")
    assert [(each.method, each.path.split("?")[0], each.status) for each in link.requests] == [
        ("PUT", f"/{bucket}/k", 200),
        ("PUT", f"/{bucket}/k", 412),
        ("HEAD", f"/{bucket}/none", 404),
        ("GET", f"/{bucket}", 200),
        ("DELETE", f"/{bucket}/k", 204),
    ]
    assert link.counted() == {"PUT": 2, "HEAD": 1, "GET": 1, "DELETE": 1}
    assert link.connections == 1


def test_chunked_requests_are_counted_one_by_one(stub_s3_server, link, bucket):
    head = f"PUT /{bucket}/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", link.port), 10) as connection:
        for _ in range(3):
            connection.sendall(head + b"4\r\nsome\r\n5;x=y\r\n text\r\n0\r\nTrailer: 1\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    assert [each.status for each in link.requests] == [200] * 3
    with stub_s3_server.client() as client:
        assert text(client, bucket, "k") == b"some text"


# Delay


def test_each_request_takes_one_round_trip_and_a_connection_one_more(stub_s3_server, bucket):
    with (
        proxy.http(stub_s3_server.port, delay_seconds=DELAY) as link,
        stub_s3_server.at(link.endpoint).client() as client,
    ):
        times = []
        for _ in range(4):
            start = time.perf_counter()
            client.head_bucket(Bucket=bucket)
            times.append(time.perf_counter() - start)
    assert times[0] >= 4 * DELAY
    assert min(times[1:]) == pytest.approx(2 * DELAY, rel=0.5)
    assert min(times[1:]) >= 2 * DELAY


@pytest.mark.parametrize("kind", ["threads", "process"])
def test_a_delay_takes_no_bandwidth(kind):
    """As it would if each piece waited for the one before."""
    size = 32 * MIB
    with socket.create_server(("127.0.0.1", 0)) as listening:
        start = {
            "threads": lambda: proxy.tcp(port, delay_seconds=DELAY),
            "process": lambda: proxy.process(port, delay_seconds=DELAY),
        }[kind]
        port = listening.getsockname()[1]
        with start() as link:
            received = []
            reading = threading.Thread(target=lambda: received.append(drained(listening)))
            reading.start()
            began = time.perf_counter()
            address = ("127.0.0.1", link if isinstance(link, int) else link.port)
            with socket.create_connection(address, 10) as connection:
                connection.sendall(bytes(size))
            reading.join(30)
            took = time.perf_counter() - began
    assert received == [size]
    assert DELAY < took < size / PIECE_BYTES * DELAY / 4


def drained(listening):
    connection, _ = listening.accept()
    with connection:
        total = 0
        while data := connection.recv(MIB):
            total += len(data)
        return total


# Faults


def test_a_lost_reply_leaves_the_write_in_place(s3, direct, link, bucket):
    link.rules.add(LoseReply(), method="PUT", path=".*/k")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    assert text(direct, bucket, "k") == b"1"
    assert [each.status for each in link.requests] == [200]


def test_a_lost_request_leaves_nothing(s3, direct, link, bucket):
    link.rules.add(LoseRequest(), method="PUT")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket=bucket, Key="k", Body=b"1" * MIB)
    assert (keys(direct, bucket), link.requests) == ([], [])


@pytest.mark.parametrize("size", [10, 3 * MIB])
def test_a_request_may_be_delivered_when_its_client_has_given_up(
    stub_s3_server, direct, link, bucket, size
):
    hold = Hold()
    link.rules.add(hold, method="PUT", path=".*/k")
    with stub_s3_server.at(link.endpoint).client(read_timeout=0.3) as hasty:
        with pytest.raises(ReadTimeoutError):
            hasty.put_object(Bucket=bucket, Key="k", Body=b"l" * size)
        assert hold.arrived.wait(10)
        assert keys(direct, bucket) == []
    hold.release()
    assert hold.done.wait(10)
    assert text(direct, bucket, "k") == b"l" * size


def test_more_requests_may_be_held_than_there_are_processors(s3, link, bucket):
    holds = [Hold() for _ in range(10)]
    for number, hold in enumerate(holds):
        link.rules.add(hold, path=f".*/{number}")
    writers = [
        threading.Thread(
            target=s3.put_object, kwargs={"Bucket": bucket, "Key": str(number), "Body": b"1"}
        )
        for number in range(len(holds))
    ]
    for writer in writers:
        writer.start()
    assert all(hold.arrived.wait(10) for hold in holds)
    link.rules.clear()
    for writer in writers:
        writer.join(10)
    assert len(keys(s3, bucket)) == len(holds)


@pytest.mark.parametrize(
    ("status", "code", "extra"),
    [
        (409, "ConditionalRequestConflict", {}),
        (412, "PreconditionFailed", {}),
        (412, "PreconditionFailed", {"condition": "If-None-Match"}),
        (429, "SlowDown", {"retry_after": 3}),
        (503, "SlowDown", {}),
    ],
)
def test_a_refusal_comes_from_the_proxy_and_nothing_is_passed_on(
    s3, direct, link, bucket, status, code, extra
):
    link.rules.add(refuse(status, code, **extra), method="PUT")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=bucket, Key="k", Body=b"1" * MIB)
    answer = caught.value.response
    assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]) == (status, code)
    assert answer["Error"].get("Condition") == extra.get("condition")
    retry_after = answer["ResponseMetadata"]["HTTPHeaders"].get("retry-after")
    assert retry_after == (extra.get("retry_after") and str(extra["retry_after"]))
    assert (keys(direct, bucket), link.requests) == ([], [])
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")


def test_an_upload_may_be_cut_within_its_body(s3, direct, link, bucket):
    link.rules.add(Cut(after_bytes=1000, of="request"), method="PUT")
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket=bucket, Key="k", Body=b"1" * 8 * MIB)
    assert keys(direct, bucket) == []


@pytest.mark.parametrize("after_bytes", [0, 1000, 5 * MIB])
def test_a_download_may_be_cut_within_its_body(s3, link, bucket, after_bytes):
    s3.put_object(Bucket=bucket, Key="k", Body=b"1" * 8 * MIB)
    link.rules.add(Cut(after_bytes=after_bytes), method="GET")
    got = []
    with pytest.raises((IncompleteReadError, ResponseStreamingError)):
        got.extend(iter(s3.get_object(Bucket=bucket, Key="k")["Body"]))
    assert sum(map(len, got)) <= after_bytes


def test_a_download_may_be_slow(s3, link, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"1" * 10)
    link.rules.add(Trickle(piece_bytes=1, pause_seconds=0.02), method="GET")
    start = time.perf_counter()
    assert text(s3, bucket, "k") == b"1" * 10
    assert time.perf_counter() - start >= 9 * 0.02


def test_cut_connections_are_lost_and_new_ones_work(s3, link, bucket):
    hold = Hold()
    link.rules.add(hold, method="PUT")
    failed = []

    def put():
        try:
            s3.put_object(Bucket=bucket, Key="k", Body=b"1")
        except ConnectionClosedError as exc:
            failed.append(exc)

    writer = threading.Thread(target=put)
    writer.start()
    assert hold.arrived.wait(10)
    link.cut()
    writer.join(10)
    assert len(failed) == 1
    assert keys(s3, bucket) == []


def test_a_frozen_link_lets_nothing_through_until_it_thaws(stub_s3_server, link, bucket):
    with stub_s3_server.at(link.endpoint).client(read_timeout=0.2) as hasty:
        link.freeze()
        with pytest.raises(ReadTimeoutError):
            hasty.put_object(Bucket=bucket, Key="k", Body=b"1")
        assert stub_s3_server.counted()["PutObject"] == 0
        link.thaw()
        hasty.put_object(Bucket=bucket, Key="l", Body=b"1")


def test_a_connection_that_the_server_closes_is_closed_to_the_client(stub_s3_server, link, bucket):
    with socket.create_connection(("127.0.0.1", link.port), 10) as connection:
        connection.sendall(f"HEAD /{bucket} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        stub_s3_server.stop()
        assert connection.recv(1) == b""
