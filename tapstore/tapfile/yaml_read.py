"""YAML as raw values for `fields.settle`: nothing is guessed, nothing is run.

Reads the events of libyaml (or, where PyYAML was built without it, of PyYAML's own parser), not
its values: so an unquoted `no`, `12:30` or `2024-04-15` stays the text that it is, depth and
aliases are bounded before anything is built, and the line of a fault is known.

Unquoted scalars mean what the YAML 1.2 core schema says, less what a YAML 1.1 library would have
written unquoted for a text (`017`, `0o17`, `1e3`, `1_000`).

It does not read tags, merge keys, or more than one document, and says so.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml
from yaml import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from tapstore.tapfile.fields import (
    MAX_DEPTH,
    MAX_NODES,
    FaultError,
    Unquoted,
    shorten,
    whole_number,
)

MAX_REPEATED = 10_000
"""How many values aliases may repeat in all.  Shared lists of real documents repeat dozens."""

_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_TAG_DIRECTIVES = re.compile("^%TAG|[\r\n\x85\u2028\u2029]%TAG")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_OPEN = object()
"""Value of an anchor whose own node has not ended."""


def read(text: str) -> tuple[Any, int]:
    """The raw value of the one document in `text`, and how many values it may settle to.

    Containers that an alias repeats are shared.  Raises `FaultError`.
    """
    _refuse_at_sight(text)
    try:
        return _Reader(text).document()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        about = f"{exc.problem or exc.context}"
        if exc.context and exc.problem:
            about += f" ({exc.context})"
        raise FaultError(
            f"it is no YAML: {about}",
            line=mark.line + 1 if mark else 0,
            column=mark.column + 1 if mark else 0,
        ) from exc
    except (yaml.YAMLError, ValueError, OverflowError) as exc:
        raise FaultError(f"it is no YAML: {exc}") from exc


def _refuse_at_sight(text: str) -> None:
    """What libyaml would report without a line, or take quadratic time for."""
    match = _UNPRINTABLE.search(text)
    if match:
        start = match.start()
        raise FaultError(
            f"it has the control character {match.group()!r}; write it escaped in double quotes",
            line=text.count("\n", 0, start) + 1,
            column=start - text.rfind("\n", 0, start),
        )
    # Each is compared with all before it.
    if len(_TAG_DIRECTIVES.findall(text)) > 8:
        raise FaultError("it has too many lines that begin with '%TAG'")


class _Reader:
    def __init__(self, text: str) -> None:
        self._next = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text).get_event
        self._anchors: dict[str | None, Any] = {}
        self._values = 0
        # One frame for each open container: what it is, its pending key, its anchor.
        self._container: Any = None
        self._key: str | None = None
        self._anchor: str | None = None
        self._stack: list[tuple[Any, str | None, str | None]] = []
        self._root: Any = None

    def document(self) -> tuple[Any, int]:
        try:
            self._read()
        except FaultError as fault:
            self._locate(fault)
            raise
        return self._root, self._values + MAX_REPEATED

    def _read(self) -> None:
        documents = 0
        while True:
            event = self._next()
            kind = type(event)
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent:
                self._open(event, {})
            elif kind is SequenceStartEvent:
                self._open(event, [])
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._close()
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise _fault(event, "a second YAML document begins; there may be only one")
            elif kind is StreamEndEvent:
                return

    def _scalar(self, event: ScalarEvent) -> None:
        _refuse_tag(event)
        plain = event.implicit[0]
        value: str | Unquoted = event.value
        if self._awaits_key():
            self._begin_key(event, event.value, plain)
        else:
            if plain:
                value = _resolve(event)
            self._add(value)
        if event.anchor is not None:
            self._anchors[event.anchor] = value

    def _awaits_key(self) -> bool:
        return self._key is None and type(self._container) is dict

    def _begin_key(self, event: ScalarEvent, key: str, plain: bool) -> None:
        if plain and key == "<<":
            raise _fault(event, "merge keys ('<<') are not read; write the fields out")
        if key in self._container:
            raise _fault(event, f"the key {shorten(key)} is there twice; remove one of the two")
        self._key = key

    def _open(self, event: MappingStartEvent | SequenceStartEvent, container: Any) -> None:
        _refuse_tag(event)
        if self._awaits_key():
            raise _fault(event, "a key is a list or a mapping; keys are text")
        if len(self._stack) >= MAX_DEPTH:
            raise _fault(event, f"it is nested deeper than {MAX_DEPTH} levels")
        if event.anchor is not None:
            self._anchors[event.anchor] = _OPEN
        self._stack.append((self._container, self._key, self._anchor))
        self._container, self._key, self._anchor = container, None, event.anchor

    def _close(self) -> None:
        value = self._container
        if self._anchor is not None:
            self._anchors[self._anchor] = value
        self._container, self._key, self._anchor = self._stack.pop()
        self._add(value)

    def _alias(self, event: AliasEvent) -> None:
        value = self._anchors.get(event.anchor)
        if value is None:
            raise _fault(event, f"nothing before it is named by the alias '*{event.anchor}'")
        if value is _OPEN:
            raise _fault(event, f"the alias '*{event.anchor}' repeats what it stands in")
        if self._awaits_key():
            raise _fault(event, "a key is an alias; write the key out")
        self._add(value)

    def _add(self, value: Any) -> None:
        self._values += 1
        if self._values > MAX_NODES:
            raise FaultError(f"it holds more than {MAX_NODES:,} values")
        container = self._container
        if type(container) is dict:
            container[self._key] = value
            self._key = None
        elif container is None:
            self._root = value
        else:
            container.append(value)

    def _locate(self, fault: FaultError) -> None:
        """Tell the fault the path to what was being read, innermost step first."""
        for container, key, _ in ((self._container, self._key, None), *reversed(self._stack)):
            if type(container) is list:
                fault.within(len(container))
            elif key is not None:
                fault.within(key)


def _refuse_tag(event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
    # "!" alone says only "do not guess": some libraries write it before a quoted text.
    if event.tag is not None and event.tag != "!":
        shown = shorten(event.tag.replace("tag:yaml.org,2002:", "!!", 1))
        raise _fault(
            event,
            f"the tag {shown} is not read; there may be text, numbers, true, "
            "false, null, lists and mappings, all without tags",
        )


def _resolve(event: ScalarEvent) -> str | Unquoted:
    """What an unquoted scalar is: text, or a literal."""
    text: str = event.value
    if text in _WORDS:
        return Unquoted(text, _WORDS[text], _line(event))
    if text[0] not in "+-.0123456789":
        return text
    value: int | float
    if _INTEGER.fullmatch(text):
        value = whole_number(text)
    elif _FLOAT.fullmatch(text):
        value = float(text)
    elif _NO_NUMBER.fullmatch(text):
        value = math.nan
    else:
        return text
    return Unquoted(text, value, _line(event))


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _fault(event: Event, reason: str) -> FaultError:
    mark = event.start_mark
    return FaultError(reason, line=_line(event), column=mark.column + 1 if mark else 0)
