"""Types of messages: their headers, as JSON Schema, and the bodies made of them.  Pure.

`git_handoff` and `note` are declared here as any session declares its own: plain data, which is
held to the rules before it is used.  Bodies are templates, so agents never write one.

A header's schema sees its text alone.  It is matched in linear time and refers to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tapstore.errors import FormatError
from tapstore.handoffs import references
from tapstore.handoffs.message import TIMES
from tapstore.tapfile.fields import shorten
from tapstore.tapfile.schema import UserSchema

RESERVED = ("id", "from", "role", "recipient", *TIMES)
"""What the tools write: no draft may have it.  Neither what begins with `tapstore`."""

COMMON = ("type", "to", "priority")
"""What each draft has."""

OPTIONAL: Mapping[str, str] = {
    "artifacts": references.FORM,
    "reply_to": "<id of a hand-off>",
    "correlation_id": "<id of the thread>",
}
"""What each draft may have, and its form."""

GIT_COMMIT = "git-commit"
"""The `format` of a header that names a commit: it is resolved and written in its one form."""

MAX_TYPES = 100
MAX_OWN_HEADERS = 50
MAX_BODY_CHARACTERS = 16 * 1024
MAX_SCHEMA_DEPTH = 20
MAX_SCHEMA_VALUES = 5_000

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_PIECE = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_-]*)\}|[{}]")
_REFERRING = ("$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id")
_FIELDS = ("name", "headers", "required", "adds", "body")

_DECLARED: tuple[Mapping[str, Any], ...] = (
    {
        "name": "git_handoff",
        "headers": {
            "task": {
                "title": "short-stable-task-name",
                "description": "a name of at most 80 characters, kept from hand-off to hand-off",
                "maxLength": 80,
            },
            "commit": {
                "title": "10-char-commit-abbrev",
                "description": "exactly 10 hexadecimal characters",
                "pattern": "^[0-9a-fA-F]{10}$",
                "format": GIT_COMMIT,
            },
        },
        "required": ["task", "commit"],
        "adds": {"role": "{from}"},
        "body": "Re-read your role and constitution.\n\nmerge_and_process {from} {commit}",
    },
    {
        "name": "note",
        "headers": {
            "message": {
                "title": "one line, max 80 chars",
                "description": "one line of at most 80 characters",
                "maxLength": 80,
            }
        },
        "required": ["message"],
        "body": "Re-read your role and constitution.\n\n{message}",
    },
)


@dataclass(frozen=True, slots=True)
class HeaderType:
    """One header that messages of a type have."""

    name: str
    required: bool
    title: str
    """Stands for the value where the form is shown."""

    description: str
    """What is valid, for people; may be empty."""

    max_length: int | None
    options: tuple[str, ...]
    """The only values, if it has so few; else empty."""

    is_commit: bool
    _schema: UserSchema = field(repr=False, compare=False)

    def fault(self, value: str) -> str | None:
        """Why it can't have this value, as the end of a sentence about it; or None."""
        try:
            self._schema.check(value)
        except FormatError:
            if self.max_length is not None and len(value) > self.max_length:
                return f"must be no longer than {self.max_length} characters; got {len(value)}"
            wanted = "must be " + (self.description or f"<{self.title}>")
            if self.options:
                wanted = f"must be one of {', '.join(self.options)}"
            return f"{wanted}; got {shorten(value)}"
        return None


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type of messages."""

    name: str
    headers: Mapping[str, HeaderType]
    adds: Mapping[str, str]
    """Headers that the tools add, as templates."""

    body: str
    """The template of the body."""

    def render_body(self, headers: Mapping[str, str]) -> str:
        """The body of a message with these headers; always ends in one line break."""
        return fill(self.body, headers).rstrip("\n") + "\n"

    def form(self) -> str:
        """How a draft of this type looks, for who has to write one."""
        lines = [f"type: {self.name}", "to: <role>[,<role>...]", "priority: NN"]
        for header in self.headers.values():
            value = "|".join(header.options) or f"<{header.title}>"
            lines.append(f"{header.name}: {value}{'' if header.required else '   (optional)'}")
        return "\n".join(lines)


def fill(template: str, headers: Mapping[str, str]) -> str:
    """The template with each `{header}` replaced by its value, once; `{{` and `}}` are braces.

    A header that is missing leaves nothing.  What is put in is not looked at again.
    """

    def replace(match: re.Match[str]) -> str:
        return headers.get(match[1], "") if match[1] else match[0][0]

    return _PIECE.sub(replace, template)


def parse(declaration: object, *, name: str = "message type") -> MessageType:
    """The type that a declaration (a mapping of plain data) describes.

    `name` and `body` are required; `headers` maps each header to a JSON Schema of its text,
    `required` lists some of them, `adds` maps headers to templates.  Raises `FormatError` with
    everything that is wrong.
    """
    if not isinstance(declaration, Mapping):
        raise FormatError(f"{name} is {shorten(declaration)}, not a mapping of {_either(_FIELDS)}")
    reading = _Reading()
    result = reading.type(declaration)
    if reading.faults or result is None:
        shown = "".join(f"\n- {fault}" for fault in dict.fromkeys(reading.faults))
        raise FormatError(f"{name} {shorten(declaration.get('name'))} is not valid:{shown}")
    return result


def catalogue(declarations: Iterable[object] = ()) -> Mapping[str, MessageType]:
    """The built-in types and those of a session, by name.  Raises `FormatError`."""
    types = dict(built_in())
    for number, declaration in enumerate(declarations):
        if number == MAX_TYPES:
            raise FormatError(f"a session declares at most {MAX_TYPES} message types")
        declared = parse(declaration, name=f"message type {number + 1}")
        if declared.name in types:
            raise FormatError(f"the message type {declared.name!r} is declared twice, or built in")
        types[declared.name] = declared
    return types


@cache
def built_in() -> Mapping[str, MessageType]:
    """`git_handoff` and `note`."""
    return {declared.name: declared for declared in map(parse, _DECLARED)}


class _Reading:
    """One declaration being read; faults are gathered."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def type(self, doc: Mapping[Any, Any]) -> MessageType | None:
        for key in doc:
            if key not in _FIELDS:
                self.faults.append(f"{shorten(key)} is no field; there are {_either(_FIELDS)}")
        name = doc.get("name")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            self.faults.append(f"its name is {shorten(name)}, {_WORD}")
            name = ""
        headers = self._headers(doc.get("headers", {}), self._required(doc.get("required", ())))
        known = {"from", *COMMON, *OPTIONAL, *headers}
        adds = self._adds(doc.get("adds", {}), headers, known)
        body = self._template("body", doc.get("body"), known, MAX_BODY_CHARACTERS)
        return None if self.faults else MessageType(name, headers, adds, body)

    def _required(self, given: object) -> tuple[str, ...]:
        if isinstance(given, list | tuple) and all(isinstance(item, str) for item in given):
            return tuple(given)
        self.faults.append(f"required is {shorten(given)}, not a list of headers")
        return ()

    def _headers(self, given: object, required: tuple[str, ...]) -> dict[str, HeaderType]:
        if not isinstance(given, Mapping) or len(given) > MAX_OWN_HEADERS:
            self.faults.append(
                f"headers is no mapping of at most {MAX_OWN_HEADERS} headers to JSON Schemas"
            )
            return {}
        headers = {}
        for name, schema in given.items():
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                self.faults.append(f"the header {shorten(name)} has {_WORD}")
            elif name in (*RESERVED, *COMMON, *OPTIONAL) or name.startswith("tapstore"):
                self.faults.append(f"the header {name!r} is reserved; choose another name")
            else:
                header = self._header(name, schema, name in required)
                if header is not None:
                    headers[name] = header
        for name in required:
            if name not in given:
                self.faults.append(f"required names {shorten(name)}, which is not in headers")
        return headers

    def _header(self, name: str, schema: object, required: bool) -> HeaderType | None:
        fault = _schema_fault(schema)
        if fault or not isinstance(schema, Mapping):
            self.faults.append(f"header {name!r}: {fault}")
            return None
        try:
            checked = UserSchema(schema, name=f"header {name!r}")
        except FormatError as exc:
            self.faults.append(str(exc))
            return None
        longest = schema.get("maxLength")
        title = schema.get("title")
        description = schema.get("description")
        options = schema.get("enum", ())
        return HeaderType(
            name=name,
            required=required,
            title=_line(title) or name,
            description=_line(description),
            max_length=int(longest) if longest is not None else None,
            options=tuple(map(_line, options)) if len(options) <= 20 else (),
            is_commit=schema.get("format") == GIT_COMMIT,
            _schema=checked,
        )

    def _adds(
        self, given: object, headers: Mapping[str, HeaderType], known: set[str]
    ) -> dict[str, str]:
        if not isinstance(given, Mapping) or len(given) > MAX_OWN_HEADERS:
            self.faults.append("adds is no mapping of headers to templates")
            return {}
        adds = {}
        for name, template in given.items():
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                self.faults.append(f"adds: {shorten(name)} is {_WORD}")
            elif (
                name in headers
                or name.startswith("tapstore")
                or (name != "role" and name in (*RESERVED, *COMMON, *OPTIONAL))
            ):
                self.faults.append(f"adds: the header {name!r} is written by somebody else")
            else:
                adds[name] = self._template(f"adds, {name}", template, known, 200)
                if _line(adds[name]) != adds[name]:
                    self.faults.append(f"adds, {name}: {shorten(template)} is not one line")
        return adds

    def _template(self, where: str, given: object, known: set[str], limit: int) -> str:
        if not isinstance(given, str) or not given.strip() or len(given) > limit:
            self.faults.append(f"{where} has to be text of 1 to {limit:,} characters")
            return ""
        if "\0" in given or not _is_unicode(given):
            self.faults.append(f"{where} contains NUL or half a character, so it is no text")
        for match in _PIECE.finditer(given):
            if match[0] in "{}":
                self.faults.append(f"{where}: a single {match[0]!r}; write it twice to mean itself")
            elif match[1] and match[1] not in known:
                self.faults.append(
                    f"{where}: {{{match[1][:60]}}} is no header; there are {_either(sorted(known))}"
                )
        return given


