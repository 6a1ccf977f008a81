"""`tapstore handoff install-scripts`: the original scripts' names, for agents that know these.

Each is a little POSIX shell that becomes the `tapstore` of the Python that wrote it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from tapstore.cli.invocation import Invocation, common_options
from tapstore.errors import AlreadyExistsError
from tapstore.keys import shell_word

MARK = "# Written by `tapstore handoff install-scripts`; written again by the next one."

_AGENT = {
    "swarm_handoff.sh": "send",
    "ready_for_next.sh": "next",
    "ready_for_next_task.sh": "next --mode task",
    "ready_for_next_batch.sh": "next --mode batch",
    "done_with_current.sh": "done",
    "done_with_current_task.sh": "done --mode task",
    "done_with_current_batch.sh": "done --mode batch",
}

# Called with the folder of the project; the launcher starts the daemon under its original name.
_DAEMON = {
    "handoffd": "deliver --watch",
    "handoffd.bb": "deliver --watch",
    "stop_handoff_daemon.sh": "deliver --stop",
}


def shims(python: str, *, swarm: bool = True) -> Mapping[str, str]:
    """Name and text of each script.  Without `swarm` they are for whatever the caller's
    environment names, and there is no daemon's."""
    tapstore = f"{shell_word(python)} -m tapstore handoff"
    here = " --swarm ." if swarm else ""
    found = {name: f'exec {tapstore} {command}{here} "$@"' for name, command in _AGENT.items()}
    usage = f"swarm_handoff.sh <draft-file>\n\n{_draft_formats()}"
    found["swarm_handoff.sh"] = _needing(usage, found["swarm_handoff.sh"])
    if swarm:
        for name, command in _DAEMON.items():
            call = f'exec {tapstore} {command} --swarm "$@"'
            found[name] = _needing(f"{name} <project-root>", call)
    return {name: f"#!/bin/sh\n{MARK}\n{text}\n" for name, text in found.items()}


def _needing(usage: str, text: str) -> str:
    """A script that says how to use it when it is called with nothing."""
    return f"if [ $# -eq 0 ]; then\ncat >&2 <<'END'\nUsage: {usage}\nEND\nexit 1\nfi\n{text}"


def _draft_formats() -> str:
    from tapstore.handoffs import types

    forms = "\n\n".join(each.form() for each in types.built_in().values())
    return f"Draft formats:\n\n{forms}"


@click.command("install-scripts")
@common_options
@click.argument("folder", metavar="DIR")
@click.option("--force", is_flag=True, help="Replace scripts that this command did not write.")
@click.option(
    "--session",
    is_flag=True,
    help="For agents of a session, which their environment names, instead of a swarm.",
)
@click.pass_obj
def install_scripts(invocation: Invocation, folder: str, force: bool, session: bool) -> None:
    """Write scripts with the original names (swarm_handoff.sh, ready_for_next.sh, …) into DIR.

    Agents whose prompts name these scripts then use tapstore, beside agents that use the
    originals.
    """
    target = Path(folder)
    texts = shims(sys.executable, swarm=not session)
    if not force:
        _refuse_foreign(target, texts)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        _write(target / name, text)
    invocation.answer(
        {"folder": str(target), "scripts": sorted(texts)},
        *(str(target / name) for name in sorted(texts)),
    )


def _refuse_foreign(target: Path, texts: Mapping[str, str]) -> None:
    """Before anything is written."""
    foreign = [name for name in sorted(texts) if not _is_ours(target / name)]
    if foreign:
        raise AlreadyExistsError(
            f"{target} has {', '.join(foreign)}, which this command did not write: give another "
            "folder, or --force to replace them"
        )


def _is_ours(path: Path) -> bool:
    """Whether it may be replaced: there is nothing, or a file of ours."""
    try:
        with open(path, "rb") as stream:
            return stream.read(400).split(b"\n")[1:2] == [MARK.encode()]
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    """Whole, by a rename: an agent may be starting it just now."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o777 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
