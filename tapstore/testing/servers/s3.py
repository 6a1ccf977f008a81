"""How a test reaches an S3 server, whichever it is."""

from __future__ import annotations

import functools
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEY = "tapstore-test"
# Drawn, so that a test can search for it wherever it must not be.
SECRET = secrets.token_hex(20)
REGION = "us-east-1"

# One session, which may make one client at a time: it takes long to read the description of S3.
_making = threading.Lock()


@functools.cache
def _session() -> Any:
    import boto3

    return boto3.session.Session()


@dataclass(frozen=True, eq=False)  # two that follow each other may have the same port
class S3Server:
    """A running server.  `pid` is that of the process that answers, if it is not this one."""

    name: str
    endpoint: str
    pid: int | None = None
    key: str = KEY
    secret: str = field(default=SECRET, repr=False)
    region: str = REGION
    stop: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def port(self) -> int:
        return int(self.endpoint.rsplit(":", 1)[1])

    @property
    def storage_options(self) -> dict[str, Any]:
        """As fsspec and s3fs take them."""
        return {
            "key": self.key,
            "secret": self.secret,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": self.region},
        }

    @property
    def environment(self) -> dict[str, str]:
        """What a program that uses boto3, or tapstore, finds the server by."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def at(self, endpoint: str) -> S3Server:
        """The same server, reached through another address, say that of a proxy."""
        return S3Server(self.name, endpoint, self.pid, self.key, self.secret, self.region)

    @contextmanager
    def client(self, **config: Any) -> Iterator[Any]:
        """A boto3 client that sends each request once, unless `config` says otherwise."""
        from botocore.config import Config

        options = {
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "s3": {"addressing_style": "path"},
            "connect_timeout": 5,
            "read_timeout": 30,
            **config,
        }
        with _making:
            client = _session().client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id=self.key,
                aws_secret_access_key=self.secret,
                region_name=self.region,
                config=Config(**options),
            )
        try:
            yield client
        finally:
            client.close()

    def new_bucket(self) -> str:
        """The name of a bucket that was just created."""
        name = f"tapstore-{secrets.token_hex(8)}"
        with self.client() as client:
            client.create_bucket(Bucket=name)
        return name
