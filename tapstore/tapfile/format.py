"""Tapfile bytes to documents and back: YAML and JSON, without guessing.  Pure.

`parse` reads what any agent may have written; `render` writes what every agent reads the same;
`certified` tells, without parsing, that nobody changed what tapstore wrote.  What is refused is
refused with line, field and reason, as `FormatError`; see docs/spec/tapfile.md.

Whether the document is a good Tapfile is not looked at: that is `schema.check`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tapstore.errors import FormatError
from tapstore.tapfile import fields, values
from tapstore.tapfile.fields import Duplicate, FaultError, Unquoted

Format = Literal["yaml", "json"]

MAX_BYTES = 4 * 1024 * 1024

_NONE: Mapping[str, Any] = {}

_BOM = b"\xef\xbb\xbf"
HEADER = "# State of a tapstore session. Edit it only while you hold .tap/locks/tapfile.lock.\n"
READ_ONLY_HEADER = "# State of a tapstore session. Only tapstore may write it: `tapstore edit`.\n"
_SEAL = b" sha256="
_TRAILER = re.compile(
    rb"# tapstore: rev=([0-9]{1,20}) write_id=([A-Za-z0-9_.:-]+) sha256=([0-9a-f]{64})\n"
)
_WRITE_ID = re.compile(r"[A-Za-z0-9_.:-]+")
_LOOKS_LIKE_JSON = re.compile(r"\s*(?:\[|\{\s*(?:[\"}]|\Z))")


def parse(data: bytes, *, name: str = "Tapfile") -> dict[str, Any]:
    """The document in `data`, whichever of YAML and JSON it is.

    Known fields that hold text come back as the text that was written, times in their one form.
    Raises `FormatError`.
    """
    doc = _parse(data, name, fields.TAPFILE)
    if not isinstance(doc, dict):
        raise FormatError(
            f"{name} is no mapping of fields but {fields.shorten(doc)}; it begins with "
            "'version: …' and 'session_id: …'"
        )
    return doc


def parse_plain(data: bytes, *, name: str, spec: Any = None) -> Any:
    """The value in other YAML or JSON data, under the same rules.

    `spec` names the kinds of its fields, as `fields.TAPFILE` does; by default none is known.
    """
    return _parse(data, name, spec)


def _parse(data: bytes, name: str, spec: Any) -> Any:
    try:
        text = _decode(data)
        raw, nodes = _read(text)
        return fields.settle(raw, spec, nodes=nodes)
    except FaultError as fault:
        raise _error(name, fault) from fault


def _error(name: str, fault: FaultError) -> FormatError:
    where = [name]
    if fault.line:
        where.append(f"line {fault.line}")
    if fault.column:
        where.append(f"column {fault.column}")
    if fault.path:
        where.append(fault.place)
    return FormatError(f"{', '.join(where)}: {fault.reason}")


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise FaultError(f"it has {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise FaultError(f"it is not UTF-8: {exc.reason}", line=line) from exc
    if not text.strip():
        raise FaultError("it is empty: somebody is just writing it, or broke off")
    return text


def _read(text: str) -> tuple[Any, int]:
    """Raw values, and how many of them there may be."""
    if _LOOKS_LIKE_JSON.match(text) is None:
        return _read_yaml(text)
    try:
        return _JSON.decode(text), fields.MAX_NODES
    except RecursionError as exc:
        raise FaultError(f"it is nested deeper than {fields.MAX_DEPTH} levels") from exc
    except json.JSONDecodeError as exc:
        broken = FaultError(f"it is no JSON: {exc.msg}", line=exc.lineno, column=exc.colno)
        # Flow style of YAML may begin like JSON.  But it folds a raw line break within a text to
        # a space, so what has one is left to be mended.
        if exc.msg.startswith("Invalid control character"):
            raise broken from exc
        try:
            return _read_yaml(text)
        except FaultError:
            raise broken from exc


def _read_yaml(text: str) -> tuple[Any, int]:
    # Imported here: a short command meets certified views only, and never needs it.
    from tapstore.tapfile import yaml_read

    return yaml_read.read(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Duplicate:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return Duplicate(key)
        seen.add(key)
    raise AssertionError("unreachable: a key repeats")


_JSON = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=lambda text: Unquoted(text, fields.whole_number(text)),
    parse_float=lambda text: Unquoted(text, float(text)),
    parse_constant=lambda text: Unquoted(text, math.nan),
)


def settled(doc: Mapping[str, Any], *, known: Mapping[str, Any] = _NONE) -> dict[str, Any]:
    """A document made in memory, as it would be read back.  Raises `FormatError`.

    `known` is a document that is so already; fields that are the same there are taken from it.
    """
    return _settled(values.sharing(doc, known), known, fields.TAPFILE)


def _settled(doc: Mapping[str, Any], known: Mapping[str, Any], spec: Any) -> dict[str, Any]:
    try:
        return fields.settle_changed(doc, spec, known=known)
    except FaultError as fault:
        raise _error("document", fault) from fault


def render(
    doc: Mapping[str, Any], *, fmt: Format = "yaml", known: Mapping[str, Any] = _NONE
) -> bytes:
    """The document as bytes, the same for the same document; `parse` gives it back.

    Keys keep their order.  YAML of a document with `tapstore.rev` and `tapstore.write_id` ends in
    the trailer that `certified` looks at.  `known` is a document that was rendered before: fields
    that are shared with it, the very same objects, are not looked at again.

    Raises `FormatError` for what neither syntax holds.
    """
    content = render_again(_settled(doc, known, None), fmt=fmt)
    # Together, what is known and what is new may be too many values; each takes a byte or more.
    if known and len(content) > fields.MAX_NODES:
        _settled(doc, _NONE, None)
    return content


def prepare(fmt: Format) -> None:
    """Do now what the first `render` of a process takes long for."""
    if fmt == "yaml":
        render({})


def render_again(doc: dict[str, Any], *, fmt: Format, header: str = HEADER) -> bytes:
    """`render`, without another look at the values of a document that was rendered before.

    `header`: the comment at the start; JSON has no room for one.
    """
    if fmt == "json":
        return msgspec.json.format(msgspec.json.encode(doc), indent=2) + b"\n"
    # Imported here: its patterns take a tenth of the start of a command that only reads.
    from tapstore.tapfile import yaml_write

    body = (header + yaml_write.write(doc)).encode()
    named = _named_by(doc.get("tapstore"))
    if named is None:
        return body
    sealed = body + f"# tapstore: {named}".encode()
    return b"".join((sealed, _SEAL, hashlib.sha256(sealed).hexdigest().encode(), b"\n"))


def check_size(doc: Mapping[str, Any], content: bytes, *, fmt: Format) -> None:
    """Raise `FormatError` if `doc`, which is `content` in JSON, could not be read back as `fmt`."""
    size = len(content)
    # A delete character takes 1 byte in JSON and 4 in YAML; nothing grows more.
    if size > MAX_BYTES // 5 and fmt == "yaml":
        size = max(size, len(render(doc, fmt=fmt)))
    check_bytes(size)


def check_bytes(size: int) -> None:
    """Raise `FormatError` if a Tapfile of so many bytes could not be read back."""
    if size > MAX_BYTES:
        raise FormatError(
            f"the Tapfile would have {size:,} bytes, and at most {MAX_BYTES:,} are read; large "
            "values belong into artifacts"
        )


def _named_by(stamp: Any) -> str | None:
    if not isinstance(stamp, dict):
        return None
    rev, write_id = stamp.get("rev"), stamp.get("write_id")
    if type(rev) is not int or rev < 0 or type(write_id) is not str:
        return None
    return f"rev={rev} write_id={write_id}" if _WRITE_ID.fullmatch(write_id) else None


def certified(data: bytes) -> tuple[int, str] | None:
    """`(rev, write_id)` if `data` is byte for byte the YAML that `render` made for them, else None.

    Costs a hash.  None says only "look": an edit, another program's rewrite, line ends that git
    converted, a document without a stamp.  JSON has no room for a trailer, so it is always None:
    compare with `render(…, fmt="json")` of the revision that it names.
    """
    match = _TRAILER.fullmatch(data, data.rfind(b"\n", 0, -1) + 1)
    if match is None:
        return None
    rev, write_id, digest = match.groups()
    sealed = memoryview(data)[: match.start(3) - len(_SEAL)]
    if hashlib.sha256(sealed).hexdigest().encode() != digest:
        return None
    return int(rev), write_id.decode()
