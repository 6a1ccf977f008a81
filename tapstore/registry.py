"""Finds the store for a URL and the lock service for a name or URL.

URLs and `storage_options` follow fsspec's conventions.  Packages add stores by the entry point
group `tapstore.stores`, lock services by `tapstore.locks`; the entry point's name is the URL
scheme (or the plain name).  An entry point is loaded only when its scheme is asked for, so a
broken one harms nobody else.

An entry point of `tapstore.stores` is a callable
`(url: str, *, storage_options: Mapping[str, Any], clock: Clock) -> Store`;
what it returns is wrapped, so that it need neither repeat nor read back.
One of `tapstore.locks` is a callable
`(store: Store, prefix: str, *, url: str, scope: str, clock: Clock) -> LockService`;
`scope` is the same for all who share the leases and for nobody else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tapstore.abc import Clock, LockService, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import BackendNotInstalledError, InvalidKeyError, StoreError
from tapstore.keys import mask_url
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore

_STORES = "tapstore.stores"
_LOCKS = "tapstore.locks"

_BUILT_IN_LOCKS = {
    "o_excl": "tapstore.locks.lease:open_service",
    "store": "tapstore.locks.leaseobject:open_service",
}
"""The same as our own entry points; to look those up costs a scan of all installed packages."""

_PACKAGES = {
    (_STORES, "s3"): ("tapstore-s3", "tapstore[s3]"),
    **{
        (_LOCKS, scheme): ("tapstore-redis", "tapstore[redis]")
        for scheme in (
            "redis",
            "rediss",
            "unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        )
    },
}
"""Our own packages that need to be installed separately."""

_DISTRIBUTIONS = {"smbclient": "smbprotocol"}
"""Modules of another name than what is to be installed."""

_S3 = {"s3", "s3a"}

_SSH = {"sftp", "ssh"}
"""fsspec passes on to SSH what it is given, and keeps no listings."""

_CONNECTING = {*_SSH, "smb"}

# Two letters at least: one is a drive.
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+")
_USER_INFO = re.compile(r"(?<=/)[^/]*@")
_SINGLE_SLASH = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/(?!/)")


def open_store(
    place: object,
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Store:
    """Return the store at `place`.

    `place` is a `Store` (which is returned as it is), a path, a URL (`file:///…`,
    `memory://name/…`, `s3://bucket/…`, any scheme that fsspec knows), or something of fsspec's: a
    filesystem, an `OpenFile`, or the pair `(filesystem, path)` that `fsspec.core.url_to_fs`
    returns.  Raises `InvalidKeyError` for a
    malformed URL and `BackendNotInstalledError` with the pip command.
    """
    options = dict(storage_options or {})
    if isinstance(place, (str, os.PathLike)):
        url = os.fspath(place)
        if isinstance(url, str):
            return _open_url(url, options, clock)
    elif isinstance(place, Store) and not options:
        return place
    elif options:
        raise TypeError("storage_options are for URLs; what is open has its own already")
    elif isinstance(place, tuple):
        return _open_filesystem(*place, clock=clock)
    elif hasattr(place, "fs") and hasattr(place, "path") and not hasattr(place, "pipe_file"):
        return _open_filesystem(place.fs, place.path, clock=clock)
    elif hasattr(place, "pipe_file"):
        return _open_filesystem(place, "", clock=clock)
    raise TypeError(
        f"cannot open a store at a {type(place).__name__}: give a path, a URL, a Store, a "
        "filesystem of fsspec or (filesystem, path)"
    )


def has_backend(scheme: str) -> bool:
    """Whether an installed package adds stores for URLs of this scheme."""
    from importlib.metadata import entry_points

    return bool(entry_points(group=_STORES, name=scheme))


def open_locks(
    name_or_url: str, store: Store, prefix: str, *, scope: str, clock: Clock = SYSTEM_CLOCK
) -> LockService:
    """Return the lock service `name_or_url` (`o_excl`, `redis://host:6379/0`, …).

    What it keeps in `store` lies below the key `prefix`; what it keeps elsewhere, under `scope`
    (letters and digits).  Raises `BackendNotInstalledError`.
    """
    scheme, _, rest = name_or_url.partition("://")
    if not scheme or not (rest or scheme == name_or_url):
        raise InvalidKeyError(
            f"invalid lock service {_shown(name_or_url)!r}: give a name such as 'o_excl', or a "
            "URL such as redis://host:6379/0"
        )
    built_in = _BUILT_IN_LOCKS.get(scheme)
    opener = _load(built_in) if built_in else _entry_point(_LOCKS, scheme)
    if opener is None:
        raise _not_installed(_LOCKS, scheme, name_or_url)
    service: LockService = opener(store, prefix, url=name_or_url, scope=scope, clock=clock)
    return service


def _open_url(url: str, options: dict[str, Any], clock: Clock) -> Store:
    if not url or "\0" in url:
        raise InvalidKeyError(f"invalid place {url!r}: give a path or a URL")
    scheme, separator, rest = url.partition("://")
    if separator and "::" in url:
        raise InvalidKeyError(
            f"invalid URL {_shown(url)!r}: chained filesystems cache or translate, so agents "
            "would not see the same; give the last link of the chain"
        )
    if not separator or not _SCHEME.fullmatch(scheme):
        if _SINGLE_SLASH.match(url):
            raise InvalidKeyError(
                f"invalid URL {_shown(url)!r}: write two slashes after the scheme, or ./ before "
                "the name of a folder"
            )
        return _open_local(os.path.expanduser(url), options, clock)
    scheme = scheme.lower()
    if scheme in ("file", "local"):
        if not rest.startswith("/"):
            raise InvalidKeyError(
                f"invalid URL {_shown(url)!r}: write file:///absolute/path; hosts are mounted, "
                "not named"
            )
        return _open_local(rest, options, clock)
    if scheme == "memory":
        _take_no(options, "memory://")
        if not rest.strip("/"):
            raise InvalidKeyError(
                "invalid URL 'memory://': give it a name (memory://name), or nobody could open it "
                "again"
            )
        return MemoryStore(f"memory://{rest.lstrip('/')}", clock=clock)
    opener = _entry_point(_STORES, scheme)
    if opener is not None:
        return _resolved(opener(url, storage_options=options, clock=clock), clock)
    if scheme in _S3:
        raise _not_installed(_STORES, "s3", url)
    return _open_filesystem(*_filesystem(scheme, url, options), clock=clock)


def _open_local(path: str, options: dict[str, Any], clock: Clock) -> Store:
    durability = options.pop("durability", "full")
    _take_no(options, "a folder (it takes durability='full' or 'none')")
    return LocalStore(path, durability=durability, clock=clock)


def _take_no(options: Mapping[str, Any], what: str) -> None:
    if options:
        raise TypeError(f"{what} does not know the storage_options {sorted(options)}")


def _filesystem(scheme: str, url: str, options: dict[str, Any]) -> tuple[Any, str]:
    import fsspec

    try:
        # What one client caches, the others' writes do not reach.
        fresh = {"skip_instance_cache": True}
        if scheme not in _SSH:
            fresh["use_listings_cache"] = False
        fs, path = fsspec.url_to_fs(url, **{**fresh, **options})
    except ImportError as exc:
        raise _not_installed(_STORES, scheme, url, missing=exc) from exc
    except ValueError as exc:
        if scheme in fsspec.available_protocols():
            raise InvalidKeyError(f"invalid URL {_shown(url)!r}: {exc}") from exc
        raise _not_installed(_STORES, scheme, url) from exc
    # They connect at once; what is raised then is up to the library behind them.
    except Exception as exc:
        if scheme not in _CONNECTING:
            raise
        raise StoreError(
            f"cannot connect to {_shown(url)} ({exc or type(exc).__name__}): check host, port, "
            "user and key in storage_options"
        ) from exc
    return fs, path


def _open_filesystem(fs: Any, path: str, *, clock: Clock) -> Store:
    from fsspec.implementations.local import LocalFileSystem

    from tapstore.stores.fsspec import FsspecStore, innermost

    fs, path = innermost(fs, path)
    if isinstance(fs, LocalFileSystem):
        return LocalStore(fs._strip_protocol(path), clock=clock)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if protocols & _S3:
        raise _not_installed(_STORES, "s3", f"s3://{path}")
    return _resolved(FsspecStore(fs, path, clock=clock), clock)


def _resolved(store: Store, clock: Clock) -> Store:
    """`store`, with lost replies looked up and refusals for a moment repeated."""
    return RetryStore(ReadBackStore(store, clock=clock), clock=clock)


def _entry_point(group: str, name: str) -> Callable[..., Any] | None:
    from importlib.metadata import entry_points

    found = list(entry_points(group=group, name=name))
    if not found:
        return None
    packages = sorted({point.dist.name if point.dist else point.value for point in found})
    if len(packages) > 1:
        raise BackendNotInstalledError(
            f"several packages offer {name!r} to {group}: {', '.join(packages)}; uninstall all "
            "but one"
        )
    try:
        opener: Callable[..., Any] = found[0].load()
    # Whatever a plug-in's own imports raise.
    except Exception as exc:
        raise BackendNotInstalledError(
            f"{packages[0]} is installed but does not load ({type(exc).__name__}: {exc}): "
            f"pip install --force-reinstall {packages[0]}"
        ) from exc
    return opener


def _load(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    opener: Callable[..., Any] = getattr(import_module(module), name)
    return opener


def _not_installed(
    group: str, scheme: str, url: str, *, missing: ImportError | None = None
) -> BackendNotInstalledError:
    ours = _PACKAGES.get((group, scheme))
    if ours is not None:
        return BackendNotInstalledError(
            f'{_shown(url)} needs the package {ours[0]}: pip install "{ours[1]}"'
        )
    if missing is not None:
        # fsspec chains the import that failed below its own words.
        cause = missing.__cause__ if isinstance(missing.__cause__, ImportError) else missing
        package = (cause.name or scheme).partition(".")[0]
        package = _DISTRIBUTIONS.get(package, package)
        return BackendNotInstalledError(
            f"{_shown(url)} needs a package that is not installed ({missing}): "
            f"pip install {package}"
        )
    return BackendNotInstalledError(
        f"nothing that is installed knows {_shown(url)}: check the spelling, or pip install the "
        f"package that offers {scheme!r} to {group}"
    )


def _shown(url: str) -> str:
    """`url` without credentials, however malformed it is."""
    try:
        shown = mask_url(url)
    except ValueError:
        shown = url.partition("?")[0]
    return _USER_INFO.sub("***@", shown)
