"""A swarm in a temporary folder: roles, their worktrees, and what lies in them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tapstore.clock import SYSTEM_CLOCK
from tapstore.handoffs import message as messages
from tapstore.handoffs.message import Message
from tapstore.handoffs.swarm import opening
from tapstore.handoffs.swarm.mailbox import SwarmMailbox
from tests.plain_agents.plain_swarm import handoffs


class Swarm:
    """`modes` maps each role to its receive mode; `shared` roles work in the project itself."""

    def __init__(self, project: Path, modes: dict[str, str], shared: tuple[str, ...] = ()) -> None:
        self.project = project
        self.modes = dict(modes)
        self.shared = shared
        (project / ".swarmforge").mkdir(parents=True)
        for role in modes:
            self.worktree(role).mkdir(exist_ok=True)
        self.write_roles()

    def worktree(self, role: str) -> Path:
        return self.project if role in self.shared else self.project / f"tree-{role}"

    def write_roles(self, *, aged: bool = True) -> None:
        lines = []
        for role, mode in self.modes.items():
            tree = "master" if role in self.shared else role
            columns = (role, tree, str(self.worktree(role)), f"swarm-{role}", role, "claude", mode)
            lines.append("\t".join(columns))
        path = self.project / ".swarmforge" / "roles.tsv"
        path.write_text("\n".join(lines) + "\n")
        if aged:
            age(path, 60)

    def box(self, role: str, clock=SYSTEM_CLOCK) -> SwarmMailbox:
        return opening.open(self.project, role=role, clock=clock)

    def folder(self, role: str, *path: str) -> Path:
        return handoffs(self.worktree(role)).joinpath(*path)

    def new(self, role: str) -> Path:
        path = self.folder(role, "inbox", "new")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def names(self, role: str, *path: str) -> list[str]:
        """Everything that is called a message below a folder, with the batch it is in."""
        top = self.folder(role, *path)
        return sorted(str(found.relative_to(top)) for found in top.rglob("*.handoff"))

    def send(self, sender: str, to: str, text: str = "hello", priority: str = "50", **options):
        return self.box(sender, **options).send(note(to, text, priority))

    def queue(self, sender: str, to: str, text: str = "hello", priority: str = "50") -> Path:
        """Put a message into an outbox that nobody has delivered yet."""
        self.folder(sender, "outbox").mkdir(parents=True, exist_ok=True)
        number = len(list(self.folder(sender).rglob("*.handoff"))) + 1
        data = text_of(sender, to, text, priority, number)
        name = f"{priority}_20261201T000000Z_{number:06}_from_{sender}_to_{to.replace(',', '_')}"
        path = self.folder(sender, "outbox", f"{name}.handoff")
        path.write_text(data)
        return path


def note(to: str, text: str = "hello", priority: str = "50") -> bytes:
    return f"type: note\nto: {to}\npriority: {priority}\nmessage: {text}\n".encode()


def text_of(
    sender: str, to: str, text: str, priority: str = "50", number: int = 1, recipient: str = ""
) -> str:
    headers = {
        "id": f"20261201T000000Z_{number:06}_from_{sender}",
        "from": sender,
        "to": to,
        "priority": priority,
        "type": "note",
        "message": text,
        "created_at": "2026-12-01T00:00:00Z",
    }
    if recipient:
        headers |= {"recipient": recipient, "enqueued_at": "2026-12-01T00:00:01Z"}
    body = f"Re-read your role and constitution.\n\n{text}\n"
    return messages.render(Message(headers, body)).decode()


def parsed(path: Path | str) -> Message:
    return messages.parse(Path(path).read_bytes(), name=str(path))


def age(path: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))
