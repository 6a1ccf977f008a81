"""`tapstore doctor` on real servers, and on the stub with one defect at a time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, closing

import pytest

import tapstore
from tapstore.doctor import report
from tapstore.doctor.examination import Examination
from tapstore.errors import UnsupportedOperationError
from tests.integration.cli_calls import call
from tests.servers import machines
from tests.servers.faults import refuse
from tests.servers.process import ServerMissingError
from tests.servers.s3 import S3Server


class Bucket:
    """A new bucket, as the command line and the API reach it."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.name = server.new_bucket()
        self.url = f"s3://{self.name}/team/alpha"
        self.env = {
            "AWS_ACCESS_KEY_ID": server.key,
            "AWS_SECRET_ACCESS_KEY": server.secret,
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_DEFAULT_REGION": server.region,
        }

    def doctor(self, *arguments):
        called = call("doctor", self.url, "--json", *arguments, env=self.env)
        assert self.server.secret not in called.out + called.err
        return called.json

    def finding(self, probe, *arguments):
        return next(f for f in self.doctor(*arguments)["findings"] if f["probe"] == probe)

    def keys(self):
        with self.server.client() as client:
            found = client.list_objects_v2(Bucket=self.name)
            return [entry["Key"] for entry in found.get("Contents", ())]


def worst(printed):
    return {f["probe"]: f["severity"] for f in printed["findings"] if f["severity"] != "ok"}


@pytest.mark.timeout(300)
def test_a_server_that_keeps_conditions_can_be_used_also_in_a_race(s3_server):
    bucket = Bucket(s3_server)
    printed = bucket.doctor("--race")
    assert (printed["exit_code"], printed["suits"]) == (0, "store"), printed
    assert set(worst(printed).values()) <= {"note"}, worst(printed)
    race = next(f for f in printed["findings"] if f["probe"] == "race")
    # Bounded by time, too: a busy machine comes less far.
    assert race["values"]["creations"] > 0
    assert race["values"]["updates"] > 0
    assert bucket.keys() == []


def test_a_server_that_ignores_conditions_is_fatal_and_the_way_out_works(juicefs_s3, valkey):
    bucket = Bucket(juicefs_s3)
    printed = bucket.doctor()
    assert (printed["exit_code"], printed["suits"]) == (3, None)
    assert worst(printed)["exclusive-creation"] == "fatal"
    creation = next(f for f in printed["findings"] if f["probe"] == "exclusive-creation")
    assert "--accept lock-only" in creation["change"]
    accepted = bucket.doctor("--locks", valkey.url, "--accept", "lock-only")
    assert accepted["exit_code"] == 0, worst(accepted)
    assert worst(accepted)["exclusive-creation"] == "warning"
    assert bucket.keys() == []


DEFECTS = [
    (),
    ("PutObject",),
    ("PutObject If-None-Match",),
    ("PutObject If-Match",),
    ("DeleteObject",),
    ("CompleteMultipartUpload",),
    ("PutObject", "DeleteObject", "CompleteMultipartUpload"),
]


@pytest.mark.parametrize("ignored", DEFECTS, ids=lambda each: " + ".join(each) or "none")
def test_the_doctor_and_creation_agree(stub_s3_server, ignored):
    stub_s3_server.dialect.ignored.update(ignored)
    bucket = Bucket(stub_s3_server)
    options = stub_s3_server.storage_options
    printed = bucket.doctor()
    try:
        with tapstore.create(bucket.url, roles=["r"], storage_options=options) as session:
            remembered = session.config
        refused = False
    except UnsupportedOperationError:
        refused = True
    assert (printed["exit_code"] == 3) == refused
    if not refused:
        assert printed["suits"] == remembered.locks
        found = remembered.capabilities
        assert printed["capabilities"] == {name: getattr(found, name) for name in (
            "create", "update", "conditional_delete", "files")}  # fmt: skip


