"""The policies in `docs/how-to/bucket-policies.md` are enough for what they are said to be for.

They are read from the document and enforced in front of the stub: each request that its policy
does not allow is answered with 403.
"""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import StoreError
from tapstore.registry import open_store
from tests.integration.cli_calls import call
from tests.servers.faults import refuse

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "bucket-policies.md"

BLOCKS = [
    json.loads(text)
    for text in re.findall(r"^```json\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.M | re.S)
]
POLICIES = {
    block["Statement"][0]["Sid"]: block["Statement"] for block in BLOCKS if "Statement" in block
}
[LIFECYCLE] = [block for block in BLOCKS if "Rules" in block]

ACTIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
}
"""What AWS's service authorization reference has for each request that we send."""

LARGE = 8 * 2**20 + 1


def as_list(value):
    return value if isinstance(value, list) else [value]


def without(statements, action):
    """The policy without this action."""
    return [
        {**each, "Action": left}
        for each in statements
        if (left := [one for one in as_list(each["Action"]) if one != action])
    ]


def allows(statements, action, bucket, key, prefix):
    arn = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    return any(
        each["Effect"] == "Allow"
        and action in as_list(each["Action"])
        and any(fnmatch.fnmatchcase(arn, one) for one in as_list(each["Resource"]))
        and all(
            meets(operator, tests, prefix) for operator, tests in each.get("Condition", {}).items()
        )
        for each in statements
    )


def meets(operator, tests, prefix):
    assert set(tests) == {"s3:prefix"}
    assert operator in ("StringLike", "StringLikeIfExists")
    if prefix is None:
        return operator.endswith("IfExists")
    return any(fnmatch.fnmatchcase(prefix, one) for one in as_list(tests["s3:prefix"]))


class Enforced:
    """Rules of a stub that ask a policy about each request."""

    def __init__(self, stub, bucket):
        self.stub = stub
        self.bucket = bucket
        self.statements = None
        self.asked = set()
        self._action_for = stub.rules.action_for
        stub.rules.action_for = self.action_for

    def action_for(self, **request):
        query = parse_qs(urlsplit(request["path"]).query, keep_blank_values=True)
        if self.statements is None or "max-keys" in query:  # that is our own look, below
            return self._action_for(**request)
        action = ACTIONS[request["operation"]]
        self.asked.add(action)
        key, prefix = request["key"], query.get("prefix", [None])[0]
        if not allows(self.statements, action, "team-bucket", key, prefix):
            return refuse(403, "AccessDenied")
        # Who must not list must not learn that something is missing.
        reads = request["operation"] in ("GetObject", "HeadObject")
        if reads and not allows(self.statements, "s3:ListBucket", "team-bucket", "", None):
            with self.stub.client() as client:
                found = client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
            if not any(entry["Key"] == key for entry in found.get("Contents", ())):
                return refuse(403, "AccessDenied")
        return None


class Place:
    """A session at `alpha/review` of a bucket, and the command line of whoever has a policy."""

    def __init__(self, stub, folder):
        self.bucket = stub.new_bucket()
        self.enforced = Enforced(stub, self.bucket)
        self.folder = folder
        self.url = f"s3://{self.bucket}/alpha/review"
        self.env = {
            "AWS_ACCESS_KEY_ID": stub.key,
            "AWS_SECRET_ACCESS_KEY": stub.secret,
            "AWS_ENDPOINT_URL": stub.endpoint,
            "AWS_DEFAULT_REGION": stub.region,
            "TAPSTORE_URL": self.url,
        }
        (folder / "large.bin").write_bytes(b"x" * LARGE)

    def as_(self, statements):
        self.enforced.statements = statements

    def call(self, *arguments, **env):
        return call(*arguments, env={**self.env, **env})

    def ok(self, *arguments, **env):
        called = self.call(*arguments, **env)
        assert called.status == 0, (arguments, called.out, called.err)
        return called


