"""Sends one request at a time, each exactly once, and says honestly what came of it.

A client of boto3 is made when the first request is sent, and again in each forked child: sockets
and locks that are shared with the parent must not be used.  No layer repeats a request: a
conditional write that is repeated unseen fails against itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from tapstore.abc import Clock
from tapstore_s3.masking import Masks
from tapstore_s3.options import Options
from tapstore_s3.refusal import Refusal, from_reply, no_reply
from tapstore_s3.servertime import ServerTime

_DEFAULTS = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "max_pool_connections": 64,
    "tcp_keepalive": True,
}
_CHECKSUMS = ("request_checksum_calculation", "response_checksum_validation")

_CHATTY = ("boto3", "botocore", "urllib3")
"""At DEBUG these log headers with session tokens, signatures and keys for encryption."""


class _Client:
    """What one process has of a connection."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.mutex = threading.Lock()
        self.boto: Any = None
        self.known: dict[str, frozenset[str]] = {}


class Connection:
    """A way to the server for all operations; threads may share it."""

    def __init__(self, options: Options, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._client = _Client()
        self._closed = False
        self._masks = Masks(options)
        self.time = ServerTime(clock)

    def send(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Send the request (`put_object`, …) once; return the reply or raise `Refusal`.

        Parameters that are None are left out.
        """
        client = self._ready(operation)
        given = {name: value for name, value in parameters.items() if value is not None}
        known = client.known.get(operation) or self._learn(client, operation)
        for name, value in self._options.extra.items():
            if name in known:
                given.setdefault(name, value)
        refusal, sent = None, self._clock.monotonic()
        try:
            reply: dict[str, Any] = getattr(client.boto, operation)(**given)
        # Whatever it is, it is judged: botocore lets some errors of its libraries through.
        except Exception as exc:
            refusal = self.judge(operation, exc)
        # Raised here and not there: what boto3 raised may show credentials, and must not be seen
        # as its context.
        if refusal is not None:
            self._see(refusal.headers, sent)
            raise refusal
        self._see(reply["ResponseMetadata"].get("HTTPHeaders", {}), sent)
        return reply

    @property
    def endpoint(self) -> str:
        """Where requests go, for people."""
        client = self._client.boto
        found = client.meta.endpoint_url if client is not None else self._options.endpoint
        if not found:
            return "AWS"
        parts = urlsplit(found)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def judge(self, operation: str, error: Exception) -> Refusal:
        """What botocore raised, in our words and without credentials."""
        from botocore.exceptions import ClientError

        if isinstance(error, ClientError):
            return from_reply(operation, error.response, self._masks.hide)
        return no_reply(operation, error, self._masks.hide)

    def close(self) -> None:
        self._closed = True
        client, self._client = self._client, _Client()
        if client.boto is not None and client.pid == os.getpid():
            client.boto.close()

    def _see(self, headers: Mapping[str, str], sent: float) -> None:
        date = reply_date(headers)
        if date is not None:
            self.time.see(date, sent=sent, received=self._clock.monotonic())

    def _learn(self, client: _Client, operation: str) -> frozenset[str]:
        name = client.boto.meta.method_to_api_mapping[operation]
        found = _members(client.boto.meta.service_model.operation_model(name))
        client.known[operation] = found
        return found

    def _ready(self, operation: str) -> _Client:
        client = self._client
        if client.pid != os.getpid():
            # Without a lock: one that another thread held when we were forked stays held.  Two
            # threads that come here together make one client too many, which does no harm.
            client = self._client = _Client()
        if client.boto is None:
            with client.mutex:
                if client.boto is None:
                    self._open(client, operation)
        return client

    def _open(self, client: _Client, operation: str) -> None:
        if self._closed:
            raise Refusal(operation, "the store is closed", number=None, nothing_done=True)
        refusal = None
        try:
            client.boto, credentials = _make(self._options)
            self._masks.watch(credentials)
        except Exception as exc:
            refusal = self.judge(operation, exc)
        if refusal is not None:
            refusal.nothing_done = True
            raise refusal


def reply_date(headers: Mapping[str, str]) -> float | None:
    """The Date of a reply in seconds since the epoch, None if it has none."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _core() -> Any:
    """A session of botocore that shares with others what it reads of S3: most of its start."""
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    return core


def _make(options: Options) -> tuple[Any, Any]:
    """A client, and the credentials that boto3 found by itself."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    for name in _CHATTY:
        logger = logging.getLogger(name)
        # Who sets a level for these by name wants to see it all.
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    session = boto3.session.Session(
        botocore_session=_core(),
        aws_access_key_id=options.key,
        aws_secret_access_key=options.secret,
        aws_session_token=options.token,
        profile_name=options.profile,
    )
    settings = {**_DEFAULTS, **options.config, "retries": {"total_max_attempts": 1}}
    if options.anonymous:
        settings["signature_version"] = UNSIGNED

    def make(**more: str) -> Any:
        return session.client(
            "s3",
            endpoint_url=options.endpoint,
            region_name=options.region,
            use_ssl=options.use_ssl,
            verify=options.verify,
            config=Config(**{**more, **settings}),
        )

    plain = dict.fromkeys(_CHECKSUMS, "when_required")
    wanted = plain if options.endpoint and not _is_aws(options.endpoint) else {}
    client = make(**wanted)
    # The endpoint may as well come from the environment or a profile.
    if not wanted and not _is_aws(client.meta.endpoint_url):
        client.close()
        client = make(**plain)
    # A round trip more for each body, to learn that the server will take it.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    if options.extra:
        _check_extra(client, options.extra)
    given = options.anonymous or options.key is not None
    return client, None if given else session.get_credentials()


def _check_extra(client: Any, extra: Mapping[str, Any]) -> None:
    model = client.meta.service_model
    known = {
        name
        for operation in client.meta.method_to_api_mapping.values()
        for name in _members(model.operation_model(operation))
    }
    if unknown := sorted(set(extra) - known):
        raise TypeError(f"s3_additional_kwargs: no request of S3 knows {unknown}")


def _members(operation: Any) -> frozenset[str]:
    shape = operation.input_shape
    return frozenset(shape.members if shape is not None else ())


def _is_aws(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))