_WORD = "no name of 1 to 40 lower-case letters, digits, '_' and '-' that begins with a letter"


def _schema_fault(schema: object) -> str | None:
    """What keeps this from being a schema that surely ends and can be met by text."""
    if not isinstance(schema, Mapping):
        return f"its schema is {shorten(schema)}, not a mapping"
    if schema.get("type", "string") != "string":
        return f"its type is {shorten(schema['type'])}, but the values of headers are strings"
    # A value may be there many times, or contain itself: what is visited is what is counted.
    left = MAX_SCHEMA_VALUES
    waiting: list[tuple[object, int]] = [(schema, 1)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, Mapping):
            referring = next((key for key in _REFERRING if key in part), None)
            if referring:
                return f"its schema has {referring!r}, but a header's schema stands for itself"
            inner: Collection[object] = part.values()
        elif isinstance(part, list | tuple):
            inner = part
        else:
            continue
        left -= len(inner)
        if left < 0 or depth > MAX_SCHEMA_DEPTH:
            return (
                f"its schema has more than {MAX_SCHEMA_VALUES:,} values or {MAX_SCHEMA_DEPTH} "
                "levels"
            )
        waiting += [(item, depth + 1) for item in inner]
    return None


def _line(value: object) -> str:
    """Text that is put into messages to people: one printable line, cut."""
    text = value if isinstance(value, str) else ""
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _either(words: Iterable[str]) -> str:
    return ", ".join(words)
