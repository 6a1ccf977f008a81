"""A document as block YAML that reads back the same everywhere.

Looks like `yaml.dump(doc, default_flow_style=False, sort_keys=False, allow_unicode=True)`, one
line a scalar.  Written here and not by PyYAML because the bytes are part of the format (a view is
known by its hash, so they must not change with the version of a library), because commands that
only commit then never import yaml, and because it takes a sixth of the time of libyaml's emitter,
under the lock.

Quoted is everything that any YAML, 1.1 or 1.2, could take for something other than text.  No
anchors, no tags.  Expects what `fields.settle` lets through.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# Without invisible characters: spaces, line ends, marks of direction, byte order mark.
_BEYOND_ASCII = (
    "\xa1-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\ue000-\ufefe\uff00-\ufffd"
    "\U00010000-\U0010ffff"
)
_SAFE = rf"[\w./+@=,;(){_BEYOND_ASCII}-]"
_PLAIN = re.compile(rf"[A-Za-z_{_BEYOND_ASCII}]{_SAFE}*(?:[ :]{_SAFE}+)*", re.ASCII)
_SINGLE = re.compile(rf"[\x20-\x7e{_BEYOND_ASCII}]*")
_TO_ESCAPE = re.compile(rf'["\\]|[^\x20-\x7e{_BEYOND_ASCII}]')
_NOT_TEXT = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\0": "\\0", "\b": "\\b", "\t": "\\t", "\n": "\\n",
    "\r": "\\r", "\x1b": "\\e",
}  # fmt: skip
_LONGEST_SIMPLE_KEY = 128
"""YAML takes at most 1,024 bytes before a `:` without a `?` before them."""

_SHORT = 128
"""So many characters of a text are remembered: most of a document is there again in the next."""


def write(doc: dict[str, Any]) -> str:
    """The document as YAML text, ending in a line break."""
    if not doc:
        return "{}\n"
    lines: list[str] = []
    _block(doc, "", "", lines)
    lines.append("")
    return "\n".join(lines)


def _block(value: Any, first: str, pad: str, lines: list[str]) -> None:
    """Add the lines of a container that is not empty; `first` begins the first of them."""
    if type(value) is dict:
        for key, item in value.items():
            name = _text(key)
            if len(name) > _LONGEST_SIMPLE_KEY:
                lines.append(f"{first}? {name}")
                name, first = "", pad
            if type(item) is str:
                lines.append(f"{first}{name}: {_text(item)}")
            elif item and type(item) is dict:
                lines.append(f"{first}{name}:")
                _block(item, pad + "  ", pad + "  ", lines)
            elif item and type(item) is list:
                lines.append(f"{first}{name}:")
                _block(item, pad, pad, lines)
            else:
                lines.append(f"{first}{name}: {_other(item)}")
            first = pad
    else:
        for item in value:
            if type(item) is str:
                lines.append(f"{first}- {_text(item)}")
            elif item and type(item) in (dict, list):
                _block(item, f"{first}- ", pad + "  ", lines)
            else:
                lines.append(f"{first}- {_other(item)}")
            first = pad


def _text(value: str) -> str:
    return _short_text(value) if len(value) <= _SHORT else _quoted(value)


@lru_cache(4096)
def _short_text(value: str) -> str:
    return _quoted(value)


def _quoted(value: str) -> str:
    """The text, in quotes if it needs them."""
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    if _SINGLE.fullmatch(value):
        return "'" + value.replace("'", "''") + "'"
    return '"' + _TO_ESCAPE.sub(_escape, value) + '"'


def _other(value: Any) -> str:
    """A number, true, false, null or an empty container."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is float:
        text = repr(value)
        # YAML 1.1 takes 1e+16 for text: it wants the point.
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if type(value) is int:
        return str(value)
    return "{}" if type(value) is dict else "[]"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
