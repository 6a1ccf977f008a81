"""Where the hand-offs of one worktree lie: the folders of the original layout, and a few of ours.

Ours have names that the original scripts pass over: they take regular files that end in
`.handoff`, and folders that begin with `batch_`.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tapstore.errors import NotFoundError
from tapstore.handoffs import names
from tapstore.handoffs.swarm import files

BATCH = "batch_"

_PATH = (".swarmforge", "handoffs")
_MADE = (
    "outbox", "outbox/tmp", "sent", "failed",
    "inbox", "inbox/.tmp", "inbox/new", "inbox/in_process", "inbox/completed",
)  # fmt: skip
"""Each behind those that it is in."""


@dataclass(frozen=True)
class Folder:
    """The hand-offs of one worktree."""

    worktree: str

    @cached_property
    def identity(self) -> tuple[int, int]:
        """The same for all roles that share this folder.  Raises `OSError` if it is away."""
        status = os.stat(self.worktree)
        return status.st_dev, status.st_ino

    @cached_property
    def root(self) -> str:
        return "/".join((self.worktree, *_PATH))

    @property
    def outbox(self) -> str:
        return f"{self.root}/outbox"

    @property
    def outbox_temp(self) -> str:
        return f"{self.outbox}/tmp"

    @property
    def sent(self) -> str:
        return f"{self.root}/sent"

    @property
    def failed(self) -> str:
        return f"{self.root}/failed"

    @property
    def inbox(self) -> str:
        return f"{self.root}/inbox"

    @property
    def inbox_temp(self) -> str:
        """What is unfinished, for all three folders of the inbox: the original removes the folder
        of a batch when it has moved its messages, which has to be empty then."""
        return f"{self.inbox}/.tmp"

    @property
    def new(self) -> str:
        return f"{self.inbox}/new"

    @property
    def in_process(self) -> str:
        return f"{self.inbox}/in_process"

    @property
    def completed(self) -> str:
        return f"{self.inbox}/completed"

    def make(self) -> None:
        """Make what is missing.

        Raises `NotFoundError` if the worktree is away, `OSError` if anything in it is no folder.
        """
        if not os.path.isdir(self.worktree):
            raise NotFoundError(f"the worktree {self.worktree} is not there")
        path = self.worktree
        for name in _PATH:
            path = f"{path}/{name}"
            files.make_folder(path)
        for name in _MADE:
            files.make_folder(f"{path}/{name}")


def listed(folder: str) -> Iterator[str]:
    """The names of messages in a folder, in the order of the queue; none if it is not there.

    Whatever has such a name is listed, be it a link or a folder.
    """
    # A heap: who wants the first of ten thousand does not pay for the order of the others.
    waiting = [name for name in _names(folder) if name.endswith(names.SUFFIX)]
    heapq.heapify(waiting)
    while waiting:
        name = heapq.heappop(waiting)
        if names.is_name(name) and is_plain(name):
            yield name


def odd(folder: str) -> list[str]:
    """Names that end like messages, but have characters that no output can show."""
    return sorted(name for name in _names(folder) if names.is_name(name) and not is_plain(name))


def batches(folder: str) -> list[str]:
    """The names of the folders of batches in a folder."""
    found = (name for name in _names(folder) if name.startswith(BATCH) and is_plain(name))
    return sorted(name for name in found if is_folder(f"{folder}/{name}"))


def has_folders(path: str) -> bool:
    """Whether a folder may hold folders: their number is in its count of links, if one is kept."""
    try:
        return os.lstat(path).st_nlink != 2
    except FileNotFoundError:
        return False


def is_plain(name: str) -> bool:
    """Whether a name can be printed on a line of its own, as what it is."""
    return name.isprintable()


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _names(folder: str) -> list[str]:
    if not is_folder(folder):
        return []
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
