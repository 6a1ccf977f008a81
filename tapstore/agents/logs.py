"""What agents print, kept in the session: `logs/<agent>.log`.

On files the log is appended to as it comes, so a killed agent's last words are there, and each
run is framed by a line that says what ran and how it ended.  Where there are no files, the output
of each run becomes an object of its own when it ends: `logs/<agent>/<token>-<claim>.log`, or
`logs/<agent>/<time>-<id>.log` if it was for hand-offs.  `read` shows both as one.

Two agents that share an id share a log, line by line at best.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, cast

from tapstore import failures
from tapstore.clock import format_time_ms
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.keys import decode_name, encode_name
from tapstore.sessions.session import Session
from tapstore.types import CREATE

FOLDER = "logs"
TAIL_BYTES = 4000
_CHUNK_BYTES = 1 << 16
_FOLLOW_SECONDS = 0.2


class Tail:
    """The last bytes of what passes by."""

    def __init__(self, size: int = TAIL_BYTES) -> None:
        self._size = size
        self._data = b""

    def write(self, chunk: bytes) -> None:
        self._data = (self._data + chunk)[-self._size :]

    def text(self, lines: int = 15) -> str:
        """Its last lines, printable, for a message."""
        text = self._data.decode(errors="replace").replace("\r\n", "\n")
        kept = "\n".join(text.rstrip().splitlines()[-lines:])
        return "".join(
            c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in kept
        )


class RunLog:
    """The log of one run; a context manager."""

    def __init__(self, session: Session, *, agent: str, run: str, title: str) -> None:
        """`run` names the object of this run where there are no files; names are in the order of
        an agent's runs.  `title` is the first line."""
        self._session = session
        self._agent = agent
        self._run = run
        self._title = title
        self._stream: BinaryIO | None = None

    def write(self, chunk: bytes) -> None:
        assert self._stream is not None
        self._stream.write(chunk)
        if self._live:
            self._stream.flush()

    def note(self, text: str) -> None:
        """A line of our own: when, and what."""
        at = format_time_ms(self._session.store.now())
        self.write(f"--- {at} {text}\n".encode(errors="backslashreplace"))

    @property
    def _live(self) -> bool:
        return self._session.store.capabilities.files

    def __enter__(self) -> RunLog:
        if self._live:
            self._stream = _appending(self._session, self._agent)
        else:
            self._stream = cast(BinaryIO, tempfile.TemporaryFile())
        self.note(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._stream is not None
        with self._stream:
            if not self._live:
                self._stream.seek(0)
                key = f"{_folder(self._agent)}{self._run}.log"
                try:
                    self._session.store.upload(key, self._stream, CREATE)
                except AlreadyExistsError:
                    return  # a second run under one claim, which only a resumed one has
        self._stream = None


def agents(session: Session) -> list[str]:
    """Ids of the agents that have a log, sorted."""
    names = set()
    for name in session.store.children(f"{FOLDER}/"):
        if name.endswith(("/", ".log")):
            names.add(decode_name(name.removesuffix("/").removesuffix(".log")))
    return sorted(names)


def read(
    session: Session, agent: str, *, follow: bool = False, idle: float | None = None
) -> Iterator[bytes]:
    """Yield what an agent has printed, in pieces.

    With `follow` also what it goes on to print, until nothing came for `idle` seconds (None: for
    ever).  Raises `NotFoundError` if it has no log, naming the agents that have one.
    """
    files = session.store.capabilities.files
    if not follow and agent not in agents(session):
        raise NotFoundError(
            f"session {session.id} has no log of agent {agent!r}; it has logs of "
            f"{', '.join(agents(session)) or '(nobody)'}"
        )
    reader = _FileReader(session, agent) if files else _ObjectReader(session, agent)
    last = session.clock.monotonic()
    while True:
        for chunk in reader.new():
            last = session.clock.monotonic()
            yield chunk
        if not follow or (idle is not None and session.clock.monotonic() - last >= idle):
            return
        session.clock.sleep(_FOLLOW_SECONDS)


class _FileReader:
    def __init__(self, session: Session, agent: str) -> None:
        self._path = session.store.local_path(_key(agent))
        self._at = 0

    def new(self) -> Iterator[bytes]:
        if not os.path.isfile(self._path):
            return
        with open(self._path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size < self._at:
                self._at = 0  # somebody began it anew
            stream.seek(self._at)
            while chunk := stream.read(_CHUNK_BYTES):
                self._at += len(chunk)
                yield chunk


class _ObjectReader:
    def __init__(self, session: Session, agent: str) -> None:
        self._store = session.store
        self._folder = _folder(agent)
        self._seen = ""

    def new(self) -> Iterator[bytes]:
        for info in self._store.list(self._folder, start_after=self._seen):
            with self._store.open(info.key) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
            self._seen = info.key


def _key(agent: str) -> str:
    return f"{FOLDER}/{encode_name(agent)}.log"


def _folder(agent: str) -> str:
    return f"{FOLDER}/{encode_name(agent)}/"


def _appending(session: Session, agent: str) -> BinaryIO:
    key = _key(agent)
    path = session.store.local_path(key)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # A FIFO of that name must not make us wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        return os.fdopen(os.open(path, flags, 0o666), "ab")
    except OSError as exc:
        raise failures.failed(session.store.url, key, "write", exc) from exc