@pytest.fixture
def place(stub_s3_server, tmp_path):
    return Place(stub_s3_server, tmp_path)


def work(place):
    """All that an agent does."""
    claim = place.ok("claim", "coder", "--agent", "c").out.strip()
    place.ok("heartbeat", TAPSTORE_CLAIM=claim)
    place.ok(
        "complete", "--publish", f"{place.folder / 'large.bin'}:consumer=reviewer",
        TAPSTORE_CLAIM=claim,
    )  # fmt: skip
    place.ok("task", "send", "reviewer", "look", "--id", "t1")
    place.ok(
        "agent", "run", "--role", "reviewer", "--once", "--idle", "0", "--stdout-as", "r.txt",
        "--", "echo", "fine",
    )  # fmt: skip
    place.ok("lock", "gpu", "--", "true")
    place.ok("reopen", "coder")
    place.ok("signal", "go")


def begin(place):
    place.ok("init", "--role", "coder", "--role", "reviewer", "--id", "review")


def look_on(place):
    """All that a watcher does."""
    for command in (
        ("status",), ("log",), ("watch", "--after", "0", "--once"), ("wait", "--signal", "go"),
        ("fetch", "r.txt", "-o", str(place.folder / "r.txt")), ("artifacts",), ("locks",),
        ("validate", "--artifacts"), ("logs",), ("task", "list"),
    ):  # fmt: skip
        place.ok(*command)
    (place.folder / "r.txt").unlink()


def take_back(place):
    """All that a watchdog does."""
    waiting = iter(range(1000))
    while "coder" not in place.ok("watchdog", "--once", "--json").out:
        assert next(waiting) < 500
        SYSTEM_CLOCK.sleep(0.05)


def stale_claim(place):
    place.as_(None)
    place.ok("claim", "coder", "--agent", "dead", "--ttl", "0.5")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_the_form_of_one(name):
    for statement in POLICIES[name]:
        assert set(statement) - {"Condition"} == {"Sid", "Effect", "Action", "Resource"}
        assert statement["Effect"] == "Allow"
        assert set(as_list(statement["Action"])) <= set(ACTIONS.values())
        for resource in as_list(statement["Resource"]):
            # Nothing of another team, whose name may begin with ours.
            assert re.match(r"arn:aws:s3:::team-bucket(/alpha/.*)?$", resource)


def test_each_request_that_the_store_sends_has_an_action_that_is_named():
    """`wording` names actions in errors; it and the table here are of the same requests."""
    from tapstore_s3.wording import _ACTIONS

    assert {name.replace("_", "") for name in _ACTIONS} == {each.lower() for each in ACTIONS}
    assert set(_ACTIONS.values()) == set(ACTIONS.values())


def test_an_agent_makes_a_session_and_works_in_it(place):
    place.as_(POLICIES["Agent"])
    begin(place)
    work(place)
    assert place.enforced.asked >= {"s3:PutObject", "s3:ListBucket", "s3:AbortMultipartUpload"}


@pytest.mark.parametrize(
    "action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"]
)
def test_an_agent_needs_each_of_its_actions(place, action):
    place.as_(without(POLICIES["Agent"], action))
    assert place.call("init", "--role", "coder", "--id", "review").status == 9
    doctor = place.call("doctor", "--json")
    assert doctor.status == 3
    assert action in str(doctor.json["findings"])


def test_an_agent_that_may_not_delete_works_in_a_session_that_is_there(place):
    begin(place)
    place.as_(without(POLICIES["Agent"], "s3:DeleteObject"))
    claim = place.ok("claim", "coder", "--agent", "c").out.strip()
    place.ok("complete", TAPSTORE_CLAIM=claim)
    doctor = place.ok("doctor", "--json")
    assert doctor.json["verdict"] == "warning"


