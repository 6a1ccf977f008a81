"""`tapstore publish | fetch | artifacts`: bytes in and out."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

import click

from tapstore.cli.invocation import Invocation, agent_option, claim_option, common_options
from tapstore.cli.params import assignment, json_or_text
from tapstore.cli.progress import progress
from tapstore.cli.views import artifact_table, artifact_value
from tapstore.errors import AlreadyExistsError
from tapstore.tapfile.operations import consumes


@click.command()
@common_options
@agent_option
@claim_option
@click.argument("source", required=False, metavar="[FILE]")
@click.option("--as", "name", metavar="NAME", help="Its name.  [default: the file's]")
@click.option("--uri", help="Register bytes that lie elsewhere (s3://…, https://…); no copy.")
@click.option("--checksum", default="", metavar="sha256:HEX", help="What the bytes must have.")
@click.option("--type", "kind", default="", help="Such as code, report, data.")
@click.option(
    "--consumer",
    "--consumers",
    "consumers",
    multiple=True,
    metavar="ROLE|AGENT",
    help="Whom it is for.  Repeatable.",
)
@click.option("--phase", help="The phase that it belongs to.  [default: the present one]")
@click.option("--path", help="Where in the session it lies.  [default: artifacts/PHASE/NAME]")
@click.option("--media-type", default="", help="Such as text/x-python.")
@click.option(
    "--meta",
    type=assignment,
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata; the value may be JSON.  Repeatable.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace an artifact that another role has registered."
)
@click.pass_obj
def publish(
    invocation: Invocation,
    source: str | None,
    name: str | None,
    uri: str | None,
    checksum: str,
    kind: str,
    consumers: tuple[str, ...],
    phase: str | None,
    path: str | None,
    media_type: str,
    meta: tuple[tuple[str, str], ...],
    overwrite: bool,
) -> None:
    """Publish FILE as an artifact.

    FILE may be a directory, or - for standard input.  With a claim (TAPSTORE_CLAIM) it is
    published under that claim, else as an input from outside.

    \b
    tapstore publish code.py --type code --consumer reviewer
    make-report | tapstore publish - --as report.md --type report
    tapstore publish --uri s3://models/large.bin --as model --checksum sha256:…
    """  # fmt: skip
    if (source is None) == (uri is None):
        raise click.UsageError("name what to publish: a FILE, - for standard input, or --uri URI")
    if uri is not None and "://" not in uri:
        raise click.UsageError(f"{uri!r} is no URI; a file is named without --uri")
    if name is None:
        if source is None or source == "-":
            raise click.UsageError("standard input and URIs have no name of their own: --as NAME")
        name = os.path.basename(source.rstrip("/"))
    session = invocation.open()
    held = None if invocation.claim_id is None else invocation.claim(session)
    with progress(f"publishing {name}") as on_progress:
        artifact = session.publish(
            name,
            _source(source) if uri is None else uri,
            type=kind,
            consumers=consumers,
            producer="" if held is not None else invocation.agent,
            phase=phase,
            path=path,
            media_type=media_type,
            metadata={key: json_or_text(text) for key, text in meta},
            overwrite=overwrite,
            checksum=checksum,
            claim=held,
            on_progress=on_progress,
        )
    checksum = f" ({artifact.checksum})" if artifact.checksum else ""
    invocation.answer(
        {"session_id": session.id, "artifact": artifact_value(artifact)},
        f"published {artifact.name}: {artifact.path}{checksum}",
    )


def _source(source: str | None) -> Path | BinaryIO:
    # Not the text itself: a file may be named like a URI.
    return sys.stdin.buffer if source is None or source == "-" else Path(source)


@click.command()
@common_options
@click.argument("name")
@click.option("--phase", help="Of this phase.  [default: the one registered last]")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Write it there; - is standard output.  [default: its name, in this folder]",
)
@click.pass_obj
def fetch(invocation: Invocation, name: str, phase: str | None, output: str | None) -> None:
    """Copy the artifact NAME here, verified against its checksum.

    A file appears whole and verified or not at all.  On standard output the last part is held
    back until all is verified: what is wrong exits with 7.
    """
    session = invocation.open()
    found = session.artifacts[name if phase is None else (phase, name)]
    if output == "-":
        with found.open() as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        return
    inside = None
    if output is None:
        # The name was given by somebody else: it may neither lead out of this folder nor replace
        # what is here.
        output, inside = name, os.curdir
        if os.path.lexists(name):
            raise AlreadyExistsError(
                f"there is {name!r} in this folder already; -o PATH writes elsewhere or replaces"
            )
    with progress(f"fetching {name}") as on_progress:
        path = found.save(output, inside=inside, on_progress=on_progress)
    invocation.answer(
        {"session_id": session.id, "file": path, "artifact": artifact_value(found.artifact)}, path
    )


@click.command()
@common_options
@click.option("--phase", help="Only those of this phase.")
@click.option("--type", "kind", help="Only those of this type.")
@click.option("--for", "consumer", metavar="ROLE|AGENT", help="Only those that name this consumer.")
@click.pass_obj
def artifacts(
    invocation: Invocation, phase: str | None, kind: str | None, consumer: str | None
) -> None:
    """List the registered artifacts."""
    session = invocation.open()
    found = [
        a
        for a in session.tapfile.artifacts
        if phase in (None, a.phase)
        and kind in (None, a.type)
        and (consumer is None or consumes(a, role=consumer, agent=consumer))
    ]
    invocation.answer(
        {"session_id": session.id, "artifacts": [artifact_value(a) for a in found]},
        *(artifact_table(found) if found else ["no artifacts"]),
    )
