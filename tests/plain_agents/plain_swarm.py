"""Agents and a daemon of a swarm as simple as the original ones: they know nothing of tapstore.

What they do to the folders, and in which order, is what the original scripts do: copies written in
place, looked for in `new/` only, headers written after a file was moved, no locks but one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

ORDER = (
    "id", "from", "to", "recipient", "priority", "type", "role", "commit", "message",
    "created_at", "enqueued_at", "dequeued_at", "completed_at",
)  # fmt: skip


class PlainError(Exception):
    """What a script prints before it exits; the exit code comes second."""


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def handoffs(worktree: Path) -> Path:
    return worktree / ".swarmforge" / "handoffs"


def handoff_files(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    found = (path for path in folder.iterdir() if path.name.endswith(".handoff"))
    return sorted(path for path in found if path.is_file())


def batch_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[:6] == "batch_")


def header(path: Path, field: str, default: str = "") -> str:
    for line in path.read_text().split("\n"):
        if not line.strip():
            break
        if line.startswith(f"{field}: "):
            return line[len(field) + 2 :]
    return default


def set_header(path: Path, field: str, value: str) -> None:
    head, _, body = path.read_text().partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith(f"{field}: ")]
    temp = path.parent / f".headers.{os.getpid()}{time.monotonic_ns()}"
    temp.write_text("\n".join([*lines, f"{field}: {value}"]) + "\n\n" + body.rstrip("\n") + "\n")
    temp.replace(path)


def move(source: Path, target: Path) -> None:
    """As Java moves: looks whether the target is there, then renames."""
    if target.exists():
        raise FileExistsError(target)
    source.rename(target)


def next_sequence(worktree: Path) -> str:
    root = handoffs(worktree)
    root.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            (root / "sequence.lock").mkdir()
            break
        except FileExistsError:
            time.sleep(0.05)
    try:
        counter = root / "sequence"
        try:
            last = int(counter.read_text())
        except (OSError, ValueError):
            last = 0
        counter.write_text(f"{last + 1:06}\n")
        return f"{last + 1:06}"
    finally:
        (root / "sequence.lock").rmdir()


def send_note(worktree: Path, sender: str, to: str, priority: str, text: str) -> Path:
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    number = next_sequence(worktree)
    name = f"{priority}_{at}_{number}_from_{sender}_to_{to.replace(',', '_')}.handoff"
    outbox = handoffs(worktree) / "outbox"
    (outbox / "tmp").mkdir(parents=True, exist_ok=True)
    temp = outbox / "tmp" / f"{name}.tmp"
    temp.write_text(
        f"id: {at}_{number}_from_{sender}\nfrom: {sender}\nto: {to}\npriority: {priority}\n"
        f"type: note\nmessage: {text}\ncreated_at: {now()}\n\n"
        f"Re-read your role and constitution.\n\n{text}\n"
    )
    temp.rename(outbox / name)
    return outbox / name


def poll_once(project: Path) -> None:
    """One round of the daemon."""
    roles = {}
    for line in (project / ".swarmforge" / "roles.tsv").read_text().splitlines():
        if line.strip():
            roles[line.split("\t")[0]] = Path(line.split("\t")[2])
    for worktree in roles.values():
        for path in handoff_files(handoffs(worktree) / "outbox"):
            try:
                deliver(roles, worktree, path)
            except Exception as exc:
                if path.exists():
                    Path(f"{path}.error").write_text(f"{exc}\n")
                    _archive(path, path.parent.parent / "failed")


def deliver(roles: dict[str, Path], worktree: Path, path: Path) -> None:
    head, _, body = path.read_text().partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
    for recipient in headers["to"].split(","):
        copy = {**headers, "recipient": recipient, "enqueued_at": now()}
        target = handoffs(roles[recipient]) / "inbox" / "new" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            names = [*ORDER, *sorted(set(copy) - set(ORDER))]
            lines = "\n".join(f"{name}: {copy[name]}" for name in names if name in copy)
            target.write_text(f"{lines}\n\n{body}")
    _archive(path, handoffs(worktree) / "sent")


def _archive(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    move(path, folder / f"{now()}_{path.name}" if target.exists() else target)


def _inbox(worktree: Path) -> tuple[Path, Path, Path]:
    inbox = handoffs(worktree) / "inbox"
    folders = inbox / "new", inbox / "in_process", inbox / "completed"
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return folders


def ready_task(worktree: Path) -> Path | None:
    new, in_process, _ = _inbox(worktree)
    if batch_folders(in_process):
        raise PlainError("TASK_IN_PROCESS_IS_BATCH", 2)
    current = handoff_files(in_process)
    if len(current) > 1:
        raise PlainError("AMBIGUOUS_TASK_STATE", 2)
    if current:
        return current[0]
    waiting = handoff_files(new)
    if not waiting:
        return None
    target = in_process / waiting[0].name
    move(waiting[0], target)
    set_header(target, "dequeued_at", now())
    return target


def done_task(worktree: Path) -> Path:
    _, in_process, completed = _inbox(worktree)
    if batch_folders(in_process):
        raise PlainError("CURRENT_WORK_IS_BATCH", 2)
    current = handoff_files(in_process)
    if len(current) != 1:
        raise PlainError("AMBIGUOUS_TASK_STATE" if current else "NO_CURRENT_TASK", 2)
    set_header(current[0], "completed_at", now())
    move(current[0], completed / current[0].name)
    return completed / current[0].name


def ready_batch(worktree: Path) -> Path | None:
    new, in_process, _ = _inbox(worktree)
    if handoff_files(in_process):
        raise PlainError("TASK_IN_PROCESS_IS_SINGLE", 2)
    batches = batch_folders(in_process)
    if len(batches) > 1:
        raise PlainError("AMBIGUOUS_TASK_STATE", 2)
    if batches:
        if not handoff_files(batches[0]):
            raise PlainError("AMBIGUOUS_TASK_STATE", 2)
        return batches[0]
    waiting = handoff_files(new)
    if not waiting:
        return None
    priority = header(waiting[0], "priority", "50")
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    batch = in_process / f"batch_{at}_{1:06}"
    batch.mkdir()
    for path in waiting:
        if header(path, "priority", "50") == priority:
            move(path, batch / path.name)
            set_header(batch / path.name, "dequeued_at", now())
    return batch


def done_batch(worktree: Path, *, die_after: int | None = None) -> Path:
    """With `die_after`, stop when that many messages have been moved, as a crash does."""
    _, in_process, completed = _inbox(worktree)
    if handoff_files(in_process):
        raise PlainError("CURRENT_WORK_IS_SINGLE_TASK", 2)
    batches = batch_folders(in_process)
    if len(batches) != 1:
        raise PlainError("AMBIGUOUS_TASK_STATE" if batches else "NO_CURRENT_BATCH", 2)
    target = completed / batches[0].name
    if target.exists():
        raise PlainError("AMBIGUOUS_TASK_STATE", 2)
    target.mkdir()
    at = now()
    for number, path in enumerate(handoff_files(batches[0])):
        if number == die_after:
            return target
        set_header(path, "completed_at", at)
        move(path, target / path.name)
    if die_after is None:
        batches[0].rmdir()
    return target
