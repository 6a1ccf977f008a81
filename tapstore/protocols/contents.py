"""Schemas of message contents: the short form made into JSON Schema, and fields looked up in it.

Short form: an object schema without `required` needs each of its properties but those that say
`optional: true`.  One with `required`, and all of a schema that names its `$schema`, is taken as
it is.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tapstore.protocols.findings import Path

_OPEN = {
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "not", "patternProperties",
    "dependentSchemas",
}  # fmt: skip
"""Keywords by which a schema may allow properties that it does not list."""
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLE = (
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")


class ShortFormError(Exception):
    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(reason)
        self.path = path


def to_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema that `schema` means.  Raises `ShortFormError`."""
    if "$schema" in schema:
        return dict(schema)
    if "optional" in schema:
        raise ShortFormError("`optional` belongs to a property, not to the whole", ("optional",))
    found = _converted(schema, ())
    assert isinstance(found, dict)
    return found


def _converted(schema: Any, path: Path) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key != "optional"}
    for key in _MAPPINGS:
        if isinstance(made.get(key), dict):
            made[key] = {n: _converted(s, (*path, key, n)) for n, s in made[key].items()}
    for key in _SINGLE:
        if key in made:
            made[key] = _converted(made[key], (*path, key))
    for key in _LISTS:
        if isinstance(made.get(key), list):
            made[key] = [_converted(s, (*path, key, i)) for i, s in enumerate(made[key])]
    properties = schema.get("properties")
    if isinstance(properties, dict):
        needed = list(_needed(properties, "required" in schema, (*path, "properties")))
        if "required" not in schema and needed:
            made["required"] = needed
    return made


def _needed(properties: Mapping[str, Any], listed: bool, path: Path) -> Iterator[str]:
    for name, schema in properties.items():
        optional = schema.get("optional", False) if isinstance(schema, dict) else False
        at = (*path, name, "optional")
        if not isinstance(optional, bool):
            raise ShortFormError("`optional` is true or false", at)
        if listed and optional:
            raise ShortFormError(
                "`optional` has no effect beside `required`; leave one of the two out", at
            )
        if not optional:
            yield name


def fields(schema: Any) -> tuple[str, ...] | None:
    """The properties that there can be; None where any may be, or that cannot be told."""
    if not isinstance(schema, dict) or _OPEN & schema.keys():
        return None
    if schema.get("additionalProperties", False) is not False:
        return None
    properties = schema.get("properties")
    return tuple(properties) if isinstance(properties, dict) else None


def field(schema: Any, name: str) -> Any:
    """The schema of a property; None where it is not known."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


def items(schema: Any) -> Any:
    """The schema of the items of a list; None where it is not known."""
    return schema.get("items") if isinstance(schema, dict) else None
