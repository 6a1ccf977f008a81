"""What a server or the way to it said instead of success, judged by HTTP status and error code.

Texts of others go through `Hide`, so a `Refusal` shows no credentials.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

Hide = Callable[[str], str]
"""Takes credentials out of a text."""

THROTTLED = frozenset(
    ("BandwidthLimitExceeded", "LimitExceededException", "PriorRequestNotComplete",
     "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled",
     "RequestThrottledException", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling",
     "ThrottlingException", "ThrottledException", "TooManyRequests", "TooManyRequestsException")
)  # fmt: skip

UNDECIDED = frozenset(("ConditionalRequestConflict", "OperationAborted"))
"""Codes of 409: another request for the key was under way, and this one was dropped."""

MISSING = frozenset(("404", "NoSuchKey", "NotFound", "NoSuchVersion"))

_NUMBERS = {
    400: errno.EINVAL, 401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT,
    405: errno.EACCES, 408: errno.ETIMEDOUT, 409: errno.EIO, 411: errno.EINVAL,
    413: errno.EFBIG, 416: errno.EINVAL, 429: errno.EAGAIN, 500: errno.EBUSY,
    501: errno.ENOSYS, 502: errno.EBUSY, 503: errno.EAGAIN, 504: errno.ETIMEDOUT,
    507: errno.ENOSPC,
}  # fmt: skip

_CODES = {
    "EntityTooLarge": errno.EFBIG,
    "ExpiredToken": errno.EACCES,
    "InvalidToken": errno.EACCES,
    "KeyTooLongError": errno.ENAMETOOLONG,
    "QuotaExceeded": errno.EDQUOT,
    "RequestTimeout": errno.ETIMEDOUT,
    "XMinioStorageFull": errno.ENOSPC,
    "TokenRefreshRequired": errno.EACCES,
    **dict.fromkeys(THROTTLED, errno.EAGAIN),
    **dict.fromkeys(UNDECIDED, errno.EBUSY),
}


class Refusal(OSError):
    """One request that did not succeed.  `errno` is what a `StoreError` about it will carry."""

    def __init__(
        self,
        operation: str,
        text: str,
        *,
        number: int | None,
        status: int | None = None,
        code: str = "",
        nothing_done: bool = False,
        retry_after_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(number, text)
        self.operation = operation
        self.text = text
        self.status = status
        """The HTTP status, None if no reply came."""
        self.code = code
        """S3's word for it, such as `NoSuchKey`; a number if the reply had no body."""
        self.nothing_done = nothing_done
        """Whether it is known that a write did not and will not take effect."""
        self.retry_after_seconds = retry_after_seconds
        self.headers = headers or {}

    def __str__(self) -> str:
        return self.text

    @property
    def throttled(self) -> bool:
        return self.status == 429 or self.code in THROTTLED

    @property
    def missing(self) -> bool:
        return self.status == 404 and self.code in MISSING


def from_reply(operation: str, reply: Mapping[str, Any], hide: Hide) -> Refusal:
    """Judge an error reply, given as botocore parses it."""
    metadata = reply.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    headers = metadata.get("HTTPHeaders", {})
    error = reply.get("Error", {})
    code = str(error.get("Code") or status)
    message = str(error.get("Message") or "")
    text = f"{code} ({status})" if code != str(status) else f"status {status}"
    if message and message != code:
        text += f": {message.rstrip('.')}"
    if identity := metadata.get("RequestId") or headers.get("x-amz-request-id"):
        text += f" [request {identity}]"
    return Refusal(
        operation,
        hide(text),
        number=_CODES.get(code, _NUMBERS.get(status, errno.EIO)),
        status=status,
        code=code,
        nothing_done=_nothing_done(status, code),
        retry_after_seconds=_seconds(headers.get("retry-after")),
        headers=headers,
    )


def _nothing_done(status: int, code: str) -> bool:
    if code in THROTTLED:
        return True
    # 5xx without a word of S3's own may come from a proxy that passed the request on and lost the
    # reply, and 500 from a server that wrote before it failed.
    if status >= 500:
        return status == 501
    return 300 <= status < 500


def no_reply(operation: str, error: Exception, hide: Hide) -> Refusal:
    """Judge an exception of botocore's for a request that got no reply."""
    from botocore import exceptions as bx

    number: int | None = None
    sent = True
    if isinstance(error, bx.ConnectTimeoutError):
        number, sent = errno.ETIMEDOUT, False
    elif isinstance(error, bx.SSLError):
        number, sent = errno.EPROTO, "CERTIFICATE_VERIFY_FAILED" not in str(error)
    elif isinstance(error, bx.EndpointConnectionError):
        number, sent = errno.ECONNREFUSED, False
    elif isinstance(error, bx.ProxyConnectionError):
        sent = not _before_the_proxy(error)
        number = errno.ECONNRESET if sent else errno.ECONNREFUSED
    elif isinstance(error, bx.ReadTimeoutError):
        number = errno.ETIMEDOUT
    elif isinstance(error, (bx.HTTPClientError, bx.ConnectionError, bx.IncompleteReadError)):
        number = errno.ECONNRESET
    elif isinstance(error, (bx.NoCredentialsError, bx.PartialCredentialsError)):
        number, sent = errno.EACCES, False
    elif isinstance(error, bx.BotoCoreError) and not _about_replies(error):
        number, sent = errno.EINVAL, False
    elif isinstance(error, OSError):
        number = error.errno or errno.EIO
    return Refusal(
        operation,
        f"{type(error).__name__}: {hide(str(error))}",
        number=number if number is not None else errno.EIO,
        nothing_done=not sent,
    )


def _before_the_proxy(error: Exception) -> bool:
    """Whether no connection through the proxy came about.

    urllib3 forgets that there was one when it closes it: a reply that was lost behind a proxy has
    the same type.  What is not known for a failure to connect may have been sent.
    """
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    cause = getattr(error.__cause__ or error.__context__, "original_error", None)
    if isinstance(cause, (ConnectTimeoutError, NewConnectionError)):
        return True
    return isinstance(cause, OSError) and str(cause).startswith("Tunnel connection failed")


def _about_replies(error: Exception) -> bool:
    from botocore import exceptions as bx
    from botocore.parsers import ResponseParserError

    return isinstance(error, (bx.ChecksumError, bx.FlexibleChecksumError, ResponseParserError))


def _seconds(retry_after: str | None) -> float | None:
    """The value of a Retry-After header: seconds, or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    # A date without a zone would be taken for one of this host's.
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
