"""`.tap/session.log`: the log as JSON lines, for people and their tools.

A view: it may lag, and can be removed at any time; the next commit writes it again.  Without a
lock around it two writers may repeat a line.  The truth is the commit log.
"""

from __future__ import annotations

import os

import msgspec

from tapstore.record import Head
from tapstore.sessions import history
from tapstore.sessions.revisions import History

_TAIL_BYTES = 65536


class _Line(msgspec.Struct):
    rev: int
    write_id: str = ""


class SessionLogFile:
    """Appends what is missing to the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = (0, 0)
        """Size in bytes that we left the file at, and the revision of its last line."""

    def extend(self, log: History, head: Head) -> None:
        """Append a line for each commit after the last line, up to `head`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(self._path, flags, 0o666)
        try:
            size = os.fstat(fd).st_size
            torn = False
            last = self._known[1]
            if size != self._known[0]:
                line, torn = self._last(fd, size)
                last = line.rev
                if last > head.n and _is_of(log, line):
                    return  # without a lock around us somebody was faster
                if last > head.n or last < 0:  # not of this session: begin anew
                    os.ftruncate(fd, 0)
                    size, last, torn = 0, 0, False
            if last == head.n and not torn:
                return
            lines = [b"\n"] if torn else []
            for n in range(last + 1, head.n + 1):
                at = head if n == head.n else log.at(n)
                if at is not None:
                    lines.append(msgspec.json.encode(history.log_entry(at)) + b"\n")
            data = b"".join(lines)
            written = os.write(fd, data)
            self._known = (size + written, head.n if written == len(data) else 0)
        finally:
            os.close(fd)

    def _last(self, fd: int, size: int) -> tuple[_Line, bool]:
        """The last whole line (of revision -1: unreadable), and whether a torn one follows."""
        if size == 0:
            return _Line(0), False
        tail = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        whole, newline, rest = tail.rpartition(b"\n")
        if not newline:
            return _Line(-1), False
        line = whole.rpartition(b"\n")[2]
        try:
            return msgspec.json.decode(line, type=_Line), bool(rest)
        except msgspec.DecodeError:
            return _Line(-1), False


def _is_of(log: History, line: _Line) -> bool:
    head = log.at(line.rev)
    return head is not None and head.record.write_id == line.write_id
