"""Credentials are nowhere to be seen: output, errors, logs, Tapfile, bucket, command lines."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tests.servers import valkey as valkey_module

TAPSTORE = [sys.executable, "-m", "tapstore"]


@pytest.fixture(scope="module")
def guarded():
    """A lock service that asks for a user and a password."""
    with valkey_module.server(acl=True) as server:
        yield server


def command_lines():
    lines = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read())
        except OSError:
            continue
    return lines


def test_credentials_appear_nowhere(moto_s3, guarded, tmp_path):
    bucket = moto_s3.new_bucket()
    url = f"s3://{bucket}/s"
    env = {
        **os.environ,
        "TAPSTORE_URL": url,
        "AWS_ACCESS_KEY_ID": moto_s3.key,
        "AWS_SECRET_ACCESS_KEY": moto_s3.secret,
        "AWS_SESSION_TOKEN": "a-token-that-nobody-may-see",
        "AWS_ENDPOINT_URL_S3": moto_s3.endpoint,
        "AWS_REGION": moto_s3.region,
        "TAPSTORE_LOCKS": guarded.url,  # with user and password
        "PYTHONDEVMODE": "1",
    }
    seen, done = [], threading.Event()

    def watch():
        while not done.wait(0.02):
            seen.extend(command_lines())

    watcher = threading.Thread(target=watch)
    watcher.start()

    def run(*arguments, **more):
        result = subprocess.run(
            [*TAPSTORE, *arguments], env=env | more, cwd=tmp_path, capture_output=True, check=False
        )
        seen.extend((result.stdout, result.stderr))
        return result.returncode

    try:
        assert run("init", "-w", url, "--role", "coder") == 0
        for extra in ((), ("--json",)):
            assert run("status", *extra) == 0
        password = {"TAPSTORE_REDIS_PASSWORD": guarded.password}
        assert run("lock", "gpu", "--", *TAPSTORE, "locks", **password) == 0
        program = "print('made')"
        assert run("task", "send", "coder", "x", "--output", "x.py") == 0
        assert (
            run("agent", "run", "--role", "coder", "--once", "--", sys.executable, "-c", program)
            == 0
        )
        assert run("log", "--json") == 0
        assert run("claim", "nobody") != 0
        other = {"TAPSTORE_LOCKS": "", "TAPSTORE_REDIS_PASSWORD": "none"}
        assert run("lock", "gpu", "--", "true", **other) != 0
    finally:
        done.set()
        watcher.join()
    with moto_s3.client() as client:
        seen += [
            client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
            for item in client.list_objects_v2(Bucket=bucket)["Contents"]
        ]
    secrets = [moto_s3.secret, "a-token-that-nobody-may-see", guarded.password]
    assert [text for text in seen for secret in secrets if secret.encode() in text] == []
