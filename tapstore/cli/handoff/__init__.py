"""`tapstore handoff`: pass work from role to role, in order, completed once.

In a folder with `.swarmforge/roles.tsv` these commands print what the original scripts print and
exit as they do; everywhere else the hand-offs are in the session.
"""

from __future__ import annotations

import click

from tapstore.cli.handoff.configuring import settings
from tapstore.cli.handoff.delivering import deliver
from tapstore.cli.handoff.looking import list_, prune, retry, show
from tapstore.cli.handoff.receiving import done, next_, release, renew
from tapstore.cli.handoff.scripts import install_scripts
from tapstore.cli.handoff.sending import send
from tapstore.cli.invocation import common_options


@click.group(no_args_is_help=False)
@common_options
def handoff() -> None:
    """Pass work from role to role: in order, completed once, never lost."""


for command in (
    send, next_, done, renew, release, list_, show, deliver, retry, prune, settings,
    install_scripts,
):  # fmt: skip
    handoff.add_command(command)
