"""Artifacts in a bucket, their state there or elsewhere: large ones, bad links, what is left."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

import tapstore
from tapstore.errors import ArtifactNotFoundError, ChecksumError, StoreError
from tapstore.sessions import garbage
from tapstore.sessions.garbage import ARTIFACT, TEMPORARY
from tapstore.stores.local import LocalStore
from tapstore.testing.clock import ManualClock
from tapstore_s3.store import S3Store
from tests.servers import proxy
from tests.servers.faults import Cut

CLIENT = Path(__file__).with_name("artifact_client.py")
DAY = timedelta(days=1)
MIB = 1 << 20
PART = 5 * MIB
"""The smallest part that S3 takes."""


@pytest.fixture
def bucket(s3_server):
    return s3_server.new_bucket()


@pytest.fixture
def options(s3_server):
    return {**s3_server.storage_options, "default_block_size": PART}


@pytest.fixture
def session(tmp_path, bucket, options):
    """State in a folder, artifacts in a bucket."""
    with tapstore.create(
        str(tmp_path / "s"), roles=["coder"], phase="p", artifacts=f"s3://{bucket}/team/bytes",
        artifact_options=options,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def later(monkeypatch):
    """Two days pass, in the clocks of all places."""

    def pass_days():
        for store in (S3Store, LocalStore):
            real = store.now
            monkeypatch.setattr(store, "now", lambda self, real=real: real(self) + 2 * 86400)

    return pass_days


def keys(server, bucket):
    with server.client() as client:
        found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return [entry["Key"] for entry in found if not entry["Key"].endswith("place.json")]


def uploads(server, bucket):
    with server.client() as client:
        return client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def found(session, kind):
    return [g.key for g in garbage.find(session, older_than=DAY) if g.kind == kind]


def collect(session):
    return garbage.remove(session, garbage.find(session, older_than=DAY), older_than=DAY)


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


# In which place


def test_state_in_a_folder_and_artifacts_in_a_bucket(tmp_path, s3_server, bucket, options, session):
    artifact = session.publish("x.bin", noise(PART + 1))
    assert artifact.path == f"s3://{keys_url(s3_server, bucket)}"
    assert list((tmp_path / "s/artifacts").iterdir()) == []
    with tapstore.open(str(tmp_path / "s"), artifact_options=options) as other:
        assert other.artifacts["x.bin"].read_bytes() == noise(PART + 1)
        other.artifacts["x.bin"].save(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == noise(PART + 1)


def keys_url(server, bucket):
    (key,) = keys(server, bucket)
    return f"{bucket}/{key}"


def test_what_is_remembered_has_no_credentials(tmp_path, s3_server, session):
    session.publish("x", b"1")
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert s3_server.secret.encode() not in text
            assert s3_server.key.encode() not in text


def test_state_in_a_bucket_and_artifacts_in_a_folder(tmp_path, bucket, options):
    url = f"s3://{bucket}/s"
    with tapstore.create(
        url, phase="p", artifacts=str(tmp_path / "big"), artifacts_above=4, storage_options=options
    ) as session:
        assert session.publish("small", b"tiny").path == "artifacts/p/small"
        path = session.publish("large", b"large").path
        assert Path(path.removeprefix("file://")).read_bytes() == b"large"
    with tapstore.open(url, storage_options=options) as other:
        assert other.artifacts["small"].read_bytes() == b"tiny"
        assert other.artifacts["large"].read_bytes() == b"large"


def test_state_in_one_bucket_and_artifacts_in_another_with_the_same_options(
    s3_server, bucket, options
):
    other_bucket, url = s3_server.new_bucket(), f"s3://{bucket}/s"
    with tapstore.create(
        url, phase="p", artifacts=f"s3://{other_bucket}", storage_options=options
    ) as session:
        session.publish("x", b"bytes")
        assert len(keys(s3_server, other_bucket)) == 1
    with tapstore.open(url, storage_options=options) as again:
        assert again.artifacts["x"].read_bytes() == b"bytes"


def test_other_bytes_never_replace_large_ones(s3_server, bucket, session):
    first = session.publish("x", noise(PART + 1))
    zombie = session.stage("x", noise(PART + 1, seed=2))
    assert zombie.path != first.path
    assert session.artifacts["x"].read_bytes() == noise(PART + 1)
    assert len(keys(s3_server, bucket)) == 2


def test_a_session_made_anew_shares_nothing_with_the_one_before(bucket, options):
    url, place = f"s3://{bucket}/s", f"s3://{bucket}/bytes"
    with tapstore.create(url, phase="p", artifacts=place, storage_options=options) as first:
        old = first.publish("x", b"first").path
        for info in list(first.store.list()):
            first.store.delete(info.key)
    with tapstore.create(url, phase="p", artifacts=place, storage_options=options) as second:
        assert second.publish("x", b"second").path.rpartition("/")[2] == "x"
        assert second.artifacts["x"].read_bytes() == b"second"
        assert second.tapfile.artifacts[0].path != old


def test_validate_and_fetch_find_damage_in_the_bucket(s3_server, bucket, session):
    session.publish("x", b"bytes")
    with s3_server.client() as client:
        client.put_object(Bucket=bucket, Key=keys(s3_server, bucket)[0], Body=b"BYTES")
    with pytest.raises(ChecksumError, match="sha256:"):
        session.artifacts["x"].read_bytes()


def test_an_unreachable_place_fails_cleanly_and_the_rest_goes_on(tmp_path, s3_server, session):
    session.publish("before", b"1")
    with proxy.http(s3_server.port) as link:
        nobody = link.endpoint
    far = {**s3_server.at(nobody).storage_options}
    # Its clock passes while it waits.
    clock = ManualClock()
    with tapstore.open(str(tmp_path / "s"), artifact_options=far, clock=clock) as cut_off:
        with pytest.raises(StoreError) as caught:
            cut_off.publish("x", b"bytes")
        assert s3_server.secret not in str(caught.value)
        assert [a.name for a in cut_off.tapfile.artifacts] == ["before"]
        with cut_off.claim("coder", agent="c1") as claim:
            claim.complete(phase="q")
    assert session.phase == "q"


# What is left behind


def run(what, url, file, **options):
    env = {**os.environ, **{name.upper(): json.dumps(each) for name, each in options.items()}}
    # What is freed goes back at once, so that the peak is of what was needed.
    env["MALLOC_MMAP_THRESHOLD_"] = str(MIB)
    return subprocess.run(
        [sys.executable, CLIENT, what, url, file], env=env, capture_output=True, text=True
    )


def test_what_a_crash_before_the_registration_left_is_collected_there(
    tmp_path, s3_server, bucket, options, session, later
):
    (tmp_path / "file").write_bytes(noise(PART + 1))
    died = run("die", str(tmp_path / "s"), tmp_path / "file", artifact_options=options)
    assert died.returncode == -signal.SIGKILL, died.stderr
    session.publish("y", b"registered")
    assert found(session, ARTIFACT) == []
    later()
    (orphan,) = found(session, ARTIFACT)
    assert orphan.startswith(f"s3://{bucket}/team/bytes/tapstore-")
    assert "/artifacts/p/large" in orphan
    collect(session)
    left = [key for key in keys(s3_server, bucket) if ".collected" not in key]
    assert sorted(key.rpartition("/")[2] for key in left) == ["warm-die", "y"]
    assert session.artifacts["y"].read_bytes() == b"registered"


@pytest.mark.parametrize("where", ["session", "other place"])
def test_a_multipart_upload_that_died_is_listed_and_aborted(
    s3_server, bucket, options, session, later, where
):
    if where == "session":
        session = tapstore.create(f"s3://{bucket}/state", phase="p", storage_options=options)
    with session:
        session.publish("x", b"1")
        name = "artifacts/p/dead.bin"
        if where == "other place":
            name = session.artifact_places.path_away(name)
        key = name.removeprefix(f"s3://{bucket}/") if "://" in name else f"state/{name}"
        with s3_server.client() as client:
            upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
            client.upload_part(
                Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=noise(PART)
            )
            other = client.create_multipart_upload(Bucket=bucket, Key="elsewhere/x")["UploadId"]
        begun = uploads(s3_server, bucket)[0]["Initiated"]
        if time.time() - begun.timestamp() < 3600:  # moto says 2010 of all of them
            assert found(session, TEMPORARY) == []
        later()
        assert found(session, TEMPORARY) == [name]
        assert len(uploads(s3_server, bucket)) == 2
        collect(session)
        assert [each["UploadId"] for each in uploads(s3_server, bucket)] == [other]


# Bytes of somebody else


@pytest.fixture
def theirs(s3_server):
    """The URI of an object in somebody's bucket, and what is there."""
    bucket = s3_server.new_bucket()
    with s3_server.client() as client:
        client.put_object(Bucket=bucket, Key="models/large v2.bin", Body=noise(2 * MIB))
        client.put_object(Bucket=bucket, Key="large.bin", Body=noise(2 * MIB))
    return f"s3://{bucket}/large.bin"


