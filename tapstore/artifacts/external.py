"""Artifacts whose bytes live elsewhere: a URI is registered, nothing is copied.

Any URL of an installed backend (`s3://` needs tapstore-s3, not s3fs), or that fsspec can open;
fsspec and its drivers are imported when one is fetched through them.  Such bytes are verified if
a checksum or size was given, and are as immutable as their owner keeps them.  Refused are URIs
that hold credentials (a Tapfile is read by everyone) and those that mean something else on each
machine, `file://` above all: a Tapfile written by others could have any file of this machine
read.  Not judged is where a URI leads in the network: who fetches what others registered goes
where they say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from tapstore import registry
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import check_name, check_phase, describe, shown
from tapstore.artifacts.streams import check_checksum
from tapstore.errors import (
    ArtifactNotFoundError,
    BackendNotInstalledError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
)
from tapstore.keys import is_key

MAX_URI_CHARACTERS = 2000

_LOCAL = {
    "file", "local", "asynclocal", "async_wrapper", "asyncwrapper", "blockcache", "cached", "dask",
    "dir", "dvc", "filecache", "generic", "git", "libarchive", "pyscript", "reference",
    "simplecache", "tar", "zip",
}  # fmt: skip
"""What reads this machine's files, or wraps another filesystem rather than being a place."""

_USER_NAMED = {"abfs", "abfss", "az", "ftp", "hdfs", "sftp", "smb", "ssh", "webhdfs"}
"""Where what stands before `@` is part of the address; elsewhere it is a secret or nothing."""

_SECRET = re.compile(
    r"(token|signature|secret|password|passwd|credentials?|apikey|accesskey(id)?|authorization)$"
    r"|(^|[-_.])(sig|pwd|key|auth)$",
    re.IGNORECASE,
)

_PACKAGES = {
    "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "gcs": "gcsfs", "gs": "gcsfs",
    "github": "requests", "hdfs": "pyarrow", "hf": "huggingface_hub",
    "http": "aiohttp requests", "https": "aiohttp requests", "oss": "ossfs",
    "s3": '"tapstore[s3]"', "s3a": '"tapstore[s3]"', "sftp": "paramiko", "smb": "smbprotocol",
    "ssh": "paramiko", "webdav": "webdav4", "webhdfs": "requests",
}  # fmt: skip


def check_uri(uri: str) -> str:
    """Return `uri` if it may stand in a Tapfile and be fetched; else `InvalidKeyError`."""
    fault = _fault(uri)
    if fault:
        raise InvalidKeyError(f"invalid artifact URI {shown(uri)[:120]!r}: {fault}")
    return uri


def _fault(uri: str) -> str | None:
    if len(uri) > MAX_URI_CHARACTERS:
        return f"it is longer than {MAX_URI_CHARACTERS} characters"
    if not uri.isprintable() or " " in uri:
        return "it contains a space or control character: percent-encode it"
    match = re.match(r"([A-Za-z][A-Za-z0-9+._-]*)://(.*)", uri)
    scheme = match[1].lower() if match else ""
    if scheme in _LOCAL:
        return (
            f"{scheme}:// means something else on each machine: "
            "publish the file, or put it where all agents reach it by one URI"
        )
    if not match or not match[2].strip("/") or match[2].startswith("/"):
        return "it is not of the form scheme://place/path"
    if "::" in uri:
        return "chained URLs are refused: register the URI of the bytes themselves"
    try:
        parts = urlsplit(uri)
        _ = parts.password
    except ValueError as exc:
        return str(exc)
    return _credentials_fault(parts, scheme)


def credentials_fault(url: str) -> str | None:
    """Why `url` must not stand where everyone reads it, if it holds credentials; else None."""
    try:
        parts = urlsplit(url)
        _ = parts.password
    except ValueError as exc:
        return str(exc)
    return _credentials_fault(parts, parts.scheme.lower())


def _credentials_fault(parts: SplitResult, scheme: str) -> str | None:
    user = "@" in parts.netloc
    if parts.password is not None or (user and scheme not in _USER_NAMED):
        return (
            "it has credentials before '@', and a Tapfile is read by everyone: "
            "give them to the agents' environment or storage options"
        )
    for text in (parts.query, parts.fragment):
        for name, _ in parse_qsl(text, keep_blank_values=True):
            if _SECRET.search(name):
                return (
                    f"its parameter {name!r} looks like a credential, and a Tapfile is read by "
                    "everyone: register the unsigned URI"
                )
    return None


