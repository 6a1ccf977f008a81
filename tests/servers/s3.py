"""How a test reaches an S3 server: as in the test kit, and what boto3 says of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tapstore.testing.servers.s3 import KEY, SECRET, S3Server

__all__ = ["KEY", "SECRET", "S3Server", "code_of"]


def code_of(call: Callable[..., Any], *arguments: Any, **request: Any) -> tuple[int, str]:
    """The HTTP status and S3's code with which a call of boto3 ends."""
    try:
        return call(*arguments, **request)["ResponseMetadata"]["HTTPStatusCode"], ""
    except ClientError as exc:
        answer = exc.response
        return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]
