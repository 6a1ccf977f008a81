"""`tapstore protocol`: whether a declared protocol makes sense, and its schema for editors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.errors import FormatError, NotFoundError

if TYPE_CHECKING:
    from tapstore.protocols.check import Report
    from tapstore.protocols.findings import Finding


@click.group(no_args_is_help=False)
@common_options
def protocol() -> None:
    """Check protocols between agents, which are declared in YAML."""


@protocol.command()
@common_options
@click.option("--strict", is_flag=True, help="Exit with 7 for warnings, too.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.pass_context
def check(ctx: click.Context, strict: bool, files: tuple[str, ...]) -> None:
    """Check the protocols that are declared in each FILE.

    Finds states that cannot be reached or left, waits without a deadline, names and fields that
    are not declared, guards that are never or always true, transitions that can both be taken,
    and more; FILE may be - for standard input.  Nothing is run.

    Exits with 7 if there is an error.
    """
    from tapstore.protocols.check import examine

    invocation: Invocation = ctx.obj
    broken = False
    for file in files:
        report = examine(_read(file))
        broken |= bool(report.findings if strict else report.errors)
        if invocation.as_json:
            console.emit(_value(file, report))
        else:
            console.say(*_lines(file, report))
    if broken:
        ctx.exit(FormatError.exit_code)


@protocol.command()
@common_options
@click.pass_obj
def schema(invocation: Invocation) -> None:
    """Print the JSON Schema of a protocol, for editors."""
    from tapstore.protocols.loader import schema_bytes

    data = schema_bytes()
    if invocation.as_json:
        console.emit(msgspec.json.decode(data))
    else:
        sys.stdout.write(data.decode())
        sys.stdout.flush()


def _read(file: str) -> bytes:
    from tapstore.protocols.source import MAX_BYTES

    # One byte more than is read tells that there is more, and nothing large is held.
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with open(file, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise NotFoundError(f"there is no file {file}") from exc


def _value(file: str, report: Report) -> dict[str, Any]:
    definition = report.definition
    return {
        "file": file,
        "valid": not report.errors,
        "protocol_id": None if definition is None else definition.protocol_id,
        "version": None if definition is None else definition.version,
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "line": finding.line,
                "column": finding.column,
                "path": list(finding.path),
                "message": finding.message,
                "trace": list(finding.trace),
            }
            for finding in report.findings
        ],
    }


def _lines(file: str, report: Report) -> list[str]:
    lines = []
    for finding in report.findings:
        lines += _finding_lines(file, finding)
    if not report.findings and report.definition is not None:
        definition = report.definition
        lines.append(
            f"{file}: protocol {definition.protocol_id} {definition.version}: "
            f"{len(definition.states)} states, {len(definition.transitions)} transitions, "
            "no findings"
        )
    return lines


def _finding_lines(file: str, finding: Finding) -> list[str]:
    first, *rest = finding.message.split("\n")
    place = f"{file}:{finding.line}:{finding.column}"
    lines = [f"{place}: {finding.severity}: {first} [{finding.code}]"]
    lines += [f"    {line}" for line in rest]
    lines += [f"    after {step}" for step in finding.trace]
    return lines
