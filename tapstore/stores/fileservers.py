"""File servers, as filesystems in fsspec's words that write whole files and create exclusively.

A write is a finished temporary file beside its target, flushed, that gets its name in one step
of the server: by a hard link for CREATE, which fails if the name is taken, by a rename for
OVERWRITE.  fsspec's own classes look and write in two steps, and write in place.

Not promised: that a new *name* outlives a power failure of the server (its data does, where the
server keeps its word).
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from typing import Any, BinaryIO, Literal

from tapstore.keys import TEMP_MARK

_ADAPTERS = {
    "fsspec.implementations.sftp": "tapstore.stores.sftp:SftpFiles",
    "fsspec.implementations.smb": "tapstore.stores.smb:SmbFiles",
}


def adapt(fs: Any) -> Any:
    """The filesystem itself, or what makes a better one of it."""
    for kind in type(fs).__mro__:
        if kind.__module__ in _ADAPTERS:
            module, _, name = _ADAPTERS[kind.__module__].partition(":")
            return getattr(import_module(module), name)(fs)
    return fs


class FileServer(ABC):
    """The part of fsspec's `AbstractFileSystem` that a store calls; may be used by many threads.

    Missing files raise `FileNotFoundError`, taken names `FileExistsError`, whatever the library
    below says.
    """

    root_marker = "/"

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self.protocol = fs.protocol

    def _strip_protocol(self, path: str) -> str:
        stripped: str = self._fs._strip_protocol(path)
        return stripped

    def invalidate_cache(self) -> None:  # noqa: B027 - there is none
        """Forget what was seen before."""

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self._publish(path, io.BytesIO(data), mode)

    def put_file(self, local: str, path: str) -> None:
        with open(local, "rb") as source:
            self._publish(path, source, "overwrite")

    @abstractmethod
    def close(self) -> None:
        """Part with connections that this object has made.  Safe to repeat."""

    @property
    @abstractmethod
    def host(self) -> str:
        """Host and port, as in a URL; no credentials."""

    @abstractmethod
    def info(self, path: str) -> dict[str, Any]: ...

    @abstractmethod
    def ls(self, path: str, *, detail: Literal[True]) -> list[dict[str, Any]]: ...

    @abstractmethod
    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...

    @abstractmethod
    def copy_to(self, path: str, target: BinaryIO) -> None:
        """Write the whole file, of one version, to `target`."""

    @abstractmethod
    def rm_file(self, path: str) -> None: ...

    @abstractmethod
    def makedirs(self, path: str, *, exist_ok: Literal[True]) -> None:
        """Make the folder and those above; somebody else may be doing so."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty folder; raises OSError for any other."""

    @abstractmethod
    def _write(self, path: str, source: BinaryIO) -> None:
        """Make a file of a name that nobody else uses, whole and on the server's disk."""

    @abstractmethod
    def _link(self, path: str, new: str) -> None:
        """Raises `FileExistsError`; `NotImplementedError` if the server can't."""

    @abstractmethod
    def _replace(self, path: str, new: str) -> None: ...

    def why_unreliable(self, base: str) -> str:
        """What else this server lacks of what a store needs, found out with files at `base`."""
        del base
        return ""

    def _publish(self, path: str, source: BinaryIO, mode: str) -> None:
        temp = f"{path.rpartition('/')[0]}/{TEMP_MARK}{os.urandom(8).hex()}"
        left = True
        try:
            self._write(temp, source)
            if mode == "create":
                self._link(temp, path)
            else:
                self._replace(temp, path)
                left = False
        finally:
            if left:
                self._discard(temp)

    def _discard(self, path: str) -> None:
        try:
            self.rm_file(path)
        # The write itself has succeeded or failed, whatever this says; `sweep` finds the file.
        except Exception:  # noqa: S110
            pass


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(2, os.strerror(2), path)


def taken(path: str) -> FileExistsError:
    return FileExistsError(17, os.strerror(17), path)


def parents(path: str) -> Iterable[str]:
    """The folders that lead to `path`, and `path`, from the top."""
    names = [name for name in path.split("/") if name]
    lead = "/" if path.startswith("/") else ""
    return (lead + "/".join(names[: number + 1]) for number in range(len(names)))
