"""The objects of the stub, and the conditions under which they change; no HTTP.

Each call is atomic.  What a real server may do differently is set in `Dialect`, also while it
serves.  There are no versions, no access control, no encryption and no storage classes.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


class S3Error(Exception):
    """What a request is answered with when it fails."""

    def __init__(
        self, status: int, code: str, message: str = "", *, condition: str | None = None
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.message = message or code
        self.condition = condition


@dataclass(slots=True)
class Dialect:
    """Where servers differ, and what is wrong with some.  The defaults are as on AWS.

    `ignored` has operations whose conditions have no effect (`"DeleteObject"`), or a single one of
    them (`"PutObject If-Match"`).  `missing_status` is the answer to If-Match where there is no
    object.  `detail` is what a 412 carries: an error with its `<Condition>`, without it, or
    nothing at all.  `quotes` says which form of an ETag can match in the condition of a write.
    `listing_lag` is the number of listings that do not show a change yet.
    """

    ignored: set[str] = field(default_factory=set)
    missing_status: Literal[404, 412] = 404
    detail: Literal["full", "no condition", "none"] = "full"
    quotes: Literal["any", "required", "refused"] = "any"
    etags: Literal["md5", "opaque"] = "md5"
    listing_lag: int = 0
    min_part_bytes: int = 5 * 2**20
    clock_ahead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Those of one request, as they were sent."""

    if_match: str | None = None
    if_none_match: str | None = None


NONE = Conditions()


@dataclass(frozen=True, slots=True)
class Object:
    """One object.  `headers` are those that a GET gives back, user metadata among them."""

    data: bytes = field(repr=False)
    etag: str
    modified: float
    headers: dict[str, str]


@dataclass(slots=True)
class Upload:
    """A multipart upload under way."""

    id: str
    key: str
    started: float
    headers: dict[str, str]
    parts: dict[int, Object] = field(default_factory=dict)


@dataclass(slots=True)
class Bucket:
    """The objects and uploads of one bucket, and what listings do not know yet.

    `changed` has, per key that came or went, the number of listings before it; `gone` the objects
    that a stale listing still shows.
    """

    created: float
    objects: dict[str, Object] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    listings: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    gone: dict[str, Object] = field(default_factory=dict)


