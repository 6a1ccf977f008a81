"""`tapstore agent`: make an agent of any command."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.cli.params import duration
from tapstore.cli.working import claim_worker, complaining, exit_code, handoff_worker
from tapstore.errors import WaitTimeoutError

if TYPE_CHECKING:
    from tapstore.agents.loop import Loop
    from tapstore.tasks.work import Need


@click.group(no_args_is_help=False)
@common_options
def agent() -> None:
    """Make an agent of any command, in any language."""


def _need(text: str) -> Need:
    from tapstore.tasks.work import Need

    try:
        return Need.parse(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _exit_codes(text: str | frozenset[int]) -> frozenset[int]:
    if isinstance(text, frozenset):
        return text
    codes = text.split(",")
    if not all(code.isdecimal() and int(code) < 256 for code in codes):
        raise click.BadParameter(f"{text!r} is no list of exit codes: write 0,1")
    return frozenset(map(int, codes))


_FOR_CLAIMS = ("root", "when_phase", "needs", "claim_phase", "then")


def _check_source(ctx: click.Context, *, handoffs: bool, batch: bool) -> None:
    """Refuse options that say nothing about where work is to come from."""
    if batch and not handoffs:
        raise click.UsageError("--batch is for hand-offs: add --handoffs")
    for name in _FOR_CLAIMS:
        if handoffs and ctx.params[name]:
            raise click.UsageError(
                f"--{name.replace('_', '-')} does not go with --handoffs, where nothing is "
                "claimed: leave one of them out"
            )


@agent.command()
@common_options
@agent_option
@click.option("--role", required=True, help="The role that it takes.")
@click.option(
    "--root",
    metavar="URL",
    help="Work in all sessions below this place, also in those made later, instead of one.",
)
@click.option(
    "--handoffs",
    is_flag=True,
    help="Work is the hand-offs of the role in the session; nothing is claimed.",
)
@click.option("--batch", is_flag=True, help="All hand-offs of the first one's priority at once.")
@click.option("--when-phase", metavar="PHASE", help="Only when the session is in this phase.")
@click.option(
    "--needs",
    type=_need,
    multiple=True,
    metavar="type=TYPE[:N]",
    help="Only when N artifacts (1) of this type are there; they are the inputs.  Repeatable.",
)
@click.option("--claim-phase", default="", metavar="PHASE", help="Phase to set with the claim.")
@click.option("--then", default="", metavar="PHASE", help="Phase to set on completion.")
@click.option(
    "--ok-exit",
    type=_exit_codes,
    default="0",
    show_default=True,
    metavar="CODES",
    help="Exit codes that complete the work, such as 0,1; others fail it.",
)
@click.option(
    "--chdir",
    is_flag=True,
    help="Run COMMAND in the folder of its inputs, so that it names them shortly.",
)
@click.option("--stdout-as", default="", metavar="NAME", help="Publish standard output as this.")
@click.option("--type", "kind", default="", help="Type of what it publishes.")
@click.option(
    "--consumer",
    "--consumers",
    "consumers",
    multiple=True,
    metavar="ROLE|AGENT",
    help="Whom what it publishes is for.  Repeatable.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace artifacts that another role has registered."
)
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="End the command after so long; its work has failed then.",
)
@click.option(
    "--ttl",
    type=duration,
    metavar="DURATION",
    help="If we die, others may take the work after so long.  [default: the session's]",
)
@click.option("--once", is_flag=True, help="Do one piece of work, and exit.")
@click.option(
    "--idle",
    type=duration,
    metavar="DURATION",
    help="Exit when there was no work for so long; 0 looks once.  [default: never]",
)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND [ARG]…")
@click.pass_context
def run(
    ctx: click.Context,
    role: str,
    root: str | None,
    handoffs: bool,
    batch: bool,
    when_phase: str | None,
    needs: tuple[Need, ...],
    claim_phase: str,
    then: str,
    ok_exit: frozenset[int],
    chdir: bool,
    stdout_as: str,
    kind: str,
    consumers: tuple[str, ...],
    overwrite: bool,
    timeout: float | None,
    ttl: float | None,
    once: bool,
    idle: float | None,
    command: tuple[str, ...],
) -> None:
    """Wait for work, claim it, and have COMMAND do it; again and again.

    Work is a task in the role's inbox, or a session in --when-phase that has all --needs, or,
    without these, an artifact that names the role as its consumer.

    COMMAND finds its inputs as files ({inputs} in its arguments), as JSON on standard input and
    in its environment (TAPSTORE_…).  What it leaves in $TAPSTORE_OUTPUT_DIR is published.  No
    shell is involved.

    \b
    tapstore agent run --role reviewer --when-phase awaiting_review --needs type=code \\
        --ok-exit 0,1 --stdout-as review.txt --then review_completed -- ruff check {inputs}

    With --handoffs COMMAND does the hand-offs of the role, one after the other: what it fails at
    is another attempt, then dead.  It sends with `tapstore handoff send`; `next` and `done` are
    ours.  Sessions only; in a folder of the original layout use `tapstore handoff next`.

    With --once it exits with 0 if the work was completed, with 1 if it failed or was given back,
    with 4 if there was none for --idle, and with 5 if it was lost to somebody else.
    """  # fmt: skip
    from tapstore.agents.command import CommandHandler
    from tapstore.agents.signals import stopping_on_signals
    from tapstore.agents.worker import AgentSpec
    from tapstore.tasks.work import WorkFilter

    invocation: Invocation = ctx.obj
    invocation.check_root(root)
    _check_source(ctx, handoffs=handoffs, batch=batch)
    try:
        handler = CommandHandler(
            argv=command,
            ok_exit=ok_exit,
            chdir=chdir,
            stdout_as=stdout_as,
            type=kind,
            consumers=consumers,
            timeout=timeout,
        )
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    worker: Loop[Any]
    if handoffs:
        worker, why = handoff_worker(
            invocation, handler, role=role, batch=batch, ttl=ttl, overwrite=overwrite
        )
    else:
        spec = AgentSpec(
            agent=invocation.agent,
            work=WorkFilter(role=role, when_phase=when_phase, needs=needs),
            claim_phase=claim_phase,
            then=then,
            ttl=ttl,
            overwrite=overwrite,
        )
        worker, why = claim_worker(ctx, handler, spec, root)

    with stopping_on_signals(worker) as came, complaining(invocation):
        outcome = None
        if idle != 0 and (missing := why()):
            invocation.note(f"{invocation.agent} waits for work as {role}: {missing}")
        if once:
            outcome = worker.run_once(wait=idle)
        else:
            worker.run(idle=idle)
    if came:
        ctx.exit(128 + signal.Signals[came[0]])
    if once and outcome is None:
        missing = why()
        raise WaitTimeoutError(f"no work for {idle:g} s{': ' if missing else ''}{missing}")
    if outcome is not None:
        ctx.exit(exit_code(outcome))
