"""What each request of S3 means to the stub's objects, and the answer to it."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.servers import stub_xml as xml
from tests.servers.stub_model import Conditions, Model, S3Error
from tests.servers.stub_xml import element

Headers = list[tuple[str, str]]
Answer = tuple[int, Headers, bytes]

MAX_KEYS = 1000
XML: Headers = [("Content-Type", "application/xml")]
KEPT = re.compile(r"x-amz-meta-.*|cache-control|content-(disposition|encoding|language|type)")
CHECKSUMS: dict[str, Callable[[bytes], bytes]] = {
    "x-amz-checksum-crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "x-amz-checksum-sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda data: hashlib.sha256(data).digest(),
    "content-md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
}
BUCKET_OPERATIONS = [
    ("GET", "location", "GetBucketLocation"),
    ("GET", "versioning", "GetBucketVersioning"),
    ("GET", "uploads", "ListMultipartUploads"),
    ("GET", "list-type", "ListObjectsV2"),
    ("POST", "delete", "DeleteObjects"),
    ("PUT", "", "CreateBucket"),
    ("HEAD", "", "HeadBucket"),
    ("DELETE", "", "DeleteBucket"),
]
OBJECT_OPERATIONS = [
    ("PUT", "uploadId", "UploadPart"),
    ("GET", "uploadId", "ListParts"),
    ("DELETE", "uploadId", "AbortMultipartUpload"),
    ("POST", "uploadId", "CompleteMultipartUpload"),
    ("POST", "uploads", "CreateMultipartUpload"),
    ("PUT", "", "PutObject"),
    ("GET", "", "GetObject"),
    ("HEAD", "", "HeadObject"),
    ("DELETE", "", "DeleteObject"),
]


class Request:
    """What a request asks for.  `operation` is the name in S3's documentation, or empty."""

    def __init__(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        url = urlsplit(target)
        bucket, _, key = url.path.removeprefix("/").partition("/")
        self.bucket, self.key = unquote(bucket), unquote(key)
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.conditions = Conditions(
            self.headers.get("if-match"), self.headers.get("if-none-match")
        )
        self.operation = self._operation(method)

    def _operation(self, method: str) -> str:
        if not self.bucket:
            return "ListBuckets" if method == "GET" else ""
        for wanted, mark, name in OBJECT_OPERATIONS if self.key else BUCKET_OPERATIONS:
            if wanted == method and (not mark or mark in self.query):
                copies = name == "PutObject" and "x-amz-copy-source" in self.headers
                return "CopyObject" if copies else name
        return ""

    def number(self, name: str, default: int = 0) -> int:
        try:
            return int(self.query.get(name, default))
        except ValueError:
            raise S3Error(400, "InvalidArgument", f"{name} is no number") from None


def answer(model: Model, request: Request, body: bytes) -> Answer:
    """Carry out a request.  Raises `S3Error` for those that fail."""
    if request.operation not in OPERATIONS:
        raise S3Error(501, "NotImplemented", "the stub does not know this request")
    return OPERATIONS[request.operation](model, request, decoded(body, request.headers))


def decoded(body: bytes, headers: dict[str, str]) -> bytes:
    """The payload, taken out of aws-chunked and compared with the checksums that came with it."""
    sums = dict(headers)
    if "aws-chunked" in headers.get("content-encoding", ""):
        body = b"".join(_chunks(io.BytesIO(body), sums))
    for name, digest in CHECKSUMS.items():
        if name in sums and base64.b64decode(sums[name]) != digest(body):
            raise S3Error(400, "BadDigest", f"{name} does not match the body")
    return body


def _chunks(stream: io.BytesIO, sums: dict[str, str]) -> Iterator[bytes]:
    while size := int(stream.readline().split(b";")[0], 16):
        yield stream.read(size)
        stream.readline()
    for line in stream:
        name, _, value = line.decode().partition(":")
        sums[name.strip().lower()] = value.strip()


# Buckets


def list_buckets(model: Model, request: Request, body: bytes) -> Answer:
    del request, body
    buckets = [
        element(
            "Bucket",
            element("Name", name),
            element("CreationDate", xml.timestamp(created)),
        )
        for name, created in model.buckets().items()
    ]
    owner = element("Owner", element("ID", "stub"))
    content = xml.document("ListAllMyBucketsResult", owner, element("Buckets", *buckets))
    return 200, XML, content


def create_bucket(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.create_bucket(request.bucket)
    return 200, [("Location", f"/{request.bucket}")], b""


def head_bucket(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.bucket(request.bucket)
    return 200, [], b""


def delete_bucket(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.delete_bucket(request.bucket)
    return 204, [], b""


def get_bucket_location(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.bucket(request.bucket)
    return 200, XML, xml.document("LocationConstraint")


def get_bucket_versioning(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.bucket(request.bucket)
    return 200, XML, xml.document("VersioningConfiguration")


def list_objects(model: Model, request: Request, body: bytes) -> Answer:
    del body
    query, encoding = request.query, request.query.get("encoding-type")
    token = query.get("continuation-token")
    try:
        after = query.get("start-after", "") if token is None else _from_token(token)
    except ValueError:
        raise S3Error(400, "InvalidArgument", "the continuation token is incorrect") from None
    limit = min(request.number("max-keys", MAX_KEYS), MAX_KEYS)
    page = xml.page(
        model.listing(request.bucket),
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        after=after,
        skip_prefix=token is not None,
        limit=limit,
    )
    return 200, XML, xml.document(
        "ListBucketResult",
        element("Name", request.bucket),
        element("Prefix", xml.listed(query.get("prefix", ""), encoding)),
        element("MaxKeys", limit),
        element("KeyCount", len(page.objects) + len(page.prefixes)),
        element("IsTruncated", page.truncated),
        *([element("EncodingType", encoding)] if encoding else []),
        *([element("Delimiter", query["delimiter"])] if "delimiter" in query else []),
        *([element("ContinuationToken", token)] if token is not None else []),
        *([element("NextContinuationToken", _token(page.last))] if page.truncated else []),
        *xml.contents(page.objects, encoding),
        *(
            element("CommonPrefixes", element("Prefix", xml.listed(each, encoding)))
            for each in page.prefixes
        ),
    )  # fmt: skip


def delete_objects(model: Model, request: Request, body: bytes) -> Answer:
    root = xml.parse(body)
    results = []
    for each in root.findall("Object"):
        key, etag = each.findtext("Key", ""), each.findtext("ETag")
        try:
            model.delete(request.bucket, key, Conditions(etag), "DeleteObjects")
        except S3Error as failure:
            if failure.code == "NoSuchBucket":
                raise
            code, message = element("Code", failure.code), element("Message", failure.message)
            results.append(element("Error", element("Key", key), code, message))
        else:
            if root.findtext("Quiet", "").lower() != "true":
                results.append(element("Deleted", element("Key", key)))
    return 200, XML, xml.document("DeleteResult", *results)


# Objects


def get_object(model: Model, request: Request, body: bytes) -> Answer:
    del body
    found = model.get(request.bucket, request.key, request.conditions)
    headers: Headers = [
        ("ETag", f'"{found.etag}"'),
        ("Last-Modified", formatdate(found.modified, usegmt=True)),
        ("Accept-Ranges", "bytes"),
        *found.headers.items(),
    ]
    span = _range(request.headers.get("range", ""), len(found.data))
    if span is None:
        return 200, headers, found.data
    start, end = span
    headers.append(("Content-Range", f"bytes {start}-{end - 1}/{len(found.data)}"))
    return 206, headers, found.data[start:end]


def put_object(model: Model, request: Request, body: bytes) -> Answer:
    made = model.put(request.bucket, request.key, body, kept(request.headers), request.conditions)
    return 200, [("ETag", f'"{made.etag}"')], b""


def copy_object(model: Model, request: Request, body: bytes) -> Answer:
    del body
    headers = request.headers
    bucket, _, key = unquote(headers["x-amz-copy-source"]).removeprefix("/").partition("/")
    source = model.get(bucket, key, Conditions(headers.get("x-amz-copy-source-if-match")))
    replaces = headers.get("x-amz-metadata-directive") == "REPLACE"
    made = model.put(
        request.bucket,
        request.key,
        source.data,
        kept(headers) if replaces else source.headers,
        request.conditions,
        "CopyObject",
    )
    modified = element("LastModified", xml.timestamp(made.modified))
    etag = element("ETag", f'"{made.etag}"')
    return 200, XML, xml.document("CopyObjectResult", modified, etag)


def delete_object(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.delete(request.bucket, request.key, request.conditions)
    return 204, [], b""


# Multipart uploads


def create_multipart_upload(model: Model, request: Request, body: bytes) -> Answer:
    del body
    upload = model.create_upload(request.bucket, request.key, kept(request.headers))
    return 200, XML, xml.document(
        "InitiateMultipartUploadResult",
        element("Bucket", request.bucket),
        element("Key", request.key),
        element("UploadId", upload.id),
    )  # fmt: skip


def upload_part(model: Model, request: Request, body: bytes) -> Answer:
    number = request.number("partNumber")
    if not 1 <= number <= 10_000:
        raise S3Error(400, "InvalidArgument", "a part's number is between 1 and 10000")
    part = model.put_part(request.bucket, request.key, request.query["uploadId"], number, body)
    return 200, [("ETag", f'"{part.etag}"')], b""


def complete_multipart_upload(model: Model, request: Request, body: bytes) -> Answer:
    parts = [
        (int(each.findtext("PartNumber", "0")), each.findtext("ETag", ""))
        for each in xml.parse(body).findall("Part")
    ]
    made = model.complete(
        request.bucket, request.key, request.query["uploadId"], parts, request.conditions
    )
    return 200, XML, xml.document(
        "CompleteMultipartUploadResult",
        element("Location", f"/{request.bucket}/{request.key}"),
        element("Bucket", request.bucket),
        element("Key", request.key),
        element("ETag", f'"{made.etag}"'),
    )  # fmt: skip


def abort_multipart_upload(model: Model, request: Request, body: bytes) -> Answer:
    del body
    model.abort(request.bucket, request.key, request.query["uploadId"])
    return 204, [], b""


def list_multipart_uploads(model: Model, request: Request, body: bytes) -> Answer:
    del body
    query, encoding = request.query, request.query.get("encoding-type")
    limit = min(request.number("max-uploads", MAX_KEYS), MAX_KEYS)
    marker = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
    found = [
        each
        for each in model.uploads(request.bucket)
        if each.key.startswith(query.get("prefix", ""))
        and _after(marker, each.key, each.id)
    ]  # fmt: skip
    found.sort(key=lambda each: (each.key.encode(), each.id))
    shown = found[:limit]
    more = len(found) > limit
    return 200, XML, xml.document(
        "ListMultipartUploadsResult",
        element("Bucket", request.bucket),
        element("MaxUploads", limit),
        element("IsTruncated", more),
        *([element("EncodingType", encoding)] if encoding else []),
        *([element("NextKeyMarker", xml.listed(shown[-1].key, encoding))] if more else []),
        *([element("NextUploadIdMarker", shown[-1].id)] if more else []),
        *(
            element(
                "Upload",
                element("Key", xml.listed(each.key, encoding)),
                element("UploadId", each.id),
                element("Initiated", xml.timestamp(each.started)),
                element("StorageClass", "STANDARD"),
            )
            for each in shown
        ),
    )  # fmt: skip


def list_parts(model: Model, request: Request, body: bytes) -> Answer:
    del body
    upload = model.upload(request.bucket, request.key, request.query["uploadId"])
    limit = min(request.number("max-parts", MAX_KEYS), MAX_KEYS)
    marker = request.number("part-number-marker")
    parts = [(number, part) for number, part in sorted(upload.parts.items()) if number > marker]
    shown = parts[:limit]
    more = len(parts) > limit
    return 200, XML, xml.document(
        "ListPartsResult",
        element("Bucket", request.bucket),
        element("Key", request.key),
        element("UploadId", upload.id),
        element("MaxParts", limit),
        element("IsTruncated", more),
        *([element("NextPartNumberMarker", shown[-1][0])] if more else []),
        *(
            element(
                "Part",
                element("PartNumber", number),
                element("LastModified", xml.timestamp(part.modified)),
                element("ETag", f'"{part.etag}"'),
                element("Size", len(part.data)),
            )
            for number, part in shown
        ),
    )  # fmt: skip


def kept(headers: dict[str, str]) -> dict[str, str]:
    """The headers that come back with the object."""
    found = {name: value for name, value in headers.items() if KEPT.fullmatch(name)}
    codings = [each.strip() for each in found.pop("content-encoding", "").split(",")]
    if plain := [each for each in codings if each not in ("", "aws-chunked")]:
        found["content-encoding"] = ",".join(plain)
    return {"content-type": "binary/octet-stream", **found}


def _range(wanted: str, size: int) -> tuple[int, int] | None:
    """Start and end of the bytes asked for; a range that S3 does not understand is ignored."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size or (first and last and int(last) < start) or (not first and last == "0"):
        raise S3Error(416, "InvalidRange", "The requested range is not satisfiable")
    return start, end


def _after(marker: tuple[str, str], key: str, upload_id: str) -> bool:
    key_marker, id_marker = marker
    if key == key_marker:
        return bool(id_marker) and upload_id > id_marker
    return key.encode() > key_marker.encode()


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _from_token(token: str) -> str:
    return base64.b64decode(token, altchars=b"-_", validate=True).decode()


OPERATIONS: dict[str, Callable[[Model, Request, bytes], Answer]] = {
    "ListBuckets": list_buckets,
    "CreateBucket": create_bucket,
    "HeadBucket": head_bucket,
    "DeleteBucket": delete_bucket,
    "GetBucketLocation": get_bucket_location,
    "GetBucketVersioning": get_bucket_versioning,
    "ListObjectsV2": list_objects,
    "DeleteObjects": delete_objects,
    "GetObject": get_object,
    "HeadObject": get_object,
    "PutObject": put_object,
    "CopyObject": copy_object,
    "DeleteObject": delete_object,
    "CreateMultipartUpload": create_multipart_upload,
    "UploadPart": upload_part,
    "CompleteMultipartUpload": complete_multipart_upload,
    "AbortMultipartUpload": abort_multipart_upload,
    "ListMultipartUploads": list_multipart_uploads,
    "ListParts": list_parts,
}