def test_bytes_of_somebody_else_are_fetched_without_s3fs(tmp_path, options, theirs):
    checksum = f"sha256:{hashlib.sha256(noise(2 * MIB)).hexdigest()}"
    with tapstore.create(str(tmp_path / "s"), phase="p", artifact_options=options) as session:
        session.publish("x", theirs, checksum=checksum)
        assert session.artifacts["x"].read_bytes() == noise(2 * MIB)
        session.publish("wrong", theirs, checksum="sha256:" + "0" * 64)
        with pytest.raises(ChecksumError):
            session.artifacts["wrong"].save(tmp_path / "x")
        session.publish("gone", f"{theirs}.gone")
        with pytest.raises(ArtifactNotFoundError, match="nothing at its URI"):
            session.artifacts["gone"].read_bytes()
    assert "s3fs" not in sys.modules


def test_their_download_goes_on_after_its_connection_broke(tmp_path, s3_server, theirs):
    with proxy.http(s3_server.port) as link:
        far = s3_server.at(link.endpoint).storage_options
        link.rules.add(Cut(after_bytes=MIB), method="GET", path=".*large.bin.*")
        with tapstore.create(str(tmp_path / "s"), phase="p", artifact_options=far) as session:
            session.publish("x", theirs)
            assert session.artifacts["x"].read_bytes() == noise(2 * MIB)
        gets = [each.status for each in link.requests if each.method == "GET"]
    assert gets == [200, 206]


