"""Opens the mailbox of a role in a swarm, and tells whom to wake up there.

Not promised: that the caller is that role; nothing proves it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import FormatError, NotFoundError
from tapstore.handoffs.mailbox import Mode
from tapstore.handoffs.swarm import files, lists
from tapstore.handoffs.swarm import roles as rosters
from tapstore.handoffs.swarm.finding import FOLDER
from tapstore.handoffs.swarm.mailbox import SwarmMailbox
from tapstore.handoffs.swarm.roles import Role

_MAX_SOCKET_BYTES = 4096


def open(
    project: str | os.PathLike[str],
    *,
    role: str,
    worktree: str | os.PathLike[str] | None = None,
    mode: Mode | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SwarmMailbox:
    """The mailbox of a role in the swarm of this project.

    Its hand-offs lie in `worktree`, by default that of the role in `roles.tsv`; others deliver to
    the latter.  `mode`: how it receives, whatever `roles.tsv` says.

    Raises `NotFoundError` if there is no swarm or worktree, `FormatError` for a line of
    `roles.tsv`, and `InvalidKeyError` if the role is not in it.
    """
    roster = rosters.read(project)
    where = os.path.abspath(worktree) if worktree is not None else roster[role].worktree
    if not os.path.isdir(where):
        raise NotFoundError(f"the worktree of {role}, {where}, is not there")
    # The name is checked here, the mode where it matters: it may change any time.
    return SwarmMailbox(roster.project, roster[role].name, where, clock, mode)


def waiting(project: str | os.PathLike[str]) -> tuple[Role, ...]:
    """The roles that have mail to start with, and nothing in process: whom to wake up.

    A worktree that cannot be read is left out.  Raises as `roles.read`.
    """
    return tuple(role for role in rosters.read(project) if _is_waiting(role))


def tmux_socket(project: str | os.PathLike[str]) -> str | None:
    """The path of the tmux socket of the swarm, as it was noted; None if it was not."""
    path = Path(project).absolute() / FOLDER / "tmux-socket"
    try:
        text = files.read(str(path), _MAX_SOCKET_BYTES)[0].decode()
    except (OSError, FormatError, UnicodeDecodeError):
        return None
    socket = text.strip()
    return socket if socket and socket.isprintable() else None


def _is_waiting(role: Role) -> bool:
    try:
        return lists.waiting_for(role)
    except OSError:
        return False
