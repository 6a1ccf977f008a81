"""Finds out, one request after the other, whether a server keeps the conditions of requests.

The commonest defect of servers that speak S3 is to accept a condition and ignore it.  What is
tried here is whether a condition that is false is refused; not, whether two clients that race are
kept apart (a server that looks and writes in two steps passes).

Objects for trials have names that are no keys and are removed; one that a crash leaves behind is
for `S3Store.sweep`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from tapstore.keys import TEMP_MARK
from tapstore.types import Capabilities
from tapstore_s3.etags import Etags, bare
from tapstore_s3.refusal import Refusal

Send = Callable[..., dict[str, Any]]

_STALE = "0123456789abcdef0123456789abcdef"


def trial_name(base: str) -> str:
    return f"{base}{TEMP_MARK}{os.urandom(8).hex()}"


def conditions(send: Send, base: str, *, etags: Etags) -> Capabilities:
    """Create twice, update with wrong and right version, delete so, update what is gone.

    `etags` learns the form that the server takes.
    """
    name = trial_name(base)
    put = partial(send, "put_object", Key=name)

    def update_with(etag: str) -> dict[str, Any]:
        return put(Body=b"4", IfMatch=etag)

    try:
        reply = put(Body=b"1", IfNoneMatch="*")
        create = _refused(lambda: put(Body=b"2", IfNoneMatch="*"))
        update = _refused(lambda: put(Body=b"3", IfMatch=_STALE))
        version = bare((reply if create and update else send("head_object", Key=name))["ETag"])
        update = not _refused(lambda: etags.if_match(update_with, version)) and update
        delete = _refused(lambda: send("delete_object", Key=name, IfMatch=_STALE))
    finally:
        send("delete_object", Key=name)
    if update:
        update = _refused(lambda: put(Body=b"5", IfMatch=etags.form(version)))
        if not update:
            send("delete_object", Key=name)
    return Capabilities(create=create, update=update, conditional_delete=delete, files=False)


def large_creates(send: Send, base: str) -> bool:
    """Whether the condition of a create holds where a multipart upload is completed."""
    name = trial_name(base)
    try:
        send("put_object", Key=name, Body=b"1")
        upload = send("create_multipart_upload", Key=name)["UploadId"]
        try:
            part = send("upload_part", Key=name, UploadId=upload, PartNumber=1, Body=b"2")
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            refused = _refused(
                lambda: send(
                    "complete_multipart_upload",
                    Key=name,
                    UploadId=upload,
                    MultipartUpload=parts,
                    IfNoneMatch="*",
                )
            )
        except BaseException:
            send("abort_multipart_upload", Key=name, UploadId=upload)
            raise
        if refused:
            send("abort_multipart_upload", Key=name, UploadId=upload)
        return refused
    finally:
        send("delete_object", Key=name)


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
