"""`tapstore config`: what holds without being said in a call, and where that comes from."""

from __future__ import annotations

from typing import Any

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, agent_option, common_options
from tapstore.cli.settings import Setting
from tapstore.errors import SessionNotFoundError
from tapstore.keys import mask_url

_HIDDEN = "***"


@click.command()
@common_options
@agent_option
@click.pass_obj
def config(invocation: Invocation) -> None:
    """Show what is in force without being said in a call, and where each value comes from.

    Options of a call win over the environment, that over tapstore.toml in this folder or the
    nearest above, and that over the user's own configuration.  Credentials are not shown.
    """
    try:
        url: Setting | None = invocation.where()
    except SessionNotFoundError:
        url = None
    settings = invocation.settings
    found = {"url": url, "locks": settings.get("locks"), "agent": invocation.who()}
    options = settings.all_options()
    rows = [
        *((name, _shown(setting), "" if setting is None else setting.source)
          for name, setting in found.items()),
        *((f"storage_options.{scheme}.{name}", _HIDDEN, each.source)
          for scheme, each in options.items() for name in each.values),
    ]  # fmt: skip
    invocation.answer(
        {
            **{name: _value(setting) for name, setting in found.items()},
            "storage_options": {
                scheme: {"value": dict.fromkeys(each.values, _HIDDEN), "source": each.source}
                for scheme, each in options.items()
            },
            "files": [file.path for file in settings.files],
        },
        *console.table(("setting", "value", "from"), rows),
    )


def _value(setting: Setting | None) -> dict[str, Any] | None:
    return None if setting is None else {"value": _shown(setting), "source": setting.source}


def _shown(setting: Setting | None) -> str:
    if setting is None:
        return "-"
    try:
        return mask_url(setting.value) if "://" in setting.value else setting.value
    except ValueError:  # what is malformed may hide a password anywhere
        return _HIDDEN