def test_a_watcher_looks_on_and_changes_nothing(place):
    begin(place)
    work(place)
    place.as_(POLICIES["Watcher"])
    look_on(place)
    assert place.call("claim", "coder").status == 9
    assert place.call("signal", "stop").status == 9
    finding = doctor_says(place, "permissions")
    assert finding["severity"] == "warning"
    assert finding["seen"] == "can list and read, but not write or delete"
    assert finding["values"]["missing"] == ["s3:DeleteObject", "s3:PutObject"]


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:ListBucket"])
def test_a_watcher_needs_each_of_its_actions(place, action):
    begin(place)
    place.as_(without(POLICIES["Watcher"], action))
    assert place.call("status").status == 9
    assert place.call("doctor", "--json").status == 3


def test_a_watchdog_takes_a_role_back_and_publishes_nothing(place):
    begin(place)
    stale_claim(place)
    place.as_(POLICIES["Watchdog"])
    take_back(place)
    assert place.call("publish", str(place.folder / "large.bin")).status == 9
    assert place.call("task", "send", "reviewer", "look").status == 9


def test_a_watchdog_needs_to_write_state(place):
    begin(place)
    stale_claim(place)
    place.as_(without(POLICIES["Watchdog"], "s3:PutObject"))
    with pytest.raises(AssertionError, match="s3:PutObject"):
        take_back(place)


def test_a_collector_finds_uploads_that_died(place):
    begin(place)
    place.as_(POLICIES["Collector"])
    place.ok("gc", "--yes")
    place.as_(without(POLICIES["Collector"], "s3:ListBucketMultipartUploads"))
    assert "s3:ListBucketMultipartUploads" in place.call("gc").err


def test_a_condition_that_reads_do_not_meet_is_found(place):
    """Reading names no prefix, so `StringLike` does not match, and what is missing is a 403."""
    text = json.dumps(POLICIES["Agent"]).replace("StringLikeIfExists", "StringLike")
    place.as_(json.loads(text))
    finding = doctor_says(place, "permissions")
    assert finding["severity"] == "fatal"
    assert "StringLikeIfExists" in finding["change"]
    assert finding["values"] == {
        "list": True, "read": True, "write": True, "delete": True, "absence": False, "missing": [],
    }  # fmt: skip
    assert place.call("init", "--role", "coder").status == 9


def test_a_team_cannot_touch_what_another_has(place, stub_s3_server):
    place.as_(POLICIES["Agent"])
    store = open_store(f"s3://{place.bucket}/beta", storage_options=stub_s3_server.storage_options)
    for forbidden in (
        lambda: store.put("x", b"1"), lambda: store.get("x"), lambda: list(store.list()),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="AccessDenied"):
            forbidden()
    store.close()


def test_the_lifecycle_rule_is_taken_by_a_server_and_satisfies_doctor(moto_s3):
    bucket = moto_s3.new_bucket()
    env = {
        "AWS_ACCESS_KEY_ID": moto_s3.key,
        "AWS_SECRET_ACCESS_KEY": moto_s3.secret,
        "AWS_ENDPOINT_URL": moto_s3.endpoint,
        "AWS_DEFAULT_REGION": moto_s3.region,
    }

    def says(probe):
        called = call("doctor", f"s3://{bucket}/alpha/review", "--json", env=env)
        assert called.status == 0
        return next(f for f in called.json["findings"] if f["probe"] == probe)

    with moto_s3.client() as client:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        assert says("versioning")["severity"] == "warning"
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=LIFECYCLE)
        assert says("versioning")["severity"] == "ok"
        assert says("lifecycle")["severity"] == "ok"
        by_age = {"ID": "by-age", "Status": "Enabled", "Filter": {"Prefix": ""},
                  "Expiration": {"Days": 30}}  # fmt: skip
        client.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": [by_age]}
        )
        assert says("lifecycle")["severity"] == "warning"


def doctor_says(place, probe):
    called = place.call("doctor", place.url, "--json")
    return next(f for f in called.json["findings"] if f["probe"] == probe)