@pytest.mark.parametrize(
    ("ignored", "probe", "severity"),
    [
        ("PutObject If-None-Match", "exclusive-creation", "fatal"),
        ("PutObject If-Match", "conditional-put", "note"),
        ("DeleteObject", "conditional-delete", "note"),
        ("CompleteMultipartUpload", "large-objects", "note"),
    ],
)
def test_a_condition_that_is_ignored_is_named(stub_s3_server, ignored, probe, severity):
    stub_s3_server.dialect.ignored.add(ignored)
    printed = Bucket(stub_s3_server).doctor()
    assert worst(printed)[probe] == severity


def test_a_session_sees_that_its_place_has_changed(stub_s3_server):
    bucket = Bucket(stub_s3_server)
    options = stub_s3_server.storage_options
    tapstore.create(bucket.url, roles=["r"], storage_options=options).close()
    assert bucket.finding("session")["severity"] == "ok"
    stub_s3_server.dialect.ignored.add("PutObject If-Match")
    session = bucket.finding("session")
    assert session["severity"] == "fatal"
    assert "what is there now: create, conditional_delete" in session["seen"]


def test_listings_that_lag_are_noted_and_everything_is_removed(stub_s3_server):
    stub_s3_server.dialect.listing_lag = 3
    bucket = Bucket(stub_s3_server)
    lag = bucket.finding("listing-freshness")
    assert lag["severity"] == "note"
    assert lag["values"]["lag_seconds"] > 0
    stub_s3_server.dialect.listing_lag = 0
    assert bucket.keys() == []


def test_listings_that_stay_old_are_a_warning_and_everything_is_removed(stub_s3_server):
    stub_s3_server.dialect.listing_lag = 10**6
    bucket = Bucket(stub_s3_server)
    assert bucket.finding("listing-freshness")["values"] == {"lag_seconds": None}
    stub_s3_server.dialect.listing_lag = 0
    assert bucket.keys() == []


def test_a_clock_that_is_an_hour_wrong_is_a_warning(stub_s3_server):
    stub_s3_server.dialect.clock_ahead_seconds = 3600
    clock = Bucket(stub_s3_server).finding("clock")
    assert clock["severity"] == "warning"
    assert clock["values"]["offset_seconds"] == pytest.approx(-3600, abs=2)


def test_throttling_for_a_moment_changes_no_verdict(stub_s3_server):
    bucket = Bucket(stub_s3_server)
    stub_s3_server.rules.add(refuse(503, "SlowDown", retry_after=1), times=3)
    assert bucket.doctor()["exit_code"] == 0


def test_an_undecided_write_changes_no_verdict(stub_s3_server):
    stub_s3_server.rules.add(
        refuse(409, "ConditionalRequestConflict"), operation="PutObject", nth=3, times=2
    )
    assert Bucket(stub_s3_server).doctor()["exit_code"] == 0


def test_uploads_that_died_are_noted(stub_s3_server):
    bucket = Bucket(stub_s3_server)
    with stub_s3_server.client() as client:
        client.create_multipart_upload(Bucket=bucket.name, Key="team/alpha/artifacts/x")
        client.create_multipart_upload(Bucket=bucket.name, Key="team/beta/x")
    assert bucket.finding("unfinished-uploads")["values"] == {"uploads": 1}


def test_uploads_that_may_not_be_listed_are_noted_with_the_action(stub_s3_server):
    stub_s3_server.rules.add(
        refuse(403, "AccessDenied"), operation="ListMultipartUploads", times=None
    )
    found = Bucket(stub_s3_server).finding("unfinished-uploads")
    assert "s3:ListBucketMultipartUploads" in found["seen"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "no answer from http://127.0.0.1:1"),
        ({}, "there is no bucket 'missing-bucket'"),
    ],
)
def test_a_place_that_cannot_be_reached_is_said_soon(stub_s3_server, change, said):
    bucket = Bucket(stub_s3_server)
    called = call("doctor", "s3://missing-bucket/x", "--json", env={**bucket.env, **change})
    assert called.status == 9
    reach = called.json["findings"][-1]
    assert (reach["probe"], reach["severity"]) == ("reach", "fatal")
    assert said in reach["seen"]


