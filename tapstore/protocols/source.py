"""The bytes of a definition as values, each with its line and column.

Read like a Tapfile: no guessing (`version: 1.0` is text), no tags, no merge keys, bounded depth
and aliases.  JSON is read, too, where it is YAML.  What the values mean is for `loader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tapstore.protocols.findings import Finding, Path
from tapstore.tapfile import yaml_read
from tapstore.tapfile.fields import TEXT, Each, FaultError, settle

MAX_BYTES = 1024 * 1024
MAX_REPEATED_CHARACTERS = 4 * MAX_BYTES
"""How much text there may be in all, with what aliases repeat: whoever copies it pays for each."""

_ACTION_TEXTS: Mapping[str, Any] = {"fail": TEXT, "send": TEXT, "bind": TEXT, "goto": TEXT}
_SPEC: Mapping[str, Any] = {
    "protocol_id": TEXT,
    "version": TEXT,
    "description": TEXT,
    "roles": Each({"id": TEXT, "description": TEXT, "capabilities": Each(TEXT)}),
    "message_types": Each({"type": TEXT, "sender_role": TEXT, "description": TEXT}),
    "states": Each({"id": TEXT, "description": TEXT, "accepts": Each(TEXT)}),
    "transitions": Each({"from": TEXT, "to": TEXT, "description": TEXT, "action": _ACTION_TEXTS}),
    "constraints": Each({"name": TEXT, "state": TEXT, "role": TEXT, "description": TEXT}),
    "events": Each({"name": TEXT, "description": TEXT}),
    "functions": Each({"name": TEXT, "description": TEXT}),
}
"""Where text belongs, whatever it looks like: a state may be called `no`, a version is `1.10`."""


class UnreadableError(Exception):
    """The bytes are no YAML that is read; `finding` says why and where."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Source:
    """One definition file that could be read."""

    def __init__(self, data: bytes) -> None:
        """Raises `UnreadableError`."""
        try:
            text = _decoded(data)
            raw, nodes = yaml_read.read(text)
            self.value: Any = settle(raw, _SPEC, nodes=nodes)
            _refuse_repeated_text(self.value)
        except FaultError as fault:
            path = tuple(reversed(fault.path))
            if fault.line == 0 and path:
                # A number that cannot be kept is known by its path alone.
                fault.line, fault.column = _locate(_composed(text), path)
            raise UnreadableError(
                Finding("unreadable", fault.reason, path, fault.line, fault.column)
            ) from fault
        self._lines = text.splitlines()
        # Depth, aliases and tags were looked at above; this keeps the marks.
        self._root = _composed(text)

    def locate(self, path: Path) -> tuple[int, int]:
        """Line and column, from 1, of the value; of its nearest container if it is not there."""
        return _locate(self._root, path)

    def locate_in(self, path: Path, text: str, line: int, column: int) -> tuple[int, int]:
        """The same for a character within a text, where the file has the text as it is."""
        at_line, at_column = self.locate(path)
        if 0 < at_line <= len(self._lines) and line == 1 and "\n" not in text:
            rest = self._lines[at_line - 1][at_column - 1 :]
            for quotes in (0, 1):
                if rest[quotes:].startswith(text):
                    return at_line, at_column + quotes + column - 1
        return at_line, at_column


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise FaultError(
            f"it has more than {MAX_BYTES:,} bytes, the most that is read", line=1, column=1
        )
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise FaultError(f"it is not UTF-8: {exc.reason}", line=line) from exc
    if not text.strip():
        raise FaultError("it is empty", line=1, column=1)
    return text


def _refuse_repeated_text(value: Any) -> None:
    left = MAX_REPEATED_CHARACTERS
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, dict):
            left -= sum(map(len, each))
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        if left < 0:
            raise FaultError("its aliases repeat too much text", line=1, column=1)


def _composed(text: str) -> yaml.Node | None:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    return node


def _locate(node: yaml.Node | None, path: Path) -> tuple[int, int]:
    if node is None:
        return 1, 1
    for step in path:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            found = next((value for key, value in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            found = node.value[step] if step < len(node.value) else None
        if found is None:
            break
        node = found
    return node.start_mark.line + 1, node.start_mark.column + 1
