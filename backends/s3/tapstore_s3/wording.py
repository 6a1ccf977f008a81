"""What the store says of a refusal: what, which key, why, what to do next.

Which error it becomes is decided here, too: one place where status and code meet the contract.
"""

from __future__ import annotations

import errno

from tapstore.errors import InvalidKeyError, StoreError, TapstoreError
from tapstore_s3.refusal import UNDECIDED, Refusal

_ACTIONS = {
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "complete_multipart_upload": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "list_objects_v2": "s3:ListBucket",
    "put_object": "s3:PutObject",
    "upload_part": "s3:PutObject",
}
"""What a policy calls the permission for a request."""

_CREDENTIALS = "check the credentials: storage_options, environment, profile or role"

_ADVICE = {
    "AccountProblem": "ask the provider about the account",
    "AuthorizationHeaderMalformed": "the region is another: set client_kwargs region_name",
    "BadDigest": "the bytes changed on their way: repeat",
    "EntityTooLarge": "the server takes no object of this size in one request",
    "ExpiredToken": "the session token has expired: get a new one",
    "IllegalLocationConstraintException": "the region is another: set client_kwargs region_name",
    "InvalidAccessKeyId": _CREDENTIALS,
    "InvalidObjectState": "the object is archived: restore it first",
    "InvalidRegionName": "check client_kwargs region_name",
    "InvalidToken": _CREDENTIALS,
    "NoSuchUpload": "the upload was aborted or completed by somebody else: begin again",
    "NotImplemented": "the server does not offer this",
    "PermanentRedirect": "the bucket is in another region: set client_kwargs region_name",
    "QuotaExceeded": "the quota is used up: free some space or ask for more, then repeat",
    "RequestTimeTooSkewed": "the clock of this host is wrong by more than the server accepts: "
    "set it (NTP), then repeat",
    "SignatureDoesNotMatch": "the secret is not that of this key, or something between here and "
    "the server changes requests; " + _CREDENTIALS,
    "TemporaryRedirect": "the bucket is new and its name not known everywhere yet: repeat soon",
    "TokenRefreshRequired": "the session token has expired: get a new one",
}


def failed(url: str, key: str, refusal: Refusal, verb: str, *, endpoint: str) -> TapstoreError:
    """The error of a request that changed nothing.  Raise it `from refusal`."""
    what = f"cannot {verb} {key!r} in {url}" if key else f"cannot {verb} {url}"
    text = f"{what}: {refusal.text}; {_advice(url, refusal, endpoint)}"
    if refusal.code == "KeyTooLongError":
        return InvalidKeyError(text)
    error = StoreError(text.removesuffix("; "))
    error.errno = refusal.errno
    error.retry_after_seconds = refusal.retry_after_seconds
    if refusal.status == 403 and refusal.code not in _ADVICE:
        error.permission = _ACTIONS.get(refusal.operation, "")
    return error


def _advice(url: str, refusal: Refusal, endpoint: str) -> str:
    bucket = url.split("/")[2]
    if refusal.throttled:
        return "the server throttles requests: fewer agents on one key, or longer pauses"
    if refusal.code in UNDECIDED:
        return "another request for it was under way and nothing was decided: repeat"
    if refusal.code == "NoSuchBucket":
        return f"there is no bucket {bucket!r} at {endpoint}: create it, or check URL and endpoint"
    if advice := _ADVICE.get(refusal.code):
        return advice
    if refusal.status == 403:
        action = _ACTIONS.get(refusal.operation, "this request")
        advice = f"the credentials are not allowed {action}: check the policies of user and bucket"
        if refusal.operation in ("get_object", "head_object"):
            advice += " (without s3:ListBucket the server also says so of what is not there)"
        return advice
    if refusal.status == 401:
        return _CREDENTIALS
    if refusal.status in (301, 307):
        return _ADVICE["PermanentRedirect"]
    if refusal.status == 400 and refusal.operation == "head_object":
        return "the region or the credentials may be wrong"
    if refusal.status is not None and refusal.status >= 500:
        return "the server failed: repeat, then look at its logs"
    return _without_reply(refusal, endpoint) if refusal.status is None else ""


def _without_reply(refusal: Refusal, endpoint: str) -> str:
    if refusal.errno == errno.EACCES:
        return f"no credentials were found; {_CREDENTIALS}, or anon=True"
    if refusal.errno == errno.EPROTO:
        return "check client_kwargs verify, and use_ssl or the scheme of the endpoint"
    if refusal.errno in (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT):
        return f"no answer from {endpoint}: check endpoint_url, network and proxy"
    return ""
