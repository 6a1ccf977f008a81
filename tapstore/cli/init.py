"""`tapstore init`: make a session."""

from __future__ import annotations

import os
from typing import Any, Literal

import click

from tapstore.cli.invocation import Invocation, agent_option, options_of_init
from tapstore.cli.params import assignment, duration, json_or_text, size
from tapstore.cli.views import slot_value
from tapstore.keys import mask_url, shell_word


def _role(value: str) -> tuple[str, int]:
    name, colon, count = value.rpartition(":")
    if not colon or not count.isdecimal():
        return value, 1
    if not 1 <= int(count) <= 1000:
        raise click.BadParameter(f"{value!r} has {count} slots; 1 to 1000 are possible")
    return name, int(count)


@click.command()
@options_of_init
@agent_option
@click.option(
    "-r",
    "--role",
    "roles",
    type=_role,
    multiple=True,
    metavar="ROLE[:N]",
    help="A role, with N slots (1).  Repeatable.",
)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    metavar="PHASE",
    help="The phase to begin in.  Repeated, the phases that are allowed, in order.",
)
@click.option("--id", "session_id", help="The session's id.  [default: the last part of the URL]")
@click.option(
    "--schema", type=click.File("rb"), help="A JSON Schema that every revision must also meet."
)
@click.option(
    "--set",
    "fields",
    type=assignment,
    multiple=True,
    metavar="FIELD=VALUE",
    help="A further field of the Tapfile; the value may be JSON.  Repeatable.",
)
@click.option(
    "--format",
    "tapfile_format",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="What the Tapfile is written in; both are read.",
)
@click.option(
    "--ttl",
    type=duration,
    default=60.0,
    metavar="DURATION",
    help="A claim without a heartbeat for so long is stale.  [default: 60 s]",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="After so many stale claims in a row a role has failed; 0: never.",
)
@click.option(
    "--locks",
    metavar="SERVICE",
    help="What keeps named locks: o_excl or store (in the session itself), or a URL such as "
    "redis://host:6379/0.  [default: $TAPSTORE_LOCKS, else what is configured, else store where "
    "the place can compare, else o_excl]",
)
@click.option(
    "--artifacts",
    metavar="URL",
    help="Another place for the bytes of artifacts: a URL or folder that all agents reach.  "
    "[default: in the session]",
)
@click.option(
    "--artifacts-above",
    type=size,
    metavar="SIZE",
    help="Only those of artifacts that are larger go there (10MB, 64MiB).  [default: all]",
)
@click.option(
    "--accept",
    type=click.Choice(["lock-only"]),
    help="On a place that ignores conditions, with a lock service outside of it: a writer that "
    "is stopped in the middle of a write may undo what others committed meanwhile.",
)
@click.option(
    "--foreign/--no-foreign",
    default=None,
    help="Whether programs may edit the Tapfile themselves.  [default: where it is a file]",
)
@click.option(
    "--no-notify", is_flag=True, help="Drop no signal file into consumers' inboxes on completion."
)
@click.pass_obj
def init(
    invocation: Invocation,
    roles: tuple[tuple[str, int], ...],
    phases: tuple[str, ...],
    session_id: str | None,
    schema: Any,
    fields: tuple[tuple[str, str], ...],
    tapfile_format: Literal["yaml", "json"],
    ttl: float,
    max_attempts: int,
    locks: str | None,
    artifacts: str | None,
    artifacts_above: int | None,
    accept: Literal["lock-only"] | None,
    foreign: bool | None,
    no_notify: bool,
) -> None:
    """Make a session: at the place given with -w, else right here.

    \b
    tapstore init -w /mnt/shared/review-42 --role coder --role reviewer:2
    """  # fmt: skip
    from tapstore.sessions.opening import create

    url = invocation.given_url or os.getcwd()
    setting = invocation.settings.get("locks")
    with invocation.configured(url) as options:
        session = create(
            url,
            storage_options=options,
            roles=[name for name, count in roles for _ in range(count)],
            phase=phases[0] if phases else "",
            phases=phases if len(phases) > 1 else (),
            session_id=session_id,
            tapfile_format=tapfile_format,
            locks=locks or (setting.value if setting else None),
            artifacts=artifacts,
            artifacts_above=artifacts_above,
            artifact_options=invocation.artifact_options,
            accept=accept,
            foreign=foreign,
            claim_ttl=ttl,
            max_attempts=max_attempts,
            notify_consumers=not no_notify,
            schema=None if schema is None else schema.read(),
            fields={name: json_or_text(value) for name, value in fields},
            by=invocation.agent,
        )
    with session:
        tapfile = session.tapfile
        url = mask_url(session.url)
        slots = ", ".join(p.label for p in tapfile.participants) or "none"
        invocation.answer(
            {
                "session_id": session.id,
                "url": url,
                "phase": tapfile.current_phase,
                "slots": [slot_value(p) for p in tapfile.participants],
            },
            f"session {session.id} at {url}",
            f"roles: {slots}",
        )
        if not tapfile.participants:
            invocation.note("nobody can claim anything yet: `tapstore edit` adds participants")
        elif invocation.url:
            invocation.note(f"next: export TAPSTORE_URL={shell_word(url)}")
