"""URLs and `storage_options` are those of fsspec and s3fs; what is not understood is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from s3_places import BucketPlace, connect

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import InvalidKeyError, NotFoundError, StoreError
from tapstore.registry import open_store as open_by_url
from tapstore_s3 import open_store
from tapstore_s3.options import parse_options, parse_url
from tests.servers import stub_s3


@pytest.mark.parametrize(
    ("url", "expected"),
    [("s3://bucket", ("bucket", "")), ("s3://bucket/", ("bucket", "")),
     ("s3://bucket/a", ("bucket", "a/")), ("s3a://my.bucket-1/a/b/", ("my.bucket-1", "a/b/")),
     ("s3://bucket/日本/x", ("bucket", "日本/x/"))],
)  # fmt: skip
def test_a_url_names_bucket_and_prefix(url, expected):
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///a", "s3://b", "s3://bucket/a/../b", "s3://bucket//a//b",
            "s3://bu cket/a", "s3://bucket/a?x=1", "s3://-bucket/a"],
)  # fmt: skip
def test_a_url_that_names_none_is_refused(url):
    with pytest.raises(InvalidKeyError):
        parse_url(url)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"secrets": "x"}, "secrets.*it knows.*'secret'"),
     ({"client_kwargs": {"region": "x"}}, r"client_kwargs.*region_name.*\['region'\]"),
     ({"config_kwargs": {"retries": {"max_attempts": 3}}}, "'retries' cannot be set"),
     ({"s3_additional_kwargs": {"IfMatch": "x"}}, "IfMatch"),
     ({"s3_additional_kwargs": {"VersionId": "x", "StartAfter": "x"}}, "StartAfter.*VersionId"),
     ({"key": "only"}, "'secret'"), ({"secret": "only"}, "'key'"),
     ({"use_listings_cache": True}, "use_listings_cache"),
     ({"asynchronous": True}, "asynchronous")],
)  # fmt: skip
def test_an_option_that_is_not_understood_is_refused(options, message):
    with pytest.raises(TypeError, match=message):
        open_store("s3://bucket/a", storage_options=options, clock=SYSTEM_CLOCK)


@pytest.mark.parametrize("options", [{"default_block_size": 1 << 20}, {"max_concurrency": -1}])
def test_an_impossible_value_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        parse_options(options)


def test_options_of_fsspec_that_say_what_is_so_anyway_are_taken():
    parse_options({"skip_instance_cache": True, "use_listings_cache": False, "version_aware": True})


def test_an_unknown_additional_parameter_is_refused(stub_s3_server):
    with (
        connect(
            "s3://bucket/a", stub_s3_server, s3_additional_kwargs={"StorageKlass": "x"}
        ) as store,
        pytest.raises(StoreError, match="StorageKlass"),
    ):
        store.get("a")


# What requests carry, as the server sees it


@pytest.fixture
def sent(monkeypatch):
    """The headers of each request to the stub, with its operation."""
    seen = []

    class Watched(stub_s3.Request):
        def __init__(self, method, target, headers):
            super().__init__(method, target, headers)
            seen.append((self.operation, self.headers))

    monkeypatch.setattr(stub_s3, "Request", Watched)
    return seen


def headers(sent, operation):
    return [each for name, each in sent if name == operation][-1]


def test_additional_parameters_go_where_they_belong(stub_s3_server, sent):
    options = {
        "requester_pays": True,
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "ACL": "private"},
    }
    with BucketPlace(stub_s3_server, **options).open() as store:
        store.put("a", b"x")
        store.get("a")
        list(store.list())
    put, get = headers(sent, "PutObject"), headers(sent, "GetObject")
    assert put["x-amz-server-side-encryption"] == "aws:kms"
    assert (put["x-amz-acl"], put["x-amz-request-payer"]) == ("private", "requester")
    assert "x-amz-server-side-encryption" not in get
    assert get["x-amz-request-payer"] == "requester"
    assert headers(sent, "ListObjectsV2")["x-amz-request-payer"] == "requester"


def test_a_key_of_the_customer_goes_with_every_request_for_an_object(stub_s3_server, sent):
    options = {
        "s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}
    }
    with BucketPlace(stub_s3_server, **options).open() as store:
        store.put("a", b"x")
        store.get("a")
        store.head("a")
    for operation in ("PutObject", "GetObject", "HeadObject"):
        assert "x-amz-server-side-encryption-customer-key-md5" in headers(sent, operation)


def test_a_server_that_is_not_aws_is_sent_no_checksums_of_aws(stub_s3_server, sent):
    with BucketPlace(stub_s3_server).open() as store:
        store.put("a", b"x")
    assert [name for name in headers(sent, "PutObject") if "checksum" in name] == []


def test_checksums_can_be_asked_for(stub_s3_server, sent):
    options = {"config_kwargs": {"request_checksum_calculation": "when_supported"}}
    with BucketPlace(stub_s3_server, **options).open() as store:
        store.put("a", b"x")
    assert [name for name in headers(sent, "PutObject") if "checksum" in name]


def test_anonymous_requests_are_not_signed(stub_s3_server, sent):
    bucket = stub_s3_server.new_bucket()
    with connect(f"s3://{bucket}/a", stub_s3_server, key=None, secret=None, anon=True) as store:
        store.put("a", b"x")
    assert "authorization" not in headers(sent, "PutObject")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_endpoint_and_credentials_may_come_from_the_environment(
    stub_s3_server, sent, monkeypatch, name
):
    bucket = stub_s3_server.new_bucket()
    monkeypatch.setenv(name, stub_s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-in-the-environment")
    with open_store(f"s3://{bucket}/a", storage_options={}, clock=SYSTEM_CLOCK) as store:
        store.put("a", b"x")
    put = headers(sent, "PutObject")
    assert "from-the-environment" in put["authorization"]
    assert [name for name in put if "checksum" in name] == []


def test_a_profile_is_used(stub_s3_server, sent, monkeypatch, tmp_path):
    bucket = stub_s3_server.new_bucket()
    (tmp_path / "config").write_text(
        f"[profile team]\naws_access_key_id = of-the-profile\naws_secret_access_key = s\n"
        f"endpoint_url = {stub_s3_server.endpoint}\nregion = eu-central-1\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {"profile": "team"}
    with open_store(f"s3://{bucket}/a", storage_options=options, clock=SYSTEM_CLOCK) as store:
        store.put("a", b"x")
    assert "of-the-profile" in headers(sent, "PutObject")["authorization"]
    assert "eu-central-1" in headers(sent, "PutObject")["authorization"]


# As a backend


def test_the_registry_finds_the_store_by_its_scheme(stub_s3_server):
    bucket = stub_s3_server.new_bucket()
    for scheme in ("s3", "s3a"):
        url = f"{scheme}://{bucket}/{scheme}"
        with open_by_url(url, storage_options=stub_s3_server.storage_options) as store:
            store.put("a", b"x")
            with pytest.raises(NotFoundError):
                store.get("b")


def test_opening_loads_no_boto3_and_sends_nothing():
    program = """
import sys
from tapstore.registry import open_store
with open_store("s3://bucket/prefix", storage_options={"key": "k", "secret": "s"}) as store:
    assert store.url == "s3://bucket/prefix"
loaded = {"boto3", "botocore", "urllib3", "ssl"} & set(sys.modules)
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
