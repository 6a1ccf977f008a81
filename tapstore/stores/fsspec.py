"""Any filesystem that fsspec knows as a store, as far as it can be relied on.

CREATE is offered only where nothing speaks against its being exclusive (`exclusive` says what
is tried), and only for what fits into one request.  Everything else that a filesystem cannot do
is refused by name, never imitated.

Not promised: Update and conditional delete (fsspec has no word for them; `commitlog` builds
compare-and-set from CREATE); use of the object in a forked child; that OVERWRITE is atomic on a
filesystem whose own writes are not.  fsspec's libraries may repeat a request whose reply was
lost without saying so: `registry.open_store` puts `ReadBackStore` around this store.

Not served here: local folders (`LocalStore` does more), `memory://` of fsspec (it looks and
writes in two steps), S3 (its conditions need `tapstore-s3`), and filesystems that cache.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import cached_property, partial
from shutil import copyfileobj
from typing import Any, BinaryIO, TypeVar, cast

from fsspec.implementations.dirfs import DirFileSystem

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK, parse_time
from tapstore.errors import StoreError, UnsupportedOperationError
from tapstore.keys import TEMP_MARK, check_key, check_prefix, mask_url
from tapstore.stores.fileservers import FileServer, adapt
from tapstore.stores.order import Listing
from tapstore.stores.reading import read_up_to
from tapstore.stores.storetime import StoreTime
from tapstore.types import (
    CREATE,
    Capabilities,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)

T = TypeVar("T")

_CREATE_LIMIT = 4 << 20
"""Bytes.  Larger ones go in several requests, and where the condition holds then is a question
that each service answers in its own way."""

_SPOOL = 8 << 20
"""Bytes that are held in memory before a temporary file is used."""

_ATTEMPTS = 5

_VERSION_FIELDS = ("generation", "etag", "ETag", "version_id", "VersionId", "md5Hash", "uid")
_TIME_FIELDS = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")

_KNOWN_TO_HAVE_FAILED = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR,
     errno.ENOTDIR, errno.ENAMETOOLONG)
)  # fmt: skip


def innermost(fs: Any, path: str) -> tuple[Any, str]:
    """The filesystem below those that only add a prefix, and what `path` is there.

    Raises `UnsupportedOperationError` for one that caches.
    """
    while isinstance(fs, DirFileSystem):
        fs, path = fs.fs, fs._join(path)
    if type(fs).__module__ == "fsspec.implementations.cached":
        raise UnsupportedOperationError(
            f"{type(fs).__name__} shows each agent what it has cached, not what is there: give "
            "the filesystem below it"
        )
    return fs, path


class FsspecStore(Store):
    """Keys are the paths below `root` of an fsspec filesystem object."""

    def __init__(self, fs: Any, root: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        fs, root = innermost(fs, root)
        fs = adapt(fs)
        self._fs = fs
        root = fs._strip_protocol(root).rstrip("/")
        self._base = f"{root}/" if root else fs.root_marker
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        host = fs.host if isinstance(fs, FileServer) else ""
        self.url = mask_url(f"{protocol}://{host}{root}") if root else f"{protocol}://{host}"
        self._time = StoreTime(clock, self._probe_time)
        self._listing = Listing(self._entries, self._describe)

    @property
    def identity(self) -> str:
        # Containers of Azure have their names within an account only.
        account = getattr(self._fs, "account_name", None)
        return f"{self.url} of {account}" if account else self.url

    @cached_property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """Found out by writing, when first asked for."""
        return Capabilities(
            create=not self._why_no_create, update=False, conditional_delete=False, files=False
        )

    @cached_property
    def _why_no_create(self) -> str:
        from tapstore.stores import exclusive

        def find_out(_: str) -> str:
            return self._with_folder(self._base, lambda base: exclusive.why_not(self._fs, base))

        return self._reading("", find_out)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        failures.check_range(start, end)
        for _ in range(_ATTEMPTS):
            info = self.head(key)
            stop = info.size if end is None else min(end, info.size)
            if start >= stop:
                return GetResult(data=b"", info=info)
            read = partial(self._fs.cat_file, start=start or None, end=end)
            data: bytes = self._reading(key, read)
            # If it was overwritten in between, `info` is older than `data`: who compares
            # versions looks again.  Only its size must fit.
            if len(data) == stop - start:
                return GetResult(data=data, info=info)
        raise failures.failed(self.url, key, "read", OSError(errno.EAGAIN, "it keeps changing"))

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        info = self._describe(key, self._reading(key, self._fs.info))
        if info is None:
            raise failures.not_found(self.url, key)
        return info

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        if isinstance(mode, Update):
            raise failures.unsupported(
                self.url, "update", "fsspec has no compare-and-set; `commitlog` builds one"
            )
        if mode is CREATE:
            self._check_create(key, len(data))
        self._writing(key, lambda path: self._fs.pipe_file(path, bytes(data), mode=mode.value))
        return self._written(key)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        check_key(key)
        failures.check_mode(mode)
        if mode is CREATE:
            data = read_up_to(_CREATE_LIMIT + 1, source)
            self._check_create(key, len(data))
            return self.put(key, data, mode)
        # First to a file of ours: many filesystems commit what they have when a stream breaks.
        with tempfile.NamedTemporaryFile(prefix=TEMP_MARK) as spool:
            copyfileobj(source, spool)
            spool.flush()
            self._writing(key, lambda path: self._fs.put_file(spool.name, path))
        return self._written(key)

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        if version is not None:
            raise failures.unsupported(
                self.url, "conditional_delete", "fsspec cannot compare and delete in one step"
            )
        self._writing(key, self._remove)

    def drop_empty_folders(self, key: str, *, below: str) -> None:
        # Elsewhere a folder is what the names of objects have in common; or the name of a bucket.
        if not isinstance(self._fs, FileServer):
            return
        folder = check_key(key).rpartition("/")[0]
        while len(folder) > len(below) and folder.startswith(below):
            try:
                self._fs.rmdir(self._base + folder)
            # What a filesystem raises is up to the library behind it.
            except Exception:
                return  # something lies in it, or somebody was faster
            folder = folder.rpartition("/")[0]

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._listing.objects(prefix, start_after)

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._listing.children(prefix)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        failures.check_range(start, None)
        for _ in range(_ATTEMPTS):
            before = self.head(key)
            with ExitStack() as cleanup:
                spool = cleanup.enter_context(tempfile.SpooledTemporaryFile(_SPOOL))
                self._reading(key, partial(self._copy, target=spool))
                # It came in many requests: all saw one version only if nothing changed.
                if self.head(key).version == before.version:
                    spool.seek(start)
                    cleanup.pop_all()
                    return cast(AbstractContextManager[BinaryIO], spool)
        raise failures.failed(self.url, key, "read", OSError(errno.EAGAIN, "it keeps changing"))

    def now(self) -> float:
        return self._time.now()

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        if not isinstance(self._fs, FileServer):
            return ()
        limit = self._probe_time() - older_than_seconds
        swept = []
        for name, raw in self._unfinished(""):
            if self._modified(self._base + name, raw) < limit:
                if not dry_run:
                    self._writing(name, self._remove)
                swept.append(name)
        return tuple(sorted(swept))

    def close(self) -> None:
        if isinstance(self._fs, FileServer):
            self._fs.close()

    def _check_create(self, key: str, size: int) -> None:
        if self._why_no_create:
            raise failures.unsupported(
                self.url,
                "create",
                f"{self._why_no_create}. Use a folder, memory:// or a service with conditional "
                "writes",
            )
        if size > _CREATE_LIMIT:
            raise failures.unsupported(
                self.url,
                "create",
                f"{key!r} is larger than {_CREATE_LIMIT} bytes, which do not go in one request; "
                "write it under a name of its own with OVERWRITE",
            )

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm_file(path)
        except FileNotFoundError:
            return

    def _unfinished(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, raw in self._entries(folder):
            if name.endswith("/"):
                yield from self._unfinished(folder + name)
            elif name.startswith(TEMP_MARK):
                yield folder + name, raw

    def _copy(self, path: str, target: Any) -> None:
        if isinstance(self._fs, FileServer):
            self._fs.copy_to(path, target)
            return
        with self._fs.open(path, "rb") as stream:
            copyfileobj(stream, target)

    def _written(self, key: str) -> PutResult:
        info = self.head(key)
        self._time.see(info.modified)
        return PutResult(version=info.version, modified=info.modified)

    def _probe_time(self) -> float:
        # A fresh name each time: some services allow one write a second to an object.
        name = TEMP_MARK + os.urandom(8).hex()
        self._writing(name, lambda path: self._fs.pipe_file(path, b"?"))
        seen = self._modified(self._base + name, self._reading(name, self._fs.info))
        self._writing(name, self._fs.rm_file)
        return seen

    def _entries(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        here = f"{self._base}{folder}".rstrip("/")

        def ls(_: str) -> Any:
            try:
                return self._fs.ls(here, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []

        for raw in self._reading(folder, ls):
            path = raw["name"].rstrip("/")
            # Some list a folder's own marker object, or a file as its own content.
            if path.strip("/") != here.strip("/"):
                name = path.rpartition("/")[2]
                yield (name + "/" if raw["type"] == "directory" else name), raw

    def _describe(self, key: str, raw: Mapping[str, Any]) -> ObjectInfo | None:
        if raw["type"] == "directory":
            return None
        modified = self._modified(self._base + key, raw)
        parts = [str(raw[name]) for name in _VERSION_FIELDS if raw.get(name)]
        version = "-".join((*parts, str(raw["size"]), repr(modified)))
        return ObjectInfo(key=key, size=raw["size"], version=version, modified=modified)

    def _modified(self, path: str, raw: Mapping[str, Any]) -> float:
        for name in _TIME_FIELDS:
            value = raw.get(name)
            if value is not None:
                return _seconds(value)
        try:
            return _seconds(self._fs.modified(path))
        except NotImplementedError as exc:
            raise UnsupportedOperationError(
                f"{self.url} does not say when a file was written, which every session needs"
            ) from exc

    def _reading(self, key: str, action: Callable[[str], T]) -> T:
        self._fs.invalidate_cache()
        try:
            return action(self._base + key)
        except FileNotFoundError as exc:
            raise failures.not_found(self.url, key) from exc
        except StoreError:
            raise
        # What else a filesystem raises is up to the library behind it.
        except Exception as exc:
            raise failures.failed(self.url, key, "read", _as_os_error(exc)) from exc

    def _writing(self, key: str, action: Callable[[str], T]) -> T:
        try:
            return self._with_folder(self._base + key, action)
        except FileExistsError as exc:
            raise failures.already_exists(self.url, key) from exc
        except NotImplementedError as exc:
            raise UnsupportedOperationError(f"{self.url} cannot write ({exc})") from exc
        # What else a filesystem raises is up to the library behind it.
        except Exception as exc:
            cause = _as_os_error(exc)
            if cause.errno in _KNOWN_TO_HAVE_FAILED or isinstance(exc, PermissionError):
                raise failures.failed(self.url, key, "write", cause) from exc
            raise failures.outcome_unknown(self.url, key, "the write", exc) from exc

    def _with_folder(self, path: str, action: Callable[[str], T]) -> T:
        for _ in range(_ATTEMPTS):
            try:
                return action(path)
            except FileNotFoundError:
                # Somebody may remove it again before something lies in it.
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return action(path)


def _as_os_error(exc: Exception) -> OSError:
    """The same with an errno by which it can be judged, also where a library leaves that out."""
    if isinstance(exc, OSError) and exc.errno is not None:
        return exc
    code = next((code for kind, code in _CODES if isinstance(exc, kind)), None)
    error = OSError(str(exc) or type(exc).__name__)
    error.errno = code
    return error


_CODES = (
    (TimeoutError, errno.ETIMEDOUT),
    (ConnectionError, errno.ECONNRESET),
    (PermissionError, errno.EACCES),
    (IsADirectoryError, errno.EISDIR),
    (NotADirectoryError, errno.ENOTDIR),
)


def _seconds(value: Any) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return parse_time(value) if isinstance(value, str) else float(value)
