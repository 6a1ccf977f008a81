"""Sessions in S3 buckets: the store behind `s3://bucket/prefix`.

Importing this package loads neither boto3 nor a configuration; the first request does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapstore.abc import Clock
    from tapstore_s3.store import S3Store

__all__ = ["open_store"]


def open_store(url: str, *, storage_options: Mapping[str, Any], clock: Clock) -> S3Store:
    """Return the store at `s3://bucket/prefix`; no request is sent.

    `storage_options` are those of fsspec and s3fs, see docs/reference/s3.md.  Raises
    `InvalidKeyError` for a malformed URL and TypeError for options that it does not know.
    """
    from tapstore_s3.options import parse_options, parse_url
    from tapstore_s3.store import S3Store

    bucket, prefix = parse_url(url)
    return S3Store(bucket, prefix, parse_options(storage_options), clock=clock)
