"""The commands by name, loaded when they are asked for, and what the process exits with.

A result goes to standard output.  An error goes to standard error and says what, where, what
would have been valid and which command helps; its exit code is that of its class.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from tapstore import __version__
from tapstore.cli.invocation import Invocation, common_options
from tapstore.errors import StoreError, TapstoreError

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""

BROKEN_PIPE = 141
"""128 + SIGPIPE: whoever read our output has gone, as in `tapstore log | head`."""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Sessions": {
        "init": "init",
        "status": "status",
        "log": "log",
        "watch": "watch",
        "wait": "waiting",
        "signal": "waiting",
        "phase": "steering",
        "edit": "edit",
        "validate": "validate",
        "gc": "gc",
    },
    "Work": {
        "claim": "claiming",
        "heartbeat": "claiming",
        "complete": "claiming",
        "fail": "claiming",
        "release": "claiming",
        "reopen": "steering",
        "reset": "steering",
        "watchdog": "watchdog",
    },
    "Artifacts": {
        "publish": "artifacts",
        "fetch": "artifacts",
        "artifacts": "artifacts",
    },
    "Agents": {
        "agent": "agent",
        "logs": "log",
        "task": "task",
        "handoff": "handoff",
        "protocol": "protocol",
        "lock": "locks",
        "locks": "locks",
        "config": "config",
        "doctor": "doctor",
        "demo": "demo",
    },
}
"""By section: the name of each command, and the module of `tapstore.cli` that has it."""

_MODULES = {name: module for section in COMMANDS.values() for name, module in section.items()}


class LazyGroup(click.Group):
    """Imports a command's module when that command is called, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_MODULES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        name: str,
    ) -> click.Command | None:
        if name not in _MODULES:
            return None
        module = import_module(f"tapstore.cli.{_MODULES[name]}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _MODULES and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, _MODULES, n=3, cutoff=0.5)
            advice = f"did you mean {' or '.join(close)}?" if close else "see `tapstore --help`"
            raise click.UsageError(f"there is no command {name!r}; {advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            rows = []
            for name in commands:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((name, command.get_short_help_str(formatter.width)))
            with formatter.section(title):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tapstore", message="%(prog)s %(version)s")
@common_options
@click.pass_context
def tapstore(ctx: click.Context) -> None:
    """Let agents that share nothing but a place to put files work together safely.

    A session is a folder (or bucket prefix) with roles that agents claim, artifacts that they
    publish, and a log of all that happened.  Begin with `tapstore init`, or see it at work with
    `tapstore demo`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(click.UsageError.exit_code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns what to exit with."""
    # None is what the interpreter leaves where a stream was closed (`>&-`): nobody wants to see it.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that the terminal's encoding lacks must not end the command that prints it.
            stream.reconfigure(errors="backslashreplace")
    invocation = Invocation(as_json=_wants_json(arguments))
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: invocation.warn(
            type(message).__name__, str(message)
        )
        return _run(arguments, invocation)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Known before the options are parsed: what is wrong with them is an error, too."""
    ours = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    return "--json" in ours


def _run(arguments: Sequence[str], invocation: Invocation) -> int:
    try:
        with tapstore.make_context("tapstore", list(arguments), obj=invocation) as ctx:
            tapstore.invoke(ctx)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.UsageError as exc:
        return _fail(invocation, "UsageError", _usage(exc, invocation), exc.exit_code)
    except click.ClickException as exc:
        return _fail(invocation, type(exc).__name__, exc.format_message(), exc.exit_code)
    except (KeyboardInterrupt, EOFError, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Else the interpreter would try again, and complain, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except TapstoreError as exc:
        return _fail(invocation, type(exc).__name__, str(exc), exc.exit_code)
    except OSError as exc:
        return _fail(invocation, type(exc).__name__, str(exc), StoreError.exit_code)


def _usage(exc: click.UsageError, invocation: Invocation) -> str:
    message = exc.format_message()
    if exc.ctx is None or invocation.as_json:
        return message
    usage = exc.ctx.get_usage().removeprefix("Usage: ")
    return f"{message}\nusage: {usage}\n`{exc.ctx.command_path} --help` explains"


def _fail(invocation: Invocation, kind: str, message: str, exit_code: int) -> int:
    invocation.complain(
        {"error": {"type": kind, "message": message, "exit_code": exit_code}},
        f"error: {message}",
    )
    return exit_code
