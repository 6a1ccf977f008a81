"""Where a Redis is and how to speak to it, read from a URL.  Pure.

    redis://host:6379/0                       rediss:// is the same over TLS
    unix:///run/redis/redis.sock?db=0
    redis+sentinel://host:26379,host:26379/service/0
    redis+cluster://host:6379,host:6379       rediss+sentinel:// and rediss+cluster:// use TLS

Options follow as `?name=value`, by the names that redis-py gives them.  User and password are best
left to the environment (`Credentials`): URLs are remembered and shown, and end up in `ps`.

Not promised: that anybody is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tapstore.errors import InvalidKeyError
from tapstore.keys import mask_url

Kind = Literal["single", "unix", "sentinel", "cluster"]

_KINDS: Mapping[str, Kind] = {
    "redis": "single",
    "rediss": "single",
    "unix": "unix",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
SCHEMES = tuple(_KINDS)

_USUAL_PORT = {"single": 6379, "sentinel": 26379, "cluster": 6379, "unix": 0}
_USUAL_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; the URL's own come first."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL that has been understood.  Only `url` is for people."""

    url: str
    """Without credentials."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    path: str
    """Of the socket; empty if it is none."""

    service: str
    """What the sentinels call it; empty if there are none."""

    database: int
    timeout_seconds: float
    """How long an answer, or a connection, may take."""

    login: Credentials = field(repr=False)
    sentinel_login: Credentials = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of redis-py's connections."""


def parse(
    url: str,
    login: Credentials | None = None,
    sentinel_login: Credentials | None = None,
) -> Address:
    """Understand `url`.  Raises `InvalidKeyError`, which never shows credentials."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid(url, "it is malformed") from None
    scheme = parts.scheme.lower()
    kind = _KINDS.get(scheme)
    if kind is None:
        raise _invalid(url, f"its scheme is none of {', '.join(SCHEMES)}")
    options = _options(url, parts, tls=scheme.startswith("rediss"))
    timeout = options.pop("socket_timeout", _USUAL_TIMEOUT_SECONDS)
    query_db = options.pop("db", None)
    user_info, _, places = parts.netloc.rpartition("@")
    if kind == "unix" and places:
        raise _invalid(url, "write unix:///absolute/path/to.sock")
    service, path_db = _path(url, kind, parts.path)
    if query_db is not None and path_db is not None and query_db != path_db:
        raise _invalid(url, "it names two databases")
    database = query_db if query_db is not None else path_db or 0
    if kind == "cluster" and database:
        raise _invalid(url, "a cluster has no databases but 0")
    return Address(
        url=mask_url(url),
        kind=kind,
        tls=scheme.startswith("rediss"),
        hosts=() if kind == "unix" else _hosts(url, places, kind),
        path=unquote(parts.path) if kind == "unix" else "",
        service=service,
        database=database,
        timeout_seconds=timeout,
        login=_login(user_info, login or Credentials()),
        sentinel_login=sentinel_login or Credentials(),
        options=options,
    )


def _login(user_info: str, given: Credentials) -> Credentials:
    username, _, password = user_info.partition(":")
    return Credentials(unquote(username) or given.username, unquote(password) or given.password)


def _hosts(url: str, places: str, kind: Kind) -> tuple[tuple[str, int], ...]:
    hosts = []
    for place in places.split(","):
        try:
            parts = urlsplit(f"//{place}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _invalid(url, "a port is no number below 65536") from None
        if not host:
            raise _invalid(url, "a host has no name")
        hosts.append((host, port or _USUAL_PORT[kind]))
    if kind == "single" and len(hosts) > 1:
        raise _invalid(url, "several hosts need redis+sentinel:// or redis+cluster://")
    return tuple(hosts)


def _path(url: str, kind: Kind, path: str) -> tuple[str, int | None]:
    """The service and the number of the database."""
    segments = [unquote(segment) for segment in path.strip("/").split("/") if segment]
    if kind == "unix":
        if not path.startswith("/") or not segments:
            raise _invalid(url, "write unix:///absolute/path/to.sock")
        return "", None
    service = ""
    if kind == "sentinel":
        if not segments:
            raise _invalid(url, "add what the sentinels call the service: …/mymaster/0")
        service = segments.pop(0)
    if not segments:
        return service, None
    if len(segments) > 1 or not (segments[0].isascii() and segments[0].isdigit()):
        raise _invalid(url, "what follows the host must be the number of a database")
    return service, int(segments[0])


def _options(url: str, parts: SplitResult, *, tls: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        convert = _OPTIONS.get(name) or (_TLS_OPTIONS.get(name) if tls else None)
        if convert is None:
            raise _invalid(url, _why_not(name, tls=tls))
        try:
            options[name] = convert(value)
        except (ValueError, KeyError):
            raise _invalid(url, f"the value of {name} makes no sense") from None
    return options


def _why_not(name: str, *, tls: bool) -> str:
    if name in ("username", "password", "ssl_password"):
        return f"{name} does not belong there: set TAPSTORE_REDIS_{name.upper()}"
    known = [*_OPTIONS, *(_TLS_OPTIONS if tls else ())]
    hint = "" if tls or name not in _TLS_OPTIONS else " without TLS (rediss://)"
    return f"there is no option {name!r}{hint}; there are {', '.join(known)}"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 3600:
        raise ValueError(text)
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _truth(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
        text.lower()
    ]


def _one_of(*words: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return convert


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "db": _count,
    "socket_timeout": _seconds,
    "socket_connect_timeout": _seconds,
    "socket_keepalive": _truth,
    "health_check_interval": _count,
    "max_connections": _count,
    "client_name": str,
}
_TLS_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_check_hostname": _truth,
    "ssl_cert_reqs": _one_of("required", "optional", "none"),
}


def _invalid(url: str, reason: str) -> InvalidKeyError:
    """What is malformed may hide a password anywhere, so only the scheme is shown of it."""
    scheme, separator, _ = url.partition("://")
    shown = f"{scheme}://…" if separator and scheme.lower() in _KINDS else "that is not a URL"
    return InvalidKeyError(f"invalid lock service {shown!r}: {reason}")
