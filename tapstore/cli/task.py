"""`tapstore task`: put tasks into an agent's inbox, and see what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.cli.params import assignment, json_or_text
from tapstore.errors import FormatError

if TYPE_CHECKING:
    from tapstore.tasks.standing import Seen


@click.group(no_args_is_help=False)
@common_options
def task() -> None:
    """Give a role something to do, or see what it has to do."""


@task.command()
@common_options
@click.argument("role")
@click.argument("requirement", required=False)
@click.option("--id", "task_id", help="Its task_id.  [default: the session's id]")
@click.option("--output", metavar="NAME", help="The artifact that the result is to be.")
@click.option("--output-path", metavar="PATH", help="Where in the session it is to lie.")
@click.option(
    "--set",
    "fields",
    type=assignment,
    multiple=True,
    metavar="FIELD=VALUE",
    help="A further field; the value may be JSON.  Repeatable.",
)
@click.option(
    "--root",
    metavar="URL",
    help="Drop it at a root instead: it goes to the session of that --id, which is made from the "
    "root's template if there is none.",
)
@click.option("--file", type=click.File("rb"), help="A JSON or YAML file with the fields; - too.")
@click.pass_obj
def send(
    invocation: Invocation,
    role: str,
    requirement: str | None,
    task_id: str | None,
    output: str | None,
    output_path: str | None,
    fields: tuple[tuple[str, str], ...],
    root: str | None,
    file: Any,
) -> None:
    """Drop a task into the inbox of ROLE; an agent that waits there wakes up.

    \b
    tapstore task send coder "sum of even squares" --output even.py
    """  # fmt: skip
    from tapstore.tapfile import format
    from tapstore.tasks import inbox

    invocation.check_root(root)
    document: dict[str, Any] = {}
    if file is not None:
        document = format.parse_plain(file.read(), name=file.name)
        if not isinstance(document, dict):
            raise FormatError(f"{file.name}: a task is a mapping of fields")
    given = {
        "task_id": task_id,
        "requirement": requirement,
        "output_artifact_name": output,
        "output_path": output_path,
    }
    document |= {name: value for name, value in given.items() if value is not None}
    document |= {name: json_or_text(value) for name, value in fields}
    if not document:
        raise click.UsageError("what is to be done? Give a REQUIREMENT, --file, or --set")
    if root is not None:
        if not (document.get("task_id") or document.get("session_id")):
            raise click.UsageError(
                "a task at a root has to name its session: --id ID, or a session_id in --file"
            )
        from tapstore.roots.root import root as open_root

        with invocation.configured(root) as options:
            opened = open_root(
                root, storage_options=options, artifact_options=invocation.artifact_options
            )
        key = click.get_current_context().with_resource(opened).send(role, document)
    else:
        session = invocation.open()
        key = inbox.send(session.store, session.tapfile, role, document)
    invocation.answer({"role": role, "task": key}, key)


@task.command("list")
@common_options
@click.argument("role", required=False)
@click.pass_obj
def list_(invocation: Invocation, role: str | None) -> None:
    """Show the tasks in the inbox of ROLE, or of all roles, and how they stand."""
    from tapstore.tapfile.operations import find_slot
    from tapstore.tasks.inbox import Inbox
    from tapstore.tasks.standing import for_nobody

    session = invocation.open()
    tapfile = session.tapfile
    if role is not None:
        find_slot(tapfile, role)
    found = [
        (name, seen)
        for name in ([role] if role else tapfile.roles())
        for seen in Inbox(session.state, name).look()
    ]
    if role is None:
        found += for_nobody(session.store, tapfile)
    rows = [
        (
            name,
            "-" if seen.task is None else seen.task.id,
            seen.standing.value + (f" by {seen.agent}" if seen.agent else ""),
            seen.key,
            seen.reason or ("" if seen.task is None else seen.task.requirement),
        )
        for name, seen in found
    ]
    header = ("role", "task", "standing", "file", "")
    invocation.answer(
        {"session_id": session.id, "tasks": [_value(name, seen) for name, seen in found]},
        *(console.table(header, rows) if rows else ["no tasks"]),
    )


def _value(role: str, seen: Seen) -> dict[str, Any]:
    task = seen.task
    return {
        "role": role,
        "key": seen.key,
        "standing": seen.standing.value,
        "task_id": None if task is None else task.id,
        "requirement": None if task is None else task.requirement or None,
        "attempt": None if task is None else task.attempt,
        "agent": seen.agent or None,
        "reason": seen.reason or None,
    }
