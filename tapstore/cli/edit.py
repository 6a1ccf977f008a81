"""`tapstore edit`: change fields of the Tapfile, by name or in an editor.

The same rules hold as for any other change.  What another commit changed while the editor was
open is not overwritten: the edit is refused, and its text is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tapstore.cli.console import clean
from tapstore.cli.invocation import Invocation, agent_option, common_options, reason_option
from tapstore.cli.params import assignment, json_or_text
from tapstore.errors import FormatError, NotFoundError, OutcomeUnknownError, TapstoreError

if TYPE_CHECKING:
    from tapstore.sessions.session import Session
    from tapstore.tapfile.changes import Change

_HEADER = """\
# The state of session {id}, revision {rev}.  Save and leave to apply what you change;
# change nothing to leave it as it is.
"""


@click.command()
@common_options
@agent_option
@click.option(
    "--set",
    "sets",
    type=assignment,
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field; the value may be JSON.  Repeatable.",
)
@click.option(
    "--append",
    "appends",
    type=assignment,
    multiple=True,
    metavar="FIELD=VALUE",
    help="Append to a list.  Repeatable.",
)
@click.option(
    "--unset", "unsets", multiple=True, metavar="FIELD", help="Remove a field.  Repeatable."
)
@reason_option
@click.pass_obj
def edit(
    invocation: Invocation,
    sets: tuple[tuple[str, str], ...],
    appends: tuple[tuple[str, str], ...],
    unsets: tuple[str, ...],
    reason: str,
) -> None:
    """Change fields of the Tapfile, by name or in an editor.

    Without options, $VISUAL or $EDITOR opens.  Fields are named by their path: participants by
    their slot, artifacts by their name; what contains a dot is quoted.

    \b
    tapstore edit --set participants.reviewer.agent_id=r2 --set priority=5
    tapstore edit --set 'artifacts."code.py".type=code' --unset notes.draft
    tapstore edit --append 'participants={"role": "tester", "status": "pending"}'
    """  # fmt: skip
    session = invocation.open()
    if sets or appends or unsets:

        def change(document: dict[str, Any]) -> None:
            _apply(document, sets, appends, unsets)

        changes = session.edit(change, by=invocation.agent, reason=reason)
    else:
        changes = _in_editor(session, invocation.agent, reason)
    invocation.answer(
        {"session_id": session.id, "changes": [_value(c) for c in changes]},
        *(map(_line, changes) if changes else ["nothing changed"]),
    )


def _value(change: Change) -> dict[str, Any]:
    from msgspec import UNSET

    value: dict[str, Any] = {"field": change.place}
    if change.append:
        return {**value, "append": list(change.append)}
    sides = {"old": change.old, "new": change.new}
    return {**value, **{side: at for side, at in sides.items() if at is not UNSET}}


def _line(change: Change) -> str:
    value = _value(change)
    if "append" in value:
        return f"{change.place}: appended {', '.join(map(repr, change.append))}"
    old, new = (repr(value[side]) if side in value else "(absent)" for side in ("old", "new"))
    return f"{change.place}: {old} -> {new}"


# By name


def _apply(
    document: dict[str, Any],
    sets: Sequence[tuple[str, str]],
    appends: Sequence[tuple[str, str]],
    unsets: Sequence[str],
) -> None:
    """Make the changes, and read the values as the Tapfile's own fields are read."""
    from tapstore.tapfile import fields

    for name, text in sets:
        parent, key = _locate(document, name, make=True)
        parent[key] = _read(text)
    for name, text in appends:
        parent, key = _locate(document, name, make=True)
        items = parent.setdefault(key, []) if isinstance(parent, dict) else parent[key]
        if not isinstance(items, list):
            raise click.UsageError(f"{name} is no list; --set replaces it")
        items.append(_read(text))
    for name in unsets:
        parent, key = _locate(document, name, make=False)
        if isinstance(parent, dict) and key not in parent:
            raise NotFoundError(f"there is no field {name}; there are {', '.join(parent)}")
        del parent[key]
    try:
        settled = fields.settle(document, fields.TAPFILE)
    except fields.FaultError as fault:
        raise FormatError(f"{fault.place}: {fault.reason}") from fault
    document.clear()
    document.update(settled)


