"""The XML of S3, as far as the stub reads and writes it."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.servers.stub_model import Object, S3Error

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def element(name: str, *content: str | int | bool | None) -> str:
    """One element; content that is markup already comes from here."""
    texts = []
    for each in content:
        if isinstance(each, bool):
            texts.append("true" if each else "false")
        elif isinstance(each, Markup):
            texts.append(each)
        elif each is not None:
            texts.append(escape(str(each)))
    return Markup(f"<{name}>{''.join(texts)}</{name}>")


class Markup(str):
    """Text that is XML already."""

    __slots__ = ()


def document(name: str, *content: str | int | bool | None) -> bytes:
    """A whole answer."""
    body = element(name, *content)
    opening = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">'
    return (opening + body[len(name) + 2 :]).encode()


def error(failure: S3Error, resource: str, *, condition: bool) -> bytes:
    """The body of an error."""
    named = element("Condition", failure.condition) if condition and failure.condition else None
    # Unlike all others it has no namespace, and boto3 would not understand it with one.
    content = element(
        "Error",
        element("Code", failure.code),
        element("Message", failure.message),
        named,
        element("Resource", resource),
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{content}'.encode()


def timestamp(seconds: float) -> str:
    """A time as in listings."""
    whole, fraction = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(fraction * 1000):03}Z"


def parse(body: bytes) -> ElementTree.Element:
    """The root of a request's XML, with plain names."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise S3Error(400, "MalformedXML") from None
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
    return root


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `last` is the key or prefix that ends it."""

    objects: list[tuple[str, Object]]
    prefixes: list[str]
    truncated: bool
    last: str


def page(
    objects: dict[str, Object],
    *,
    prefix: str,
    delimiter: str,
    after: str,
    skip_prefix: bool,
    limit: int,
) -> Page:
    """Keys after `after`, in the order of their bytes; those with `delimiter` rolled up.

    With `skip_prefix`, an `after` that is a rolled-up prefix stands for all of its keys.
    """
    skipped = after if skip_prefix and delimiter and after.endswith(delimiter) else None
    found: list[tuple[str, Object]] = []
    prefixes: list[str] = []
    last = ""
    for key in sorted(objects, key=str.encode):
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        if skipped is not None and key.startswith(skipped):
            continue
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        shared = key[: end + len(delimiter)] if end >= 0 else None
        if shared is not None and prefixes[-1:] == [shared]:
            continue
        if len(found) + len(prefixes) == limit:
            return Page(found, prefixes, bool(limit), last)
        if shared is None:
            found.append((key, objects[key]))
        else:
            prefixes.append(shared)
        last = shared or key
    return Page(found, prefixes, False, last)


def listed(text: str, encoding: str | None) -> str:
    """A key as a listing shows it."""
    return quote(text, safe="/") if encoding == "url" else text


def contents(entries: Iterable[tuple[str, Object]], encoding: str | None) -> list[str]:
    """The objects of a listing."""
    return [
        element(
            "Contents",
            element("Key", listed(key, encoding)),
            element("LastModified", timestamp(each.modified)),
            element("ETag", f'"{each.etag}"'),
            element("Size", len(each.data)),
            element("StorageClass", "STANDARD"),
        )
        for key, each in entries
    ]