def test_credentials_that_are_refused_are_said_and_not_shown(stub_s3_server):
    bucket = Bucket(stub_s3_server)
    stub_s3_server.rules.add(
        refuse(403, "SignatureDoesNotMatch", message=f"key {stub_s3_server.key}"), times=None
    )
    printed = bucket.doctor()
    assert printed["exit_code"] == 3
    permissions = printed["findings"][-1]
    assert "the secret is not that of this key" in permissions["seen"]
    assert stub_s3_server.key not in json.dumps(printed)


# What is cut short


def start(bucket, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tapstore", "doctor", bucket.url, *arguments],
        env=bucket.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_requests(bucket, process, count):
    while len(bucket.server.requests) < count:
        assert process.poll() is None, "it ended before"


@pytest.mark.parametrize("count", [4, 10, 25, 60, 120, 200])
def test_ctrl_c_after_any_request_leaves_nothing(stub_s3_server, count):
    bucket = Bucket(stub_s3_server)
    with start(bucket, "--race") as process:
        wait_for_requests(bucket, process, count)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 130
    assert bucket.keys() == []


def test_what_a_crash_left_the_next_run_removes(stub_s3_server):
    bucket = Bucket(stub_s3_server)
    with start(bucket) as process:
        wait_for_requests(bucket, process, 60)
        process.kill()
        process.communicate()
    assert bucket.keys() != []
    assert bucket.finding("leftovers")["values"]["removed"] > 0
    assert bucket.keys() == []


@pytest.mark.parametrize("ignored", [(), ("PutObject",)])
def test_two_clients_of_a_bucket_meet(stub_s3_server, ignored):
    bucket = Bucket(stub_s3_server)
    command = [sys.executable, "-m", "tapstore", "doctor", bucket.url, "--peers", "--json"]
    running = [subprocess.Popen(command, env=bucket.env, stdout=subprocess.PIPE) for _ in range(2)]
    # As of a server that was sound when it was tried out: the race alone can tell.
    while sum(seen.key.endswith("timed") for seen in stub_s3_server.requests) < 80:
        assert all(process.poll() is None for process in running)
    stub_s3_server.dialect.ignored.update(ignored)
    printed = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    for each in printed:
        met = next(f for f in each["findings"] if f["probe"] == "peers")
        assert met["severity"] == ("fatal" if ignored else "ok")
        assert met["values"]["peers"] == 1
    assert bucket.keys() == []


def test_the_findings_are_there_in_python_too(moto_s3):
    examination = Examination(
        f"s3://{moto_s3.new_bucket()}/x", storage_options=moto_s3.storage_options, with_race=True
    )
    with closing(examination.findings()) as findings:
        found = list(findings)
    assert report.verdict(found) in ("ok", "note")
    assert examination.suits == "store"


@pytest.mark.timeout(300)
def test_two_machines_with_nothing_in_common_but_a_bucket_meet(seaweedfs):
    bucket = Bucket(seaweedfs)
    command = [sys.executable, "-m", "tapstore", "doctor", bucket.url, "--peers", "--json"]
    with ExitStack() as stack:
        try:
            net = stack.enter_context(machines.network())
        except ServerMissingError as missing:
            pytest.skip(str(missing))
        env = {**bucket.env, "AWS_ENDPOINT_URL": f"http://{net.reach(seaweedfs.port)}"}
        both = [net.machine(name) for name in ("one", "two")]
        running = [machine.start([*command, "--wait", "120"], env, out="said") for machine in both]
        assert [process.wait(240) for process in running] == [0, 0]
        for machine in both:
            said = json.loads((machine.folder / "said").read_text())
            met = next(f for f in said["findings"] if f["probe"] == "peers")
            assert (met["severity"], met["values"]["peers"]) == ("ok", 1), met
    assert bucket.keys() == []