def _read(text: str) -> Any:
    from tapstore.tapfile.fields import Unquoted

    value = json_or_text(text)
    # Where text belongs (`agent_id=007`), the literal counts.
    return value if isinstance(value, str | list | dict) else Unquoted(text, value)


def _steps(name: str) -> list[str]:
    steps = re.findall(r'(?:^|\.)(?:"([^"]+)"|([^".]+))', name)
    if not steps or ".".join(f'"{q}"' if q else plain for q, plain in steps) != name:
        raise click.UsageError(
            f"{name!r} is no path of a field: write a.b.c, and quote what contains a dot: "
            'artifacts."code.py".type'
        )
    return [quoted or plain for quoted, plain in steps]


def _locate(document: dict[str, Any], name: str, *, make: bool) -> tuple[Any, Any]:
    """The mapping or list that has the field, and its key there."""
    at: Any = document
    steps = _steps(name)
    for number, step in enumerate(steps):
        if isinstance(at, list):
            step = _position(at, steps[0] if number == 1 else "", step)  # type: ignore[assignment]
        elif not isinstance(at, dict):
            raise NotFoundError(f"{'.'.join(steps[:number])} is {at!r}; it has no field {step!r}")
        if number == len(steps) - 1:
            return at, step
        if isinstance(at, dict) and make:
            at = at.setdefault(step, {})
        elif isinstance(at, dict) and step not in at:
            raise NotFoundError(f"there is no field {name}; there are {', '.join(at)}")
        else:
            at = at[step]
    raise AssertionError("unreachable: a path has a last step")


def _position(items: list[Any], of: str, step: str) -> int:
    """Where in a list an entry is: by slot, by name, or by its number from 0."""
    names = [str(number) for number in range(len(items))]
    if of == "participants":
        roles = [str(item.get("role")) for item in items]
        seen = [roles[: number + 1].count(role) for number, role in enumerate(roles)]
        names = [r if n == 1 else f"{r}#{n}" for r, n in zip(roles, seen, strict=True)]
    elif of == "artifacts":
        names = [str(item.get("name")) for item in items]
    if step not in names:
        has = ", ".join(names) or "nothing"
        raise NotFoundError(f"{of or 'the list'} has no {step!r}; it has {has}")
    return len(names) - 1 - names[::-1].index(step)


# In an editor


def _in_editor(session: Session, agent: str, reason: str) -> tuple[Change, ...]:
    import shlex
    import subprocess
    import tempfile

    from tapstore.sessions.config import new_id
    from tapstore.tapfile import format, operations, schema, yaml_write
    from tapstore.tapfile.changes import diff

    snapshot = session.state.refresh()
    shown = {key: value for key, value in snapshot.document.items() if key != "tapstore"}
    before = _HEADER.format(id=clean(session.id), rev=snapshot.rev) + yaml_write.write(shown)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="tapstore-edit-", suffix=".yaml", delete=False
    ) as file:
        file.write(before)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.run([*shlex.split(editor), file.name], check=False).returncode
    except FileNotFoundError as exc:
        os.unlink(file.name)
        raise NotFoundError(
            f"the editor {editor!r} is not there: set EDITOR, or use --set FIELD=VALUE"
        ) from exc
    with open(file.name, "rb") as edited:
        data = edited.read()
    if status != 0 or data == before.encode():
        os.unlink(file.name)
        if status != 0:
            raise click.ClickException(f"{editor} exited with {status}; nothing was changed")
        return ()
    try:
        document = format.parse(data, name=file.name)
        schema.check(document)
        changes = diff(snapshot.document, document)
        if changes:
            session.state.commit(
                operations.Edit(
                    id=new_id(), by=agent, reason=reason, changes=changes, base=snapshot.rev
                )
            )
    except TapstoreError as exc:
        outcome = "" if isinstance(exc, OutcomeUnknownError) else "nothing was changed; "
        raise type(exc)(f"{exc}\n{outcome}your text is kept in {file.name}") from exc
    os.unlink(file.name)
    return changes
