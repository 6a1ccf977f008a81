"""`tapstore validate`: whether what is stored is what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.errors import FormatError, NotFoundError, TapstoreError

if TYPE_CHECKING:
    from tapstore.sessions.artifactfiles import ArtifactFile
    from tapstore.sessions.session import Session


@click.command()
@common_options
@click.option("--artifacts", "deep", is_flag=True, help="Read all artifacts, and verify them.")
@click.pass_context
def validate(ctx: click.Context, deep: bool) -> None:
    """Check the Tapfile, the log and the artifacts.

    The Tapfile against its schemas, the log against itself, artifacts against their size.  With
    --artifacts their bytes are read and verified, too.  Prints everything that
    is wrong, and exits with 7 if anything is.  Changes nothing.
    """
    invocation: Invocation = ctx.obj
    session = invocation.open()
    findings = list(_findings(session, deep=deep))
    if invocation.as_json:
        console.emit({"session_id": session.id, "valid": not findings, "findings": findings})
    elif findings:
        console.say(*map(_line, findings))
    else:
        console.say(f"session {session.id} is valid")
    if findings:
        ctx.exit(FormatError.exit_code)


def _line(finding: dict[str, Any]) -> str:
    about, message = finding["about"], str(finding["message"])
    return message if message.startswith(about) else f"{about}: {message}"


def _findings(session: Session, *, deep: bool) -> Iterator[dict[str, Any]]:
    from tapstore.sessions import history

    for about, messages in (
        ("Tapfile", _tapfile(session)),
        ("log", history.verify(session.state.log)),
        ("artifact", _artifacts(session, deep=deep)),
    ):
        try:
            for message in messages:
                yield {"about": about, "message": message}
        except TapstoreError as exc:
            yield {"about": about, "message": str(exc)}


def _tapfile(session: Session) -> Iterator[str]:
    from tapstore.sessions import config
    from tapstore.tapfile import format, schema

    try:
        data = session.store.get(config.TAPFILE_KEY).data
    except NotFoundError:
        return  # not published yet, or not used here
    document = format.parse(data)
    schema.check(document)
    if session.config.has_schema:
        user = schema.UserSchema(session.store.get(session.config.schema_key).data)
        user.check(document)
    yield from ()


def _artifacts(session: Session, *, deep: bool) -> Iterator[str]:
    for artifact in session.state.peek().tapfile.artifacts:
        file = session.artifacts.of(artifact)
        try:
            if deep and (artifact.checksum or not file.is_external):
                _read_through(file)
            elif (size := file.stored_bytes()) is not None and artifact.size not in (None, size):
                yield (
                    f"{artifact.path} has {size} bytes, but was registered with "
                    f"{artifact.size}; restore it from a copy, or publish it again"
                )
        except NotFoundError:
            yield (
                f"{artifact.name} of phase {artifact.phase!r}: {artifact.path} is gone; restore it "
                "from a copy, or publish it again"
            )
        except TapstoreError as exc:
            yield str(exc)


def _read_through(file: ArtifactFile) -> None:
    from tapstore.artifacts.streams import CHUNK_BYTES

    with file.open() as stream:
        while stream.read(CHUNK_BYTES):
            pass
