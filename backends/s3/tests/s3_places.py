"""S3 buckets for the conformance suite, with plain boto3 as the oracle that bypasses the store."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tapstore.abc import Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.testing.place import Place
from tapstore_s3 import open_store
from tests.servers.s3 import S3Server

# By server, not by endpoint: a stub may get the port of one before it.
_clients: dict[S3Server, Any] = {}
_buckets: dict[S3Server, str] = {}


def _oracle(server: S3Server) -> Any:
    """One client for all tests of a server: to make one takes longer than most tests."""
    if server not in _clients:
        _clients[server] = server.client().__enter__()
    return _clients[server]


def _bucket(server: S3Server) -> str:
    if server not in _buckets:
        _buckets[server] = server.new_bucket()
    return _buckets[server]


def connect(url: str, server: S3Server, **options: Any) -> Store:
    """A store at `url` on the server; an option that is None is left out."""
    given = {**server.storage_options, **options}
    given = {name: value for name, value in given.items() if value is not None}
    return open_store(url, storage_options=given, clock=SYSTEM_CLOCK)


class BucketPlace(Place):
    """A prefix of its own, in a bucket that all places of a server share; `prefix` ends it.

    A new bucket is slow on some servers, and others allow only so many.  An empty prefix is one.
    """

    def __init__(
        self,
        server: S3Server,
        prefix: str = "team/alpha",
        wrap: Callable[[Store], Store] = lambda store: store,
        **options: Any,
    ) -> None:
        if prefix:
            prefix = f"{secrets.token_hex(6)}/{prefix}"
        self.bucket = _bucket(server) if prefix else server.new_bucket()
        self.url = f"s3://{self.bucket}/{prefix}".rstrip("/")
        self.oracle = _oracle(server)
        self.server = server
        self.options = options
        self.below = f"{prefix}/" if prefix else ""
        self._wrap = wrap

    def open(self) -> Store:
        return self._wrap(connect(self.url, self.server, **self.options))

    def read(self, key: str) -> bytes | None:
        try:
            found = self.oracle.get_object(Bucket=self.bucket, Key=self.below + key)
        except ClientError as exc:
            if exc.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        return found["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self.oracle.put_object(Bucket=self.bucket, Key=self.below + key, Body=data)

    def names(self) -> set[str]:
        pages = self.oracle.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self.below
        )
        return {
            entry["Key"].removeprefix(self.below)
            for page in pages
            for entry in page.get("Contents", ())
        }
