"""What an expression names: roles, message types, quorums, collected data and fields of contents.

Fields are followed through selections and loops as far as the schema tells; where it does not, all
is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tapstore.protocols import contents
from tapstore.protocols.expressions import HELPERS, suggestion
from tapstore.protocols.model import Expression
from tapstore.protocols.tree import Node

Add = Callable[[str, str, Expression, int], None]
"""Code, message, expression and offset within it."""

_KINDS = {"type": "message type", "role": "role", "constraint": "quorum"}


@dataclass(frozen=True, slots=True)
class References:
    """Everything that expressions of one protocol may name."""

    roles: tuple[str, ...]
    messages: Mapping[str, Any]
    """Their content schemas, as far as there are any."""
    quorums: tuple[str, ...]
    data: tuple[str, ...]
    add: Add

    def check(self, node: Node, expression: Expression, *, message: str | None) -> None:
        """Add a finding for each name that is not declared.

        `message`: the type whose content the variable `message` is, where it is one.
        """
        scope = {
            "message": self.messages.get(message) if message else None,
            "data": _closed(self.data),
        }
        self._schema(node, scope, expression)

    def _schema(self, node: Node, scope: Mapping[str, Any], expression: Expression) -> Any:
        """The schema of the value of `node`, or None; looks at all below it."""
        if node.kind == "name":
            return scope.get(node.text)
        if node.kind == "loop":
            return self._loop(node, scope, expression)
        below = [self._schema(child, scope, expression) for child in node.children]
        if node.kind in ("select", "has"):
            return self._field(node, below[0], expression)
        if node.kind == "call":
            return self._call(node, below, expression)
        return None

    def _loop(self, node: Node, scope: Mapping[str, Any], expression: Expression) -> Any:
        over, start, condition, step, result = node.children
        found = self._schema(over, scope, expression)
        self._schema(start, scope, expression)
        inner = {**scope, node.variable: contents.items(found), node.text: None}
        for each in (condition, step, result):
            self._schema(each, inner, expression)
        # What remains of a list by `filter` is the items themselves.
        return found if _is_filter(node) else None

    def _field(self, node: Node, schema: Any, expression: Expression) -> Any:
        self._check_field(schema, node.text, expression, node.offset)
        return contents.field(schema, node.text)

    def _check_field(self, schema: Any, name: str, expression: Expression, offset: int) -> None:
        there = contents.fields(schema)
        if there is not None and name not in there:
            self.add(
                "undeclared-field",
                f"there is no field {name!r}; {suggestion(name, there)}",
                expression,
                offset,
            )

    def _call(self, node: Node, below: list[Any], expression: Expression) -> Any:
        if node.text == "_[_]" and len(node.children) == 2:
            key = node.children[1]
            if key.kind == "constant" and isinstance(key.value, str):
                self._check_field(below[0], key.value, expression, node.offset)
                return contents.field(below[0], key.value)
            return contents.items(below[0])
        parameters = next(
            (
                [name for name, _ in helper.parameters]
                for helper in HELPERS
                if helper.name == node.text and len(helper.parameters) == len(node.children)
            ),
            (),
        )
        for parameter, given in zip(parameters, node.children, strict=False):
            if parameter in _KINDS:
                self._named(parameter, given, expression)
        if node.text == "messages" and node.children:
            return self._entries(node.children[0])
        return None

    def _named(self, parameter: str, given: Node, expression: Expression) -> None:
        kind = _KINDS[parameter]
        if given.kind != "constant" or not isinstance(given.value, str):
            self.add(
                "undeclared-name",
                f"the name of a {kind} has to stand here as a text, so that it can be checked",
                expression,
                given.offset,
            )
            return
        there = {
            "type": tuple(self.messages),
            "role": self.roles,
            "constraint": self.quorums,
        }[parameter]
        if given.value not in there:
            self.add(
                "undeclared-name",
                f"there is no {kind} {given.value[:60]!r}; {suggestion(given.value, there)}",
                expression,
                given.offset,
            )

    def _entries(self, given: Node) -> Any:
        schema = self.messages.get(given.value) if isinstance(given.value, str) else None
        entry = _closed(("type", "sender", "sender_role"))
        entry["properties"]["content"] = schema
        return {"items": entry}


def _is_filter(node: Node) -> bool:
    """Whether the loop keeps items as they are: it adds `[variable]` to what it has."""
    return any(
        each.kind == "list" and each.children == (Node("name", node.variable),)
        for each in node.children[3].walk()
    )


def _closed(names: tuple[str, ...]) -> dict[str, Any]:
    return {"properties": dict.fromkeys(names), "additionalProperties": False}
