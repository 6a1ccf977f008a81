"""`tapstore gc`: show what nobody needs any more, and remove it when told to."""

from __future__ import annotations

from datetime import timedelta

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.params import duration


@click.command()
@common_options
@click.option(
    "--older-than",
    type=duration,
    default=86400.0,
    metavar="DURATION",
    help="Spare what is younger; 15m at least.  [default: 1d]",
)
@click.option(
    "--parked",
    multiple=True,
    metavar="NAME",
    help="Also this edit that was refused and set aside (`tapstore status` names them).  "
    "Repeatable.",
)
@click.option(
    "--yes/--dry-run", "really", default=False, help="Remove it.  [default: only show it]"
)
@click.pass_obj
def gc(invocation: Invocation, older_than: float, parked: tuple[str, ...], really: bool) -> None:
    """Show what crashes left behind, and remove it with --yes.

    Needed are the log, the newest revisions, and all artifacts that are registered or were until
    --older-than ago.
    """
    from tapstore.sessions import garbage

    session = invocation.open()
    age = timedelta(seconds=older_than)
    obstacle = session.artifact_places.why_not_collected()
    if obstacle:
        invocation.warn("ArtifactsNotCollected", obstacle)
    found = garbage.find(session, older_than=age, parked=parked)
    if really:
        found = garbage.remove(session, found, older_than=age)
    sizes = [0 if g.info is None else g.info.size for g in found]
    rows = [
        (
            g.kind,
            "-" if g.age_seconds is None else console.span(g.age_seconds),
            console.size(size),
            g.key,
        )
        for g, size in zip(found, sizes, strict=True)
    ]
    invocation.answer(
        {
            "session_id": session.id,
            "removed": really,
            "found": [
                {
                    "kind": g.kind,
                    "key": g.key,
                    "size": size,
                    "age_seconds": None if g.age_seconds is None else round(g.age_seconds),
                }
                for g, size in zip(found, sizes, strict=True)
            ],
        },
        *(console.table(("kind", "age", "size", "key"), rows) if rows else ["nothing to remove"]),
    )
    if found and not really:
        invocation.note(f"{console.size(sum(sizes))} in all; the same with --yes removes it")
    elif found:
        invocation.note(f"{console.size(sum(sizes))} in all were removed")
