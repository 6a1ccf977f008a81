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
from typing import Any

from tapstore.keys import TEMP_MARK
from tapstore.types import Capabilities
from tapstore_s3.refusal import Refusal

Send = Callable[..., dict[str, Any]]

_STALE = "0123456789abcdef0123456789abcdef"


def trial_name(base: str) -> str:
    return f"{base}{TEMP_MARK}{os.urandom(8).hex()}"


def conditions(send: Send, base: str) -> Capabilities:
    """Create twice, update with right and wrong version, delete so, update what is gone."""
    name = trial_name(base)
    try:
        first = send("put_object", Key=name, Body=b"1", IfNoneMatch="*")
        create = _refused(send, "put_object", Key=name, Body=b"2", IfNoneMatch="*")
        present = first if create else send("head_object", Key=name)
        stale, right = _STALE, _etag(present)
        update = _refused(send, "put_object", Key=name, Body=b"3", IfMatch=stale)
        update = update and not _refused(send, "put_object", Key=name, Body=b"4", IfMatch=right)
        delete = _refused(send, "delete_object", Key=name, IfMatch=stale)
    finally:
        send("delete_object", Key=name)
    if update:
        update = _refused(send, "put_object", Key=name, Body=b"5", IfMatch=right)
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
                send,
                "complete_multipart_upload",
                Key=name,
                UploadId=upload,
                MultipartUpload=parts,
                IfNoneMatch="*",
            )
        except BaseException:
            send("abort_multipart_upload", Key=name, UploadId=upload)
            raise
        if refused:
            send("abort_multipart_upload", Key=name, UploadId=upload)
        return refused
    finally:
        send("delete_object", Key=name)


def _refused(send: Send, operation: str, **parameters: Any) -> bool:
    """Whether a condition was refused; an error that is about something else is raised."""
    try:
        send(operation, **parameters)
    except Refusal as exc:
        # 501: it knows of the condition, and says that it does not keep it.  404: an update of
        # what is gone.
        if exc.status in (412, 501) or exc.missing:
            return exc.status != 501
        raise
    return False


def _etag(reply: dict[str, Any]) -> str:
    etag: str = reply["ETag"]
    return etag.strip('"')