class Model:
    """Buckets and what is in them."""

    def __init__(self, dialect: Dialect, clock: Callable[[], float] = time.time) -> None:
        self.dialect = dialect
        self._clock = clock
        self._mutex = threading.RLock()
        self._buckets: dict[str, Bucket] = {}

    def now(self) -> float:
        return self._clock() + self.dialect.clock_ahead_seconds

    # Buckets

    def buckets(self) -> dict[str, float]:
        """Their names, and when each was created."""
        with self._mutex:
            return {name: bucket.created for name, bucket in sorted(self._buckets.items())}

    def create_bucket(self, name: str) -> None:
        with self._mutex:
            if name in self._buckets:
                raise S3Error(409, "BucketAlreadyOwnedByYou")
            self._buckets[name] = Bucket(self.now())

    def delete_bucket(self, name: str) -> None:
        with self._mutex:
            if self.bucket(name).objects:
                raise S3Error(409, "BucketNotEmpty")
            del self._buckets[name]

    def bucket(self, name: str) -> Bucket:
        try:
            return self._buckets[name]
        except KeyError:
            raise S3Error(404, "NoSuchBucket", "The specified bucket does not exist") from None

    # Objects

    def get(self, bucket: str, key: str, conditions: Conditions = NONE) -> Object:
        with self._mutex:
            found = self.bucket(bucket).objects.get(key)
        if found is None:
            raise S3Error(404, "NoSuchKey", "The specified key does not exist.")
        wanted, unwanted = conditions.if_match, conditions.if_none_match
        if self._ignores("GetObject", "If-Match"):
            wanted = None
        if self._ignores("GetObject", "If-None-Match"):
            unwanted = None
        if wanted is not None and not _same(wanted, found):
            raise self._failed("If-Match")
        if unwanted is not None and _same(unwanted, found):
            raise S3Error(304, "NotModified")
        return found

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        headers: dict[str, str],
        conditions: Conditions = NONE,
        operation: str = "PutObject",
    ) -> Object:
        with self._mutex:
            self._check(operation, self.bucket(bucket).objects.get(key), conditions)
            return self._store(self.bucket(bucket), key, self._object(data, headers))

    def delete(
        self,
        bucket: str,
        key: str,
        conditions: Conditions = NONE,
        operation: str = "DeleteObject",
    ) -> None:
        with self._mutex:
            place = self.bucket(bucket)
            self._check(operation, place.objects.get(key), conditions)
            if key in place.objects:
                place.gone[key] = place.objects.pop(key)
                place.changed[key] = place.listings

    def listing(self, bucket: str) -> dict[str, Object]:
        """What a listing that begins now shows."""
        with self._mutex:
            place = self.bucket(bucket)
            place.listings += 1
            stale = {
                key
                for key, before in place.changed.items()
                if place.listings - before <= self.dialect.listing_lag
            }
            shown = {key: each for key, each in place.objects.items() if key not in stale}
            return {**shown, **{key: each for key, each in place.gone.items() if key in stale}}

    # Multipart uploads

    def create_upload(self, bucket: str, key: str, headers: dict[str, str]) -> Upload:
        upload = Upload(secrets.token_hex(16), key, self.now(), headers)
        with self._mutex:
            self.bucket(bucket).uploads[upload.id] = upload
        return upload

    def upload(self, bucket: str, key: str, upload_id: str) -> Upload:
        with self._mutex:
            upload = self.bucket(bucket).uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise S3Error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        return upload

    def uploads(self, bucket: str) -> list[Upload]:
        with self._mutex:
            found = list(self.bucket(bucket).uploads.values())
        return sorted(found, key=lambda each: (each.key.encode(), each.started))

    def put_part(self, bucket: str, key: str, upload_id: str, number: int, data: bytes) -> Object:
        with self._mutex:
            part = self._object(data, {})
            self.upload(bucket, key, upload_id).parts[number] = part
            return part

    def abort(self, bucket: str, key: str, upload_id: str) -> None:
        with self._mutex:
            self.upload(bucket, key, upload_id)
            del self.bucket(bucket).uploads[upload_id]

    def complete(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        parts: list[tuple[int, str]],
        conditions: Conditions = NONE,
    ) -> Object:
        """Make an object of `parts`, which are numbers and ETags, in order."""
        with self._mutex:
            upload = self.upload(bucket, key, upload_id)
            if not parts or sorted({number for number, _ in parts}) != [n for n, _ in parts]:
                raise S3Error(400, "InvalidPartOrder" if parts else "MalformedXML")
            chosen = []
            for number, etag in parts:
                part = upload.parts.get(number)
                if part is None or part.etag != etag.strip('"'):
                    raise S3Error(400, "InvalidPart", f"part {number} could not be found")
                chosen.append(part)
            if any(len(each.data) < self.dialect.min_part_bytes for each in chosen[:-1]):
                raise S3Error(400, "EntityTooSmall")
            place = self.bucket(bucket)
            self._check("CompleteMultipartUpload", place.objects.get(key), conditions)
            del place.uploads[upload_id]
            whole = self._object(b"".join(each.data for each in chosen), upload.headers)
            if self.dialect.etags == "md5":
                digests = b"".join(bytes.fromhex(each.etag) for each in chosen)
                etag = f"{_md5(digests)}-{len(chosen)}"
                whole = Object(whole.data, etag, whole.modified, whole.headers)
            return self._store(place, key, whole)

    # Parts of the above, called with the lock held

    def _object(self, data: bytes, headers: dict[str, str]) -> Object:
        etag = _md5(data) if self.dialect.etags == "md5" else secrets.token_hex(16)
        return Object(data, etag, self.now(), headers)

    def _store(self, place: Bucket, key: str, new: Object) -> Object:
        if key not in place.objects:
            place.changed[key] = place.listings
            place.gone.pop(key, None)
        place.objects[key] = new
        return new

    def _check(self, operation: str, current: Object | None, conditions: Conditions) -> None:
        wanted, unwanted = conditions.if_match, conditions.if_none_match
        if unwanted is not None and not self._ignores(operation, "If-None-Match"):
            if unwanted != "*":
                raise S3Error(501, "NotImplemented", "If-None-Match takes * here")
            if current is not None:
                raise self._failed("If-None-Match")
        if wanted is not None and not self._ignores(operation, "If-Match"):
            if current is None and self.dialect.missing_status == 404:
                raise S3Error(404, "NoSuchKey", "The specified key does not exist.")
            if current is None or not self._matches(wanted, current):
                raise self._failed("If-Match")

    def _ignores(self, operation: str, condition: str) -> bool:
        return not self.dialect.ignored.isdisjoint((operation, f"{operation} {condition}"))

    def _matches(self, wanted: str, current: Object) -> bool:
        quoted = wanted.startswith('"')
        fits = {"any": True, "required": quoted, "refused": not quoted}[self.dialect.quotes]
        return wanted == "*" or (fits and _same(wanted, current))

    def _failed(self, condition: str) -> S3Error:
        return S3Error(
            412,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold",
            condition=condition,
        )


def _same(etag: str, current: Object) -> bool:
    return etag.strip('"') == current.etag


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
