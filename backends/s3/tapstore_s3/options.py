"""Reads URLs and `storage_options`, in the words of fsspec and s3fs.  No I/O.

What is not understood is refused with the list of what is: an option that is dropped silently is
one that somebody relies on.  What boto3 finds by itself (environment, profiles, roles) is left
to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapstore.errors import InvalidKeyError
from tapstore.keys import check_key

MIN_PART_BYTES = 5 << 20
"""What S3 asks of every part of a multipart upload but the last."""

DEFAULT_PART_BYTES = 8 << 20
DEFAULT_CONCURRENCY = 4

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")

_CREDENTIALS = ("key", "secret", "token", "username", "password")
_CLIENT_KWARGS = ("endpoint_url", "region_name", "use_ssl", "verify")
_KNOWN = (
    *_CREDENTIALS, "anon", "profile", "endpoint_url", "use_ssl", "client_kwargs",
    "config_kwargs", "s3_additional_kwargs", "requester_pays", "max_concurrency",
    "default_block_size",
)  # fmt: skip

_IMPLIED = {
    "asynchronous": False,
    "cache_regions": False,
    "default_fill_cache": None,
    "skip_instance_cache": True,
    "use_listings_cache": False,
    "version_aware": None,
}
"""Options of fsspec that say what is so anyway (None: any value), and are accepted for it."""

_OURS = frozenset(
    ("Bucket", "Key", "Body", "ContinuationToken", "Delimiter", "IfMatch", "IfNoneMatch",
     "KeyMarker", "Metadata", "MultipartUpload", "PartNumber", "Prefix", "Range", "StartAfter",
     "UploadId", "UploadIdMarker", "VersionId")
)  # fmt: skip
"""What the store sets itself, or what would hide a part of it or its newest state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a client is made of.  Its `repr` shows no credentials."""

    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    anonymous: bool = False
    profile: str | None = None
    endpoint: str | None = field(default=None, repr=False)
    use_ssl: bool = True
    region: str | None = None
    verify: bool | str | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For `botocore.config.Config`."""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Parameters for every request that knows them."""
    concurrency: int = DEFAULT_CONCURRENCY
    """How many parts of one upload are on their way at a time."""
    part_bytes: int = DEFAULT_PART_BYTES
    """The size of a part; what is not larger goes in one request."""


def parse_url(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix (`""` or ending in `/`) that `url` names."""
    _, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        raise InvalidKeyError(
            "invalid S3 URL: it has credentials in front of '@'; give them as storage_options "
            "(key, secret), in the environment or in a profile"
        )
    bucket, _, path = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidKeyError(
            f"invalid S3 URL 's3://{bucket}/…': write s3://bucket/prefix; the bucket's name has "
            "3 or more letters, digits, dots and hyphens"
        )
    path = path.strip("/")
    return bucket, f"{check_key(path)}/" if path else ""


def parse_options(given: Mapping[str, Any]) -> Options:
    """Raises TypeError for unknown options and ValueError for impossible values."""
    options = {name: value for name, value in given.items() if not _is_implied(name, value)}
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise TypeError(
            f"s3:// does not know the storage_options {unknown}; it knows {sorted(_KNOWN)}"
        )
    client = _section(options, "client_kwargs", _CLIENT_KWARGS)
    extra = dict(options.get("s3_additional_kwargs") or {})
    if taken := sorted(_OURS & set(extra)):
        raise TypeError(f"s3_additional_kwargs: {taken} are set by tapstore for each request")
    if options.get("requester_pays"):
        extra.setdefault("RequestPayer", "requester")
    part_bytes = int(options.get("default_block_size") or DEFAULT_PART_BYTES)
    concurrency = int(options.get("max_concurrency") or DEFAULT_CONCURRENCY)
    if part_bytes < MIN_PART_BYTES:
        raise ValueError(
            f"default_block_size={part_bytes}: S3 takes no parts of less than {MIN_PART_BYTES}"
        )
    if concurrency < 1:
        raise ValueError(f"max_concurrency={concurrency}: at least 1 is needed")
    key = options.get("key", options.get("username"))
    secret = options.get("secret", options.get("password"))
    if (key is None) != (secret is None):
        missing = "secret" if secret is None else "key"
        raise TypeError(f"storage_options lack {missing!r}: key and secret belong together")
    return Options(
        key=key,
        secret=secret,
        token=options.get("token"),
        anonymous=bool(options.get("anon", False)),
        profile=options.get("profile"),
        endpoint=options.get("endpoint_url") or client.get("endpoint_url"),
        use_ssl=bool(client.get("use_ssl", options.get("use_ssl", True))),
        region=client.get("region_name"),
        verify=client.get("verify"),
        config=_config(options),
        extra=extra,
        concurrency=concurrency,
        part_bytes=part_bytes,
    )


def _is_implied(name: str, value: object) -> bool:
    return name in _IMPLIED and _IMPLIED[name] in (None, value)


def _section(options: Mapping[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    section = dict(options.get(name) or {})
    if unknown := sorted(set(section) - set(known)):
        raise TypeError(f"{name}: tapstore passes on {list(known)}, not {unknown}")
    return section


def _config(options: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(options.get("config_kwargs") or {})
    if "retries" in config:
        raise TypeError(
            "config_kwargs: 'retries' cannot be set: a conditional request that is repeated "
            "unseen fails against itself, so tapstore repeats by itself"
        )
    return config