def register(
    uri: str,
    *,
    name: str,
    phase: str,
    checksum: str = "",
    size: int | None = None,
    type: str = "",
    producer: str = "",
    consumers: Iterable[str] = (),
    media_type: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Artifact:
    """The artifact to register for bytes at `uri`.  Nothing is fetched: they need not exist yet.

    Without a checksum nobody can tell whether they are still the same; give one where you can.
    """
    check_uri(uri)
    if size is not None and size < 0:
        raise InvalidKeyError(f"the size of {shown(uri)!r} is negative: {size}")
    return Artifact(
        name=check_name(name),
        path=uri,
        type=type,
        producer=producer,
        consumer=tuple(consumers),
        checksum=check_checksum(checksum, shown(uri)) if checksum else "",
        phase=check_phase(phase),
        size=size,
        media_type=media_type,
        metadata=metadata or {},
    )


@contextmanager
def open_uri(
    artifact: Artifact, *, storage_options: Mapping[str, Any] | None = None
) -> Iterator[IO[bytes]]:
    """Open what an artifact's URI names.  Not verified here."""
    uri, what = check_uri(artifact.path), describe(artifact)
    options = dict(storage_options or {})
    with ExitStack() as stack:
        if _is_stored(uri):
            yield stack.enter_context(_open_stored(uri, what, options))
            return
        stream = _open(uri, what, options)
        stack.callback(stream.close)
        yield cast(IO[bytes], _Guarded(stream, what))


def _is_stored(uri: str) -> bool:
    """Whether a backend can open it: it names an object by a key, and no version or the like."""
    scheme, _, rest = uri.partition("://")
    _, _, path = rest.partition("/")
    return is_key(path) and registry.has_backend(scheme.lower())


@contextmanager
def _open_stored(uri: str, what: str, options: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    folder, _, name = uri.rpartition("/")
    with ExitStack() as stack:
        store = stack.enter_context(registry.open_store(folder, storage_options=options))
        try:
            stream = stack.enter_context(store.open(name))
        except NotFoundError as exc:
            raise _missing(what) from exc
        yield stream


def _missing(what: str) -> ArtifactNotFoundError:
    return ArtifactNotFoundError(
        f"{what} is registered, but there is nothing at its URI; "
        "restore it there, or publish it again"
    )


def _open(uri: str, what: str, options: dict[str, Any]) -> Any:
    # Costs more than all of tapstore, and few need it.
    from fsspec.core import url_to_fs
    from fsspec.registry import get_filesystem_class

    scheme = uri.partition("://")[0].lower()
    try:
        get_filesystem_class(scheme)
    except (ImportError, ValueError) as exc:
        package = _PACKAGES.get(scheme)
        advice = f"pip install {package}" if package else "install the package that provides it"
        raise BackendNotInstalledError(
            f"{what} needs an fsspec driver for {scheme}://, which is not installed ({exc}): "
            f"{advice}"
        ) from exc
    try:
        # Not a shared instance: its listings may be older than the bytes.
        filesystem, path = url_to_fs(uri, skip_instance_cache=True, **options)
        return filesystem.open(path, "rb")
    except FileNotFoundError as exc:
        raise _missing(what) from exc
    except Exception as exc:
        # Drivers raise what their client libraries raise.
        raise _failed(what, exc) from exc


class _Guarded:
    """A driver's stream, of which every error is a `StoreError`."""

    def __init__(self, stream: Any, what: str) -> None:
        self._stream = stream
        self._what = what

    def read(self, count: int) -> bytes:
        try:
            return cast(bytes, self._stream.read(count))
        except Exception as exc:
            raise _failed(self._what, exc) from exc


def _failed(what: str, cause: Exception) -> StoreError:
    # The text of a client library's error may quote the URL or a header.
    code = cause.errno if isinstance(cause, OSError) else None
    reason = os.strerror(code) if code else type(cause).__name__
    error = StoreError(f"cannot read {what}: {reason}; see the error that it comes from")
    error.errno = code
    return error
