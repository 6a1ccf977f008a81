"""Who takes part in a swarm: `roles.tsv`, read anew each time and held to rules before it is used.

What the original wrote is read: seven columns, of which the last may be missing; further ones are
left alone.

Not promised: that a worktree is there, or that the agent of a role runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from tapstore.errors import FormatError, InvalidKeyError, NotFoundError
from tapstore.handoffs.mailbox import MailboxStateError, Mode
from tapstore.handoffs.names import check_role
from tapstore.handoffs.swarm import files
from tapstore.handoffs.swarm.finding import FILE, FOLDER

MAX_BYTES = 1 << 20
MAX_ROLES = 500

_COLUMNS = ("role", "worktree-name", "worktree-path", "session", "display", "agent", "mode")


@dataclass(frozen=True, slots=True)
class Role:
    """One line of `roles.tsv`."""

    name: str
    worktree_name: str
    worktree: str
    """Absolute path."""

    session: str = ""
    """Its tmux session."""

    display: str = ""
    agent: str = ""
    mode: str = "task"
    """As it is written; `receive_mode` checks it."""

    @property
    def receive_mode(self) -> Mode:
        """Raises `MailboxStateError` for what is neither `task` nor `batch`."""
        if self.mode == "task":
            return "task"
        if self.mode == "batch":
            return "batch"
        raise MailboxStateError(
            "INVALID_RECEIVE_MODE",
            f"{self.mode} for role {self.name}; the last column of {FILE} is task or batch",
        )


@dataclass(frozen=True, slots=True)
class Roster:
    """All roles of a swarm, at one moment."""

    project: str
    roles: Mapping[str, Role]
    modified: float
    """When the file was written, in seconds since the epoch, on the clock of its place."""

    def __iter__(self) -> Iterator[Role]:
        return iter(self.roles.values())

    def __getitem__(self, name: str) -> Role:
        """Raises `InvalidKeyError` for a role that is not there."""
        try:
            return self.roles[name]
        except KeyError:
            known = ", ".join(sorted(self.roles)) or "none"
            raise InvalidKeyError(f"Unknown role: {name!r}; known are {known}") from None


def read(project: str | os.PathLike[str]) -> Roster:
    """The roles of the swarm of this project now.

    Raises `NotFoundError` if it has none, `OSError`, and `FormatError` with the line that is wrong.
    """
    path = f"{Path(project).absolute()}/{FOLDER}/{FILE}"
    try:
        data, status = files.read(path, MAX_BYTES)
    except FileNotFoundError as exc:
        raise NotFoundError(
            f"{path} is not there: {project} is not the project of a swarm"
        ) from exc
    where = str(Path(project).absolute())
    return Roster(where, _parsed(data, path, where), status.st_mtime)


@lru_cache(maxsize=4)
def _parsed(data: bytes, path: str, project: str) -> Mapping[str, Role]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise FormatError(f"{path}, line {line}: it is not UTF-8 ({exc.reason})") from exc
    roles: dict[str, Role] = {}
    for number, text_line in enumerate(text.split("\n"), 1):
        if not text_line.strip():
            continue
        try:
            role = _role(text_line.removesuffix("\r"), project)
        except (FormatError, InvalidKeyError) as exc:
            raise FormatError(f"{path}, line {number}: {exc}") from exc
        if role.name in roles:
            raise FormatError(f"{path}, line {number}: the role {role.name!r} is there twice")
        if len(roles) == MAX_ROLES:
            raise FormatError(f"{path}, line {number}: it has more than {MAX_ROLES} roles")
        roles[role.name] = role
    return MappingProxyType(roles)


def _role(line: str, project: str) -> Role:
    columns = line.split("\t")
    if len(columns) < 3:
        raise FormatError(
            f"it has {len(columns)} columns separated by tabs; there are {', '.join(_COLUMNS)}"
        )
    for name, value in zip(_COLUMNS, columns, strict=False):
        if value and not value.isprintable():
            raise FormatError(f"its {name} has characters that are not printable: {value!r}")
    name, worktree_name, worktree, *more = columns[: len(_COLUMNS)]
    check_role(name)
    if not worktree.strip():
        raise FormatError(f"the role {name!r} has no worktree-path")
    session, display, agent, mode = (*more, "", "", "", "")[:4]
    path = os.path.normpath(os.path.join(os.path.abspath(project), worktree))
    return Role(name, worktree_name, path, session, display, agent, mode.strip() or "task")
