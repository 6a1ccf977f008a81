"""Keys, names and URLs: what is well-formed.  Pure.

A key is a relative path that means the same on every place that tapstore runs on: no absolute
paths, no `..`, nothing that Windows, SMB or a bucket listing would change or refuse.  Names of
agents, roles and leases may be any printable text; `encode_name` makes a key segment of them.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from functools import lru_cache
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from tapstore.errors import InvalidKeyError

MAX_KEY_BYTES = 900
"""S3 allows 1,024 for prefix and key together; the rest is left for the prefix."""

MAX_SEGMENT_BYTES = 200
"""File systems allow 255; temporary files add to the name."""

TEMP_MARK = ".tapstore-tmp-"
"""Temporary files are named `<TEMP_MARK><random>`; listings leave such names out."""

# Most keys: no segment can be a reserved name, hidden, or end in a dot.
_PLAIN = re.compile(
    r"(\.tap/)?([a-z0-9_-]{5,60}/|log/|new/|[0-9]{2,4}/|[0-9]{2}_[0-9]{8}T[0-9]{2}/){0,8}"
    r"([0-9]{8}T[0-9]{2}/)?([A-Za-z0-9_-]{5,160}(\.handoff(~[0-9]{1,3})?)?|new|[0-9]{2,4})"
)
_UNPORTABLE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_WORD = re.compile(r"[\w@%+=:,./][\w@%+=:,./#-]*")
"""What no shell changes: `#` begins a comment only where a word begins."""

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)


@lru_cache(maxsize=256)
def check_key(key: str) -> str:
    """Return `key` if it is well-formed, else raise `InvalidKeyError` with the reason."""
    if _PLAIN.fullmatch(key):
        return key
    reason = _fault(key)
    if reason:
        shown = key if len(key) <= 80 else key[:77] + "…"
        raise InvalidKeyError(f"invalid key {shown!r}: {reason}")
    return key


def _fault(key: str) -> str | None:
    if not key:
        return "it is empty"
    if key.startswith("/"):
        return "it is absolute; keys are relative to the session"
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode (lone surrogate)"
    if len(encoded) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    match = _UNPORTABLE.search(key)
    if match:
        return f"it contains {match.group()!r}, which is not portable"
    if not key.isascii() and unicodedata.normalize("NFC", key) != key:
        return "it is not in Unicode normal form C, so it would name two different files"
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"the segment {segment[:40]!r}… is longer than {MAX_SEGMENT_BYTES} bytes"
        if segment[-1] in ". ":
            return f"the segment {segment!r} ends in a dot or a space, which Windows drops"
        if _RESERVED.match(segment):
            return f"the segment {segment!r} is a reserved name on Windows"
        if segment.startswith(TEMP_MARK):
            return f"names that begin with {TEMP_MARK!r} are for unfinished writes"
    return None


def is_key(key: str) -> bool:
    return _PLAIN.fullmatch(key) is not None or _fault(key) is None


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is one that `Store.list` takes: empty, or the beginning of a key."""
    # What can be continued to a key is the beginning of one: `con` and `a.` are, `a//` is not.
    reason = _fault(prefix + "x")
    if reason:
        raise InvalidKeyError(f"invalid prefix {prefix[:80]!r}: {reason}")
    return prefix


def check_name(name: str, what: str) -> str:
    """Return `name` if it can be the id of an agent, role, lease, …; `what` is for the message."""
    if not name or not name.strip():
        raise InvalidKeyError(f"{what} is empty")
    if len(name) > 120:
        raise InvalidKeyError(f"{what} {name[:40]!r}… is longer than 120 characters")
    if not name.isprintable() or name != name.strip():
        raise InvalidKeyError(
            f"{what} {name!r} has control characters, or spaces around it: "
            "use letters, digits, '-', '_', '.'"
        )
    return name


def encode_name(name: str) -> str:
    """Make one portable key segment of any name; different names give different segments.

    Percent-encoding, with capitals encoded too where case could collide is *not* done: names
    that differ by case only are told apart by the place or not at all.
    """
    encoded = quote(name, safe="-_@+,=()")
    if len(encoded) > MAX_SEGMENT_BYTES - 40:
        raise InvalidKeyError(f"the name {name[:40]!r}… is too long to be stored")
    if _RESERVED.match(encoded) or encoded[:1] == ".":
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    # quote() leaves dots alone; a trailing one is dropped on Windows.
    return encoded[:-1] + "%2E" if encoded.endswith(".") else encoded


def decode_name(segment: str) -> str:
    """The inverse of `encode_name`."""
    return unquote(segment)


def shell_word(text: str) -> str:
    """`text` as one word of a POSIX shell, for a command that a message names.

    Names and places are given by others: what is copied from a message must do what it says.
    """
    return text if _WORD.fullmatch(text) else shlex.quote(text)


def mask_url(url: str) -> str:
    """`url` without credentials: what stands before `@`, and query values, become `***`."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = "***@" + netloc.rpartition("@")[2]
    query = "&".join(
        f"{item.partition('=')[0]}=***" if "=" in item else item
        for item in parts.query.split("&")
        if item
    )
    return _unsplit(url, parts, netloc, query, parts.fragment)


_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|sig(nature)?$|api_?key|access_?key", re.IGNORECASE
)


def without_password(url: str) -> str:
    """`url` as others may keep it: without a password, and without options that sound like one.

    The name of the user stays.  Raises `InvalidKeyError` if a password may hide elsewhere.
    """
    if "://" not in url:
        return url
    parts = _split(url)
    user_info, at, hosts = parts.netloc.rpartition("@")
    user = user_info.partition(":")[0]
    query = "&".join(
        item
        for item in parts.query.split("&")
        if item and not _SECRET.search(unquote(item.partition("=")[0]))
    )
    netloc = f"{user}@{hosts}" if at and user else hosts
    return _unsplit(url, parts, netloc, query)


def same_service(url: str, other: str) -> bool:
    """Whether two URLs (or names) mean the same server, whoever asks it.

    Options count: one that is unknown here may choose what is served.
    """
    return _service(url) == _service(other)


def _service(url: str) -> tuple[object, ...]:
    if "://" not in url:
        return (url,)
    parts = _split(without_password(url))
    hosts = parts.netloc.rpartition("@")[2]
    return parts.scheme, hosts.lower(), parts.path, sorted(parts.query.split("&"))


def _unsplit(url: str, parts: SplitResult, netloc: str, query: str, fragment: str = "") -> str:
    if parts.scheme and not netloc and url[len(parts.scheme) :].startswith("://"):
        # Without a host, urlunsplit drops the slashes of schemes that it does not know.
        rest = f"{query and '?'}{query}{fragment and '#'}{fragment}"
        return f"{parts.scheme}://{parts.path}{rest}"
    return urlunsplit((parts.scheme, netloc, parts.path, query, fragment))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    # `/`, `?` or `#` in a password end what counts as the host, and the rest of it would be kept.
    if parts is None or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        scheme = url.partition("://")[0]
        raise InvalidKeyError(
            f"invalid URL '{scheme}://…': it is malformed; '/', '?', '#' and '@' in a user or "
            "password are written %2F, %3F, %23 and %40"
        )
    return parts
