"""One file of a hand-off as it lies there: a message, one that is still being written, or neither.

Nothing in a file is believed before the parser took it.  The original daemon writes copies in
place, so a file may be read while it is written, and may stay half-written if the daemon dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tapstore.errors import FormatError
from tapstore.handoffs import message as messages
from tapstore.handoffs import types as message_types
from tapstore.handoffs.message import TIMES, Message, UnfinishedError
from tapstore.handoffs.swarm import files, folder

UNFINISHED_SECONDS = 30
"""For how long a file that looks unfinished may still be being written."""

_FULL_BYTES = 60 * 1024
_FULL_HEADERS = messages.MAX_HEADERS - 5
"""From here on it is tried whether there is room for what is still to be written."""

_OF_A_COPY = ("recipient", *TIMES)


@dataclass(frozen=True, slots=True)
class Letter:
    """What is in one file."""

    path: str
    name: str
    modified: float
    """In seconds since the epoch, on the clock of its place."""

    data: bytes
    message: Message | None
    """None if it is no message, or not yet one."""

    fault: str = ""
    """Why it is not."""

    torn: bool = False
    """It does not look finished."""

    def is_being_written(self, now: Callable[[], float]) -> bool:
        """Whether somebody may still be writing it; `now` is asked for only if that matters."""
        return self.torn and now() - self.modified < UNFINISHED_SECONDS

    def is_for(self, role: str) -> bool:
        """Whether it is a copy of this role, or does not say whose."""
        return self.message is not None and self.message.recipient in ("", role)


def read(path: str) -> Letter | None:
    """What is in a file; None if it is gone.  Raises `OSError`."""
    name = os.path.basename(path)
    try:
        data, status = files.read(path, messages.MAX_BYTES)
    except FileNotFoundError:
        return None
    except FormatError as exc:
        try:
            modified = os.lstat(path).st_mtime
        except FileNotFoundError:
            return None
        return Letter(path, name, modified, b"", None, str(exc))
    torn = not messages.is_whole(data)
    try:
        message = messages.parse(data, name=path)
    except UnfinishedError as exc:
        return Letter(path, name, status.st_mtime, data, None, str(exc), torn=True)
    except FormatError as exc:
        return Letter(path, name, status.st_mtime, data, None, str(exc), torn=torn)
    if len(data) > _FULL_BYTES or len(message.headers) > _FULL_HEADERS:
        fault = _no_room(message)
        if fault:
            return Letter(path, name, status.st_mtime, data, None, f"{path}: {fault}")
    torn = torn or _is_cut(message)
    return Letter(path, name, status.st_mtime, data, message, torn=torn)


def read_all(where: str) -> Iterator[Letter]:
    """What is in the messages of a folder, in the order of the queue.

    One that can't be read is yielded with the reason: it bars none behind it.
    """
    for name in folder.listed(where):
        path = f"{where}/{name}"
        try:
            letter = read(path)
        except OSError as exc:
            letter = Letter(path, name, 0.0, b"", None, f"{path}: {exc.strerror or exc}")
        if letter is not None:
            yield letter


def are_copies(one: Message, other: Message) -> bool:
    """Whether both are the same message, for whomever and however far they came.

    The original scripts change line ends and drop empty lines at the end when they write headers.
    """
    return _kept(one) == _kept(other) and _lines(one.body) == _lines(other.body)


def is_beginning_of(data: bytes, whole: Message) -> bool:
    """Whether a file that was left half-written was to become a copy of this message."""
    text = data.decode("utf-8", "replace")
    head, end, body = text.partition("\n\n")
    if not end:
        # Cut within the headers: `id` is the first that is written, and may be cut itself.
        first = f"id: {whole.id}\n"
        return text.startswith(first) or first.startswith(text)
    return head.startswith(f"id: {whole.id}\n") and whole.body.startswith(body)


def _no_room(message: Message) -> str | None:
    """Why the headers that are written on its way have no room in it: it would stop half-way."""
    recipient = message.recipient or message.recipients[0]
    try:
        delivered = messages.deliver(message, recipient=recipient, at=0.001)
        messages.render(messages.complete(messages.accept(delivered, at=0.001), at=0.001))
    except FormatError as exc:
        return f"there is no room for the times that are still to be written: {exc}"
    return None


def _is_cut(message: Message) -> bool:
    """Whether the end is missing of a body that is generated: the cut may be at a line's end."""
    declared = message_types.built_in().get(message.type)
    if declared is None:
        return False
    whole = declared.render_body(message.headers)
    return whole.startswith(message.body) and len(message.body.rstrip()) < len(whole.rstrip())


def _kept(message: Message) -> dict[str, str]:
    return {name: value for name, value in message.headers.items() if name not in _OF_A_COPY}


def _lines(body: str) -> list[str]:
    lines = body.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    return lines
