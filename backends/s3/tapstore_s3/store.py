"""Objects below one prefix of a bucket, with the conditions that S3 has.

A version is an ETag, and an ETag is that of the bytes: it repeats when the bytes do.  So who
updates puts something into what it writes that no other write has (the write ids of tapstore do
that).  Times are those of the server, in whole seconds.

Not promised: that a server keeps the conditions (`capabilities` finds out, `put` does not ask);
exclusive creation of what does not fit into one request, where the server does not offer it
(refused by name).  A conditional request is sent exactly once: `registry.open_store` puts
`RetryStore` and `ReadBackStore` around this store.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ConflictError, NotFoundError, StoreError, TapstoreError
from tapstore.keys import TEMP_MARK, check_key, check_prefix
from tapstore.types import (
    CREATE,
    Capabilities,
    Finding,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)
from tapstore_s3 import checkup, probe, wording
from tapstore_s3.connection import Connection, reply_date
from tapstore_s3.download import BUFFER_BYTES, Download
from tapstore_s3.etags import Etags, bare
from tapstore_s3.listing import Listings, Send, UnsortedError
from tapstore_s3.options import Options
from tapstore_s3.patience import Patience
from tapstore_s3.refusal import Refusal
from tapstore_s3.upload import Uploads

T = TypeVar("T")


class S3Store(Store):
    """The objects of `bucket` whose names begin with `prefix` (empty or ending in `/`)."""

    def __init__(
        self, bucket: str, prefix: str, options: Options, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._base = prefix
        self._clock = clock
        self._connection = Connection(options, clock=clock)
        self._part_bytes = options.part_bytes
        self._uploads = Uploads(self._send, options, clock)
        self._listings = Listings(self._send, prefix)
        self._etags = Etags()
        self._capabilities: Capabilities | None = None
        self._large_creates: bool | None = None
        self._bucket_seen = False

    @property
    def identity(self) -> str:
        return f"{self.url} at {self._connection.endpoint}"

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """Found out by writing, when first asked for."""
        # Without a lock, which a fork might leave held: two threads may find it out twice.
        known = self._capabilities
        if known is None:
            self._capabilities = known = self._try(partial(probe.conditions, etags=self._etags))
        return known

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        check_key(key)
        failures.check_range(start, end)
        if end == start:
            return GetResult(data=b"", info=self.head(key))
        got = self._get(key, start, end)
        assert got is not None
        return got

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        check_key(key)
        return self._get(key, 0, None, unless=version)

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        try:
            reply = self._send("head_object", Key=self._base + key)
        except Refusal as exc:
            raise self._read_failure(key, exc) from exc
        return _info(key, reply, reply["ContentLength"])

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        known = self._capabilities
        if isinstance(mode, Update) and known is not None and not known.update:
            raise self._unsupported("update", "If-Match")
        if mode is CREATE and known is not None and not known.create:
            raise self._unsupported("create", "If-None-Match")
        request = partial(self._send, "put_object", Key=self._base + key, Body=bytes(data))
        try:
            if isinstance(mode, Update):
                reply = self._etags.if_match(lambda etag: request(IfMatch=etag), mode.version)
            else:
                reply = request(IfNoneMatch="*" if mode is CREATE else None)
        except Refusal as exc:
            raise self._write_failure(key, exc, mode) from exc
        return self._written(key, reply)

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        # Who ignores the condition deletes.
        if version is not None and not self.capabilities.conditional_delete:
            raise self._unsupported("conditional_delete", "If-Match of DELETE")
        request = partial(self._send, "delete_object", Key=self._base + key)
        try:
            if version is None:
                request()
            else:
                self._etags.if_match(lambda etag: request(IfMatch=etag), version)
        except Refusal as exc:
            if exc.missing:
                return
            if version is not None and exc.status == 412:
                # Some say so of what is gone, too.
                if self._is_missing(key):
                    return
                raise _changed(self.url, key, version) from exc
            raise self._failure(key, exc, "delete", "the deletion") from exc

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._listed(self._listings.objects(prefix, start_after))

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._listed(self._listings.children(prefix))

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        try:
            reply = self._uploads.upload(
                self._base + key,
                source,
                mode,
                before_large=partial(self._check_large_create, key) if mode is CREATE else _fine,
            )
        except Refusal as exc:
            raise self._write_failure(key, exc, mode) from exc
        return self._written(key, reply)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        check_key(key)
        failures.check_range(start, None)

        def begin(at: int, etag: str | None = None) -> dict[str, Any]:
            wanted = f"bytes={at}-" if at else None
            request = partial(self._send, "get_object", Key=self._base + key, Range=wanted)
            if etag is None:
                return request()
            return self._etags.if_match(lambda form: request(IfMatch=form), etag)

        def failure(refusal: Refusal) -> Exception:
            if refusal.status in (412, 416) or refusal.missing:
                error = StoreError(
                    f"{key!r} in {self.url} was overwritten while it was read, and the connection "
                    "broke: read it again from the beginning"
                )
                error.errno = errno.ESTALE
                return error
            return self._read_failure(key, refusal)

        try:
            reply = begin(start)
        except Refusal as exc:
            if exc.status == 416:
                return io.BytesIO()
            raise self._read_failure(key, exc) from exc
        download = Download(
            reply,
            start=start,
            size=_whole_size(reply),
            begin=begin,
            judge=self._judge_body,
            failure=failure,
            clock=self._clock,
        )
        return cast(AbstractContextManager[BinaryIO], io.BufferedReader(download, BUFFER_BYTES))

    def now(self) -> float:
        known = self._connection.time.now()
        if known is None:
            try:
                self._send("head_object", Key=f"{self._base}{TEMP_MARK}now")
            except Refusal as exc:
                # Any reply has a Date.
                if exc.status is None:
                    raise self._read_failure("", exc) from exc
            known = self._connection.time.now()
        if known is None:
            raise StoreError(f"{self.url} does not tell the time: its replies have no Date header")
        return known

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        before = self.now() - older_than_seconds
        try:
            uploads = self._uploads.sweep(self._base, before, dry_run=dry_run)
            trials = self._sweep_trials(before, dry_run=dry_run)
        except Refusal as exc:
            raise self._failure("", exc, "sweep", "the sweep") from exc
        return tuple(sorted((*uploads, *trials)))

    def checkup(self) -> Iterator[Finding]:
        return checkup.all_of(self._send, self._base, self._part_bytes, self._creates_large)

    def close(self) -> None:
        self._connection.close()

    def _send(self, operation: str, **parameters: Any) -> dict[str, Any]:
        reply = self._connection.send(operation, Bucket=self._bucket, **parameters)
        self._bucket_seen = True
        return reply

    def _get(
        self, key: str, start: int, end: int | None, unless: str | None = None
    ) -> GetResult | None:
        wanted = None
        if start or end is not None:
            wanted = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            reply = self._send("get_object", Key=self._base + key, Range=wanted, IfNoneMatch=unless)
            data = self._body(reply)
        except Refusal as exc:
            if exc.status == 304 and unless is not None:
                return None
            if exc.status == 416:
                return GetResult(data=b"", info=self.head(key))
            raise self._read_failure(key, exc) from exc
        if wanted is not None and "ContentRange" not in reply:
            data = data[start:end]
        info = _info(key, reply, _whole_size(reply))
        # Not every server takes every form of an ETag in every condition.
        return None if info.version == unless else GetResult(data=data, info=info)

    def _body(self, reply: dict[str, Any]) -> bytes:
        refusal = None
        # Entered by itself it gives the stream below, which compares no checksum and no length.
        with closing(reply["Body"]) as body:
            try:
                data: bytes = body.read()
            # What the libraries below raise for a broken connection has no common base.
            except Exception as exc:
                refusal = self._judge_body(exc)
        if refusal is not None:
            raise refusal
        return data

    def _judge_body(self, error: Exception) -> Refusal:
        from botocore.exceptions import FlexibleChecksumError
        from urllib3.exceptions import HTTPError

        refusal = self._connection.judge("get_object", error)
        # The bytes were damaged on their way, or did not come: asked for again, they may.
        if isinstance(error, (HTTPError, FlexibleChecksumError)):
            refusal.errno = errno.ECONNRESET
        return refusal

    def _listed(self, found: Iterator[T]) -> Iterator[T]:
        try:
            yield from found
        except Refusal as exc:
            raise self._failure("", exc, "list", "the listing") from exc
        except UnsortedError as exc:
            raise StoreError(
                f"{self.url} lists its folders one after the other, not in the order of whole "
                "keys, as the listing showed too late: list again, it will be in order then"
            ) from exc

    def _written(self, key: str, reply: dict[str, Any]) -> PutResult:
        # A HEAD tells it; a PUT does not, but its Date is the same second or the next.
        if "LastModified" in reply:
            modified = reply["LastModified"].timestamp()
        else:
            date = reply_date(reply["ResponseMetadata"]["HTTPHeaders"])
            modified = self.head(key).modified if date is None else date
        return PutResult(version=bare(reply["ETag"]), modified=modified)

    def _check_large_create(self, key: str) -> None:
        if not self._creates_large():
            raise failures.unsupported(
                self.url,
                "create",
                f"{key!r} is larger than {self._part_bytes} bytes, which do not go in one "
                "request, and the server ignores If-None-Match when a multipart upload is "
                "completed; write it under a name of its own with OVERWRITE",
            )
        # All the bytes would be sent before the server says that the name is taken.
        if not self._is_missing(key):
            raise failures.already_exists(self.url, key)

    def _creates_large(self) -> bool:
        known = self._large_creates
        if known is None:
            self._large_creates = known = self._try(probe.large_creates)
        return known

    def _try(self, trial: Callable[[Send, str], T]) -> T:
        try:
            return Patience(self._clock).repeat(partial(trial, self._send, self._base))
        except Refusal as exc:
            raise self._failure("", exc, "find out what is kept by", "a trial") from exc

    def _sweep_trials(self, before: float, *, dry_run: bool) -> tuple[str, ...]:
        found = []
        for name, modified in self._listings.trials():
            if modified <= before:
                found.append(name.removeprefix(self._base))
                if not dry_run:
                    self._send("delete_object", Key=name)
        return tuple(found)

    def _read_failure(self, key: str, refusal: Refusal) -> TapstoreError:
        if refusal.missing and key:
            if refusal.code == "404" and not self._bucket_seen:
                # The reply to a HEAD has no body to say what is missing.
                refusal = self._ask_again(key) or refusal
            if refusal.missing:
                return failures.not_found(self.url, key)
        return self._failed(key, refusal, "read")

    def _is_missing(self, key: str) -> bool:
        try:
            self.head(key)
        except NotFoundError:
            return True
        return False

    def _ask_again(self, key: str) -> Refusal | None:
        try:
            self._send("get_object", Key=self._base + key, Range="bytes=0-0")["Body"].close()
        except Refusal as exc:
            self._bucket_seen = exc.missing
            return exc
        return None

    def _write_failure(self, key: str, refusal: Refusal, mode: PutMode | Update) -> TapstoreError:
        if isinstance(mode, Update):
            # AWS says 404 of what is gone, others 412.
            if refusal.missing:
                return failures.conflict(self.url, key, expected=mode.version, found=None)
            if refusal.status == 412:
                return _changed(self.url, key, mode.version)
        elif mode is CREATE and refusal.status == 412:
            return failures.already_exists(self.url, key)
        return self._failure(key, refusal, "write", "the write")

    def _failure(self, key: str, refusal: Refusal, verb: str, noun: str) -> TapstoreError:
        if verb == "list" or refusal.nothing_done:
            return self._failed(key, refusal, verb)
        return failures.outcome_unknown(self.url, key, noun, refusal)

    def _failed(self, key: str, refusal: Refusal, verb: str) -> TapstoreError:
        return wording.failed(self.url, key, refusal, verb, endpoint=self._connection.endpoint)

    def _unsupported(self, capability: str, header: str) -> TapstoreError:
        return failures.unsupported(
            self.url,
            capability,
            f"the server at {self._connection.endpoint} accepts {header} and ignores it. Use a "
            "server that keeps conditions (docs/reference/s3.md)",
        )


def _fine() -> None:
    """Nothing to object."""


def _changed(url: str, key: str, expected: str) -> ConflictError:
    return ConflictError(
        f"{key!r} in {url} has another version than {expected} as read, or is gone; "
        "nothing was changed: read it again"
    )


def _info(key: str, reply: dict[str, Any], size: int) -> ObjectInfo:
    if not reply.get("ETag"):
        # Seen on a gateway before a file system, of an object that was just being replaced.
        error = StoreError(f"the server answered without an ETag for {key!r}; try again")
        error.errno = errno.EAGAIN
        raise error
    return ObjectInfo(
        key=key,
        size=size,
        version=bare(reply["ETag"]),
        modified=reply["LastModified"].timestamp(),
    )


def _whole_size(reply: dict[str, Any]) -> int:
    """The size of the object of which `reply` may have a part."""
    size = reply.get("ContentRange", "").rpartition("/")[2]
    return int(size) if size.isdigit() else int(reply["ContentLength"])
