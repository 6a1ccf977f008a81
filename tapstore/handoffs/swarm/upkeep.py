"""Removes what has been completed or sent for long, and what commands that died left behind.

A completed copy is what tells a delivery that is repeated that it was there already: it stays as
long as its sender's message is queued or failed.

By the times of files, on the clock of their file system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from tapstore.handoffs.message import Message
from tapstore.handoffs.swarm import copies, files, folder, letters, outbox
from tapstore.handoffs.swarm.folder import Folder
from tapstore.handoffs.swarm.letters import Letter
from tapstore.handoffs.swarm.roles import Role, Roster
from tapstore.keys import TEMP_MARK

LEFT_BEHIND_SECONDS = 24 * 3600
"""A command that was stopped for longer finds its temporary file gone, and fails."""


def prune(
    roster: Roster, role: Role, where: Folder, older_than_seconds: float, *, dry_run: bool
) -> Iterator[str]:
    """Remove what this role completed or sent longer ago than that; yields the paths."""
    limit = files.now(where.inbox_temp) - older_than_seconds
    for letter in _old(where.completed, limit):
        if letter.is_for(role.name) and not _is_needed(roster, letter):
            if not dry_run:
                files.remove(letter.path)
            yield letter.path
    for name in folder.batches(where.completed):
        path = f"{where.completed}/{name}"
        if _is_old_batch(roster, role, path, limit):
            if not dry_run:
                shutil.rmtree(path, ignore_errors=False)
            yield path
    for letter in _old(where.sent, limit):
        if letter.message and letter.message.sender == role.name:
            if not dry_run:
                files.remove(letter.path)
            yield letter.path
    if not dry_run:
        sweep(where)


def sweep(where: Folder) -> None:
    """Remove unfinished files that nobody is writing any more, and notes beside nothing."""
    limit = files.now(where.inbox_temp) - LEFT_BEHIND_SECONDS
    for place in (where.inbox_temp, where.outbox_temp, where.root):
        for name in os.listdir(place):
            if name.startswith(TEMP_MARK):
                _remove_old(f"{place}/{name}", limit)
    for place, note in ((where.outbox, outbox.RETRY), (where.failed, outbox.ERROR)):
        for name in os.listdir(place):
            if name.endswith(note) and not files.exists(f"{place}/{name.removesuffix(note)}"):
                _remove_old(f"{place}/{name}", limit)


def _old(place: str, limit: float) -> Iterator[Letter]:
    for name in folder.listed(place):
        path = f"{place}/{name}"
        # Most are not opened: there may be many.
        if _modified(path) < limit:
            letter = letters.read(path)
            if letter is not None and letter.message is not None:
                yield letter


def _is_old_batch(roster: Roster, role: Role, path: str, limit: float) -> bool:
    names = list(folder.listed(path))
    if _modified(path) >= limit and not names:
        return False
    found = [letters.read(f"{path}/{name}") for name in names]
    return all(
        letter is not None
        and letter.modified < limit
        and letter.is_for(role.name)
        and not _is_needed(roster, letter)
        for letter in found
    )


def _is_needed(roster: Roster, letter: Letter) -> bool:
    """Whether somebody may still deliver the message of which this is a completed copy."""
    message = letter.message
    if message is None:
        return True
    sender = roster.roles.get(message.sender)
    if sender is None:
        return False
    where = Folder(sender.worktree)
    names = copies.candidates(letter.name, message, message.recipient or message.recipients[0])
    return any(_is_there(where, name, message) for name in names)


def _is_there(where: Folder, name: str, message: Message) -> bool:
    for place in (where.outbox, where.failed):
        letter = letters.read(f"{place}/{name}")
        if letter is not None and (letter.message is None or letter.message.id == message.id):
            return True
    return False


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return float("inf")


def _remove_old(path: str, limit: float) -> None:
    if _modified(path) < limit:
        try:
            os.unlink(path)
        except OSError:
            try:
                os.rmdir(path)
            except OSError:
                return  # somebody put something into it
