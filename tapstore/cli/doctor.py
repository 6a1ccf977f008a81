"""`tapstore doctor`: what a place and a lock service really do, and what that means."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.params import duration
from tapstore.errors import SessionNotFoundError
from tapstore.keys import mask_url

if TYPE_CHECKING:
    from tapstore.types import Finding

_MARKS = {"ok": "ok", "note": "note", "warning": "WARNING", "fatal": "FATAL"}

_ACROSS = 100
"""Columns of a line; what is longer goes on in the next."""

_INDENT = 30


@click.command()
@common_options
@click.argument("url", required=False)
@click.option(
    "--locks",
    metavar="SERVICE",
    help="The lock service to try.  [default: that of the session there, else $TAPSTORE_LOCKS, "
    "else what is configured, else the one that suits]",
)
@click.option(
    "--accept",
    type=click.Choice(["lock-only"]),
    help="As in `tapstore init`: judge a place that ignores conditions with --locks alone.",
)
@click.option("--race", "with_race", is_flag=True, help="Have processes and threads race there.")
@click.option(
    "--peers",
    is_flag=True,
    help="Race with the same command on other machines, run at the same time.",
)
@click.option(
    "--wait",
    type=duration,
    default=60.0,
    metavar="DURATION",
    help="With --peers: for so long for the others.  [default: 60 s]",
)
@click.pass_context
def doctor(
    ctx: click.Context,
    url: str | None,
    locks: str | None,
    accept: Literal["lock-only"] | None,
    with_race: bool,
    peers: bool,
    wait: float,
) -> None:
    """Find out what a place and a lock service really do.

    Tries out what sessions need: conditions, visibility, permissions, clocks, speed.  Says what
    that means and what to change.  Writes small objects below the place, and removes them; no
    session is made or changed.
    """
    from tapstore.doctor import report
    from tapstore.doctor.examination import Examination

    invocation: Invocation = ctx.obj
    started = time.monotonic()
    url = url or _here(invocation)
    setting = invocation.settings.get("locks")
    with invocation.configured(url) as options:
        examination = Examination(
            url,
            locks=locks,
            configured_locks=setting.value if setting else None,
            accept=accept,
            with_race=with_race,
            peers_seconds=wait if peers else None,
            storage_options=options,
            artifact_options=invocation.artifact_options,
        )
    found: list[Finding] = []
    # Closed also when Ctrl-C comes while a line is printed: what was written is removed then.
    with closing(examination.findings()) as findings:
        for finding in findings:
            found.append(finding)
            if not invocation.as_json:
                console.say(*_lines(finding))
    code = report.exit_code(found)
    shown = mask_url(examination.url)
    summary = report.summary(found, shown, examination.suits or "")
    invocation.answer(
        {
            "url": shown,
            "session_id": examination.session_id,
            "verdict": report.verdict(found),
            "summary": summary,
            "suits": examination.suits,
            "capabilities": _capabilities(examination.capabilities),
            "findings": [report.as_value(finding) for finding in found],
            "seconds": round(time.monotonic() - started, 3),
            "exit_code": code,
        },
        "",
        summary,
    )
    ctx.exit(code)


def _here(invocation: Invocation) -> str:
    try:
        return invocation.find_url()
    except SessionNotFoundError:
        return os.getcwd()


def _capabilities(found: Any) -> dict[str, bool] | None:
    if found is None:
        return None
    return {
        name: getattr(found, name) for name in ("create", "update", "conditional_delete", "files")
    }


def _lines(finding: Finding) -> list[str]:
    first = f"{_MARKS[finding.severity]:8}{finding.probe:{_INDENT - 10}}  "
    texts = [finding.seen]
    if finding.severity != "ok":
        texts += [text for text in (finding.means, _change(finding)) if text]
    lines: list[str] = []
    for text in texts:
        lines += _wrapped(console.clean(text))
    return [(" " * _INDENT if number else first) + line for number, line in enumerate(lines)]


def _change(finding: Finding) -> str:
    return f"-> {finding.change}" if finding.change else ""


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, _ACROSS - _INDENT, break_long_words=False, break_on_hyphens=False
    ) or [""]
