"""A definition file as a `Definition`, or everything that is wrong with it, with its place.

The structure is held against the shipped JSON Schema, the one that editors use; then names are
looked up, durations, schemas, actions and expressions read.  Whether the protocol makes sense is
for `check`.
"""

from __future__ import annotations

import pkgutil
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from tapstore.protocols import declarations
from tapstore.protocols.expressions import suggestion
from tapstore.protocols.findings import MAX_FINDINGS, Finding, Path
from tapstore.protocols.model import Definition
from tapstore.protocols.source import Source, UnreadableError
from tapstore.tapfile import schema as schemas
from tapstore.tapfile.fields import shorten

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


class Loaded:
    """What became of one file: the definition, unless there are findings that are errors."""

    def __init__(self, data: bytes) -> None:
        """Raises `BackendNotInstalledError` where the CEL library is missing; nothing else."""
        self.definition: Definition | None = None
        self.source: Source | None = None
        self.findings: list[Finding] = []
        self.trees: declarations.Trees = {}
        try:
            self.source = Source(data)
        except UnreadableError as exc:
            self.findings = [exc.finding]
            return
        self.findings = _structure(self.source)
        if not self.findings:
            reader = declarations.Reader(self.source)
            definition = None
            with suppress(declarations.EnoughError):
                definition = reader.definition()
            self.findings = reader.findings
            self.trees = reader.trees
            if not self.findings:
                self.definition = definition
        self.findings = sorted(self.findings, key=_place)[:MAX_FINDINGS]


def _place(finding: Finding) -> tuple[int, int, str]:
    return finding.line, finding.column, finding.code


def schema_bytes() -> bytes:
    """The JSON Schema of a definition, for editors."""
    data = pkgutil.get_data("tapstore.protocols", "protocol.schema.json")
    assert data is not None
    return data


@cache
def _shipped() -> tuple[Any, dict[str, Any]]:
    schema = msgspec.json.decode(schema_bytes())
    return schemas.compiled(schema), schema


def _structure(source: Source) -> list[Finding]:
    validator, schema = _shipped()
    if not isinstance(source.value, dict):
        line, column = source.locate(())
        reason = "it is no mapping of fields; it begins with 'protocol_id: …' and 'version: …'"
        return [Finding("malformed", reason, (), line, column)]
    found: dict[Finding, None] = {}
    for number, fault in enumerate(validator.iter_errors(source.value)):
        if number >= MAX_FINDINGS:
            break
        path, message = _described(fault, schema)
        line, column = source.locate(path)
        found[Finding("malformed", message, path, line, column)] = None
    return list(found)


def _described(fault: ValidationError, schema: dict[str, Any]) -> tuple[Path, str]:
    path: Path = tuple(fault.instance_path)
    kind = fault.kind.name
    if kind == "additionalProperties":
        unexpected = sorted(fault.kind.as_dict()["unexpected"])
        there = _rule(schema, list(fault.schema_path[:-1])).get("properties", {})
        about = "; ".join(
            f"there is no key {shorten(name)} here, {suggestion(name, there)}"
            for name in unexpected[:5]
        )
        return (*path, unexpected[0]), about
    if kind == "propertyNames":
        return path, f"a constraint of this type has other keys: {fault.message[:300]}"
    return path, schemas.describe(fault, schema)


def _rule(schema: Any, path: list[str | int]) -> dict[str, Any]:
    for step in path:
        schema = schema[step]
    assert isinstance(schema, dict)
    return schema
