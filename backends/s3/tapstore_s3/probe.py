"""Finds out, one request after the other, whether a server keeps the conditions of requests.

The commonest defect of servers that speak S3 is to accept a condition and ignore it.  What is
tried here is whether a condition that is false is refused; not, whether two clients that race are
kept apart (a server that looks and writes in two steps passes).

Objects for trials have names that are no keys and are removed; one that a crash leaves behind is
for `S3Store.sweep`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from tapstore.keys import TEMP_MARK
from tapstore.types import Capabilities
from tapstore_s3.etags import Etags, bare
from tapstore_s3.refusal import Refusal

Send = Callable[..., dict[str, Any]]

_STALE = "0123456789abcdef0123456789abcdef"


@contextmanager
def _trial(send: Send, base: str) -> Iterator[str]:
    """A name for objects that are removed afterwards."""
    name = f"{base}{TEMP_MARK}{os.urandom(8).hex()}"
    try:
        yield name
    except BaseException as exc:
        try:
            send("delete_object", Key=name)
        except Refusal as left:
            exc.add_note(f"{name!r} may have been left behind ({left})")
        raise
    send("delete_object", Key=name)


def conditions(send: Send, base: str, *, etags: Etags) -> Capabilities:
    """Create twice, update with wrong and right version, delete so, update what is gone.

    `etags` learns the form that the server takes.
    """
    with _trial(send, base) as name:
        put = partial(send, "put_object", Key=name)
        reply = put(Body=b"1", IfNoneMatch="*")
        create = _refused(lambda: put(Body=b"2", IfNoneMatch="*"))
        update = _refused(lambda: put(Body=b"3", IfMatch=_STALE))
        version = bare((reply if create and update else send("head_object", Key=name))["ETag"])
        right = partial(etags.if_match, lambda etag: put(Body=b"4", IfMatch=etag), version)
        update = not _refused(right) and update
        delete = _refused(lambda: send("delete_object", Key=name, IfMatch=_STALE))
        send("delete_object", Key=name)
        update = update and _refused(lambda: put(Body=b"5", IfMatch=etags.form(version)))
    return Capabilities(create=create, update=update, conditional_delete=delete, files=False)


def large_creates(send: Send, base: str) -> bool:
    """Whether the condition of a create holds where a multipart upload is completed."""
    with _trial(send, base) as name:
        send("put_object", Key=name, Body=b"1")
        upload = {
            "Key": name,
            "UploadId": send("create_multipart_upload", Key=name)["UploadId"],
        }
        try:
            etag = send("upload_part", PartNumber=1, Body=b"2", **upload)["ETag"]
            parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
            complete = partial(send, "complete_multipart_upload", MultipartUpload=parts, **upload)
            refused = _refused(lambda: complete(IfNoneMatch="*"))
        except BaseException:
            _abort(send, upload)
            raise
        if refused:
            _abort(send, upload)
        return refused


def _abort(send: Send, upload: Mapping[str, str]) -> None:
    try:
        send("abort_multipart_upload", **upload)
    except Refusal as exc:
        # It was completed, and the reply was lost; or an earlier abort was carried out.
        if exc.code != "NoSuchUpload":
            raise


def _refused(request: Callable[[], object]) -> bool:
    """Whether a condition was refused; an error that is about something else is raised."""
    try:
        request()
    except Refusal as exc:
        # 501: it says itself that it does not keep the condition.  404: an update of what is gone.
        if exc.status in (412, 501) or exc.missing:
            return exc.status != 501
        raise
    return False
