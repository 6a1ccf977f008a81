"""Whether a document is a good Tapfile, and if not, everything that is wrong with it.

`check` holds a document against the JSON Schema that ships with tapstore (also useful for
editors); `UserSchema` against one that a session brings along for its own fields, phases, roles
or artifact types.  A fault says where, what stands there, and what would be valid.

What a schema cannot say (legal moves, paths that leave the session) is for `operations`.  A
user's schema is trusted to end: it cannot reach out to other files or the network, and its
patterns take linear time, but a chain of doubled references takes as long as it takes.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from tapstore.errors import FormatError
from tapstore.tapfile import format
from tapstore.tapfile.fields import place, shorten
from tapstore.tapfile.model import SUPPORTED_MAJOR, VERSION

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_LISTS = ("participants", "artifacts")
_NONE: Mapping[str, Any] = {}

MAX_SCHEMA_BYTES = 256 * 1024
MAX_FAULTS = 50

_MAJOR = re.compile(r"([0-9]{1,9})(\.|$)")
_TYPES = {
    "string": "text",
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def check(doc: Any, *, known: Mapping[str, Any] = _NONE, name: str = "Tapfile") -> None:
    """Raise `FormatError` with every fault of `doc`; a newer major version comes first.

    `known` is a document without faults: lists that are the very same objects there are not
    looked at again.
    """
    validator, schema = _shipped()
    checked = doc
    if isinstance(doc, dict):
        _check_version(doc.get("version"), name)
        # The schema says something of each of these, and nothing of other fields.
        checked = {field: doc[field] for field in schema["properties"] if field in doc}
        for field in _LISTS:
            if field in known and doc.get(field) is known[field]:
                checked[field] = []
    if not validator.is_valid(checked):
        raise _error(name, validator.iter_errors(doc), schema)


def prepare() -> None:
    """Do now what the first `check` of a process takes long for."""
    _shipped()


def _check_version(version: object, name: str) -> None:
    """A newer minor version only adds fields, and those are kept; a newer major is not ours."""
    match = _MAJOR.match(version) if isinstance(version, str) else None
    if match and int(match[1]) > SUPPORTED_MAJOR:
        raise FormatError(
            f"{name}, version: it has version {version}, and this tapstore reads up to "
            f"{SUPPORTED_MAJOR}.x (it writes {VERSION}); upgrade with `pip install --upgrade "
            "tapstore`, nothing was changed"
        )


@cache
def _shipped() -> tuple[Validator, dict[str, Any]]:
    data = pkgutil.get_data("tapstore.tapfile", "tapfile.schema.json")
    assert data is not None
    schema = msgspec.json.decode(data)
    return compiled(schema), schema


class UserSchema:
    """A JSON Schema for the additional rules of a session, ready to check documents with.

    Draft 2020-12, or the one that its `$schema` names.  Raises `FormatError` if it is not a valid
    schema, is too large, has a pattern that only a backtracking engine could match, or refers to
    anything outside itself.
    """

    def __init__(self, data: bytes | Mapping[str, Any], *, name: str = "schema") -> None:
        if not isinstance(data, bytes):
            data = format.render(data, fmt="json")
        if len(data) > MAX_SCHEMA_BYTES:
            raise FormatError(
                f"{name}: it has {len(data):,} bytes; at most {MAX_SCHEMA_BYTES:,} are read"
            )
        schema = format.parse_plain(data, name=name)
        if not isinstance(schema, dict):
            raise FormatError(f"{name}: a JSON Schema is a mapping, not {shorten(schema)}")
        self._name = name
        self._schema = schema
        self._validator = _compile_user(schema, name)

    def check(self, doc: Any, *, name: str = "Tapfile") -> None:
        """Raise `FormatError` with every fault of `doc`."""
        if not self._validator.is_valid(doc):
            faults = self._validator.iter_errors(doc)
            raise _error(f"{name}, by the session's {self._name}", faults, self._schema)


def _compile_user(schema: dict[str, Any], name: str) -> Validator:
    try:
        return compiled(schema)
    except ValueError as exc:
        # A ValidationError: of the schema against its meta-schema, or about a reference in it.
        path = place(getattr(exc, "instance_path", ()))
        about = getattr(exc, "message", str(exc))
        if about.endswith('is not a "regex"'):
            about += " that can be matched in linear time (no look-around, no back-references)"
        elif not path:
            about += "; a schema holds all that it refers to, under '$defs', and fetches nothing"
        raise FormatError(
            f"{name}{', ' if path else ''}{path}: it is no valid JSON Schema: {about}"
        ) from exc


def compiled(schema: dict[str, Any]) -> Validator:
    """A validator that fetches nothing and whose patterns take linear time.

    Raises ValueError for what is no valid schema.
    """
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        schema, retriever=_refuse_to_fetch, pattern_options=jsonschema_rs.RegexOptions()
    )


def _refuse_to_fetch(uri: str) -> Any:
    raise LookupError(f"{uri} is outside")


def _error(name: str, faults: Iterator[ValidationError], schema: dict[str, Any]) -> FormatError:
    lines = [describe(fault, schema) for fault in faults]
    # The same value can break several branches of a schema in the same way.
    lines = list(dict.fromkeys(lines))
    if len(lines) == 1:
        return FormatError(f"{name}: {lines[0]}")
    shown = "".join(f"\n- {line}" for line in lines[:MAX_FAULTS])
    if len(lines) > MAX_FAULTS:
        shown += f"\n- … and {len(lines) - MAX_FAULTS} more"
    return FormatError(f"{name}: {len(lines)} faults{shown}")


def describe(fault: ValidationError, schema: dict[str, Any]) -> str:
    """Where `fault` is, what stands there and what would be valid; `schema` says the latter."""
    kind = fault.kind.name
    path = list(fault.instance_path)
    rule: list[str | int] = list(fault.schema_path[:-1])
    if kind == "required":
        missing = fault.kind.as_dict()["property"]
        wanted = _description(schema, [*rule, "properties", missing])
        return f"{place([*path, missing])} is missing{_should_be(wanted)}"
    where = place(path) or "the document"
    value = shorten(fault.instance)
    wanted = _description(schema, rule)
    if kind == "type":
        types = sorted(fault.kind.as_dict()["types"], key="null".__eq__)
        expected = " or ".join(_TYPES.get(t, t) for t in types)
        return f"{where} is {value}, but must be {expected}{_should_be(wanted)}"
    if kind == "enum":
        options = ", ".join(shorten(option) for option in fault.kind.as_dict()["options"])
        return f"{where} is {value}, but must be one of {options}{_should_be(wanted)}"
    if kind in ("pattern", "minLength") and wanted:
        return f"{where} is {value}{_should_be(wanted)}"
    return f"{where} is {value}: {_cut(fault.message)}{_should_be(wanted)}"


def _should_be(wanted: str) -> str:
    return f"; valid is: {wanted}" if wanted else ""


def _description(schema: Any, path: Sequence[str | int]) -> str:
    """What the author of the schema says about the part that was broken."""
    for step in path:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return ""
    wanted = schema.get("description") if isinstance(schema, dict) else None
    return _cut(wanted) if isinstance(wanted, str) else ""


def _cut(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