# A link that is slow, and is cut


def _cut_at(link, counts, stop):
    """Cut all connections each time when so many parts have been answered."""
    done = 0
    for count in counts:
        while (
            sum(each.method == "PUT" and "partNumber" in each.path for each in link.requests)
            < count
        ):
            if stop.wait(0.002):
                return done
        link.cut()
        done += 1
    return done


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("size", "cuts", "parts"),
    [
        pytest.param(
            40_000_000, (1, 3), {"default_block_size": PART, "max_concurrency": 1}, id="40MB"
        ),
        pytest.param(200_000_000, (6, 14), {}, id="200MB", marks=pytest.mark.soak),
    ],
)
def test_a_large_artifact_over_a_link_that_is_cut_twice_is_published_once_and_whole(
    tmp_path, s3_server, bucket, session, size, cuts, parts
):
    data = noise(size)
    (tmp_path / "file").write_bytes(data)
    with proxy.http(s3_server.port, delay_seconds=0.02) as link:
        far = {**s3_server.at(link.endpoint).storage_options, **parts}
        stop, cut = threading.Event(), []
        cutter = threading.Thread(target=lambda: cut.append(_cut_at(link, cuts, stop)))
        cutter.start()
        done = run("publish", str(tmp_path / "s"), tmp_path / "file", artifact_options=far)
        stop.set()
        cutter.join()
        assert done.returncode == 0, done.stderr
        assert cut == [2]
        told = json.loads(done.stdout)
        print(f"publishing took {told['grown'] / 1e6:.0f} MB")
        registered = [a for a in session.tapfile.artifacts if a.name == "large"]
        assert [a.path for a in registered] == [told["path"]]
        assert registered[0].checksum == f"sha256:{hashlib.sha256(data).hexdigest()}"
        names = [key.rpartition("/")[2] for key in keys(s3_server, bucket)]
        assert sorted(name.partition("~")[0] for name in names) == ["large", "warm-publish"]
        assert uploads(s3_server, bucket) == []

        link.requests.clear()
        for after in (size // 4, size // 3):
            link.rules.add(Cut(after_bytes=after), method="GET", path=".*/large.*")
        got = run("fetch", str(tmp_path / "s"), tmp_path / "copy", artifact_options=far)
        assert got.returncode == 0, got.stderr
        fetched = json.loads(got.stdout)["grown"]
        print(f"fetching took {fetched / 1e6:.0f} MB")
        gets = [r.status for r in link.requests if r.method == "GET" and "/large" in r.path]
        assert gets == [200, 206, 206]
    assert (tmp_path / "copy").read_bytes() == data
    assert told["grown"] < LIMITS[size]
    assert fetched < LIMITS[size]


# Four parts of 8 MiB on their way, each twice: botocore joins body and header.
LIMITS = {40_000_000: 32_000_000, 200_000_000: 110_000_000}


def test_a_link_that_stays_cut_fails_cleanly(tmp_path, s3_server, bucket, session):
    with proxy.http(s3_server.port) as link:
        far = {**s3_server.at(link.endpoint).storage_options, "default_block_size": PART}
        clock = ManualClock()
        with tapstore.open(str(tmp_path / "s"), artifact_options=far, clock=clock) as cut_off:
            link.rules.add(
                Cut(after_bytes=MIB, of="request"), method="PUT", path=".*partNumber.*", times=None
            )
            with pytest.raises(StoreError):
                cut_off.publish("x", noise(3 * PART))
    assert session.tapfile.artifacts == ()
    assert keys(s3_server, bucket) == []
    assert uploads(s3_server, bucket) == []
