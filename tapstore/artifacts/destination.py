"""Files and folders on this host that appear whole, or not at all.

A file is written beside its place and renamed; a folder is built beside its place and renamed.
Not promised: that they survive a power failure (fetch again), or protection from somebody who
swaps folders for links while we work (who can do that can write there anyway).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.errors import AlreadyExistsError, InvalidKeyError, StoreError
from tapstore.keys import TEMP_MARK, check_key

_CREATE = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


def resolve(dest: str | os.PathLike[str], inside: str | os.PathLike[str] | None) -> str:
    """The path to write, absolute.

    With `inside`, `dest` is relative to that folder, portable, and stays in it: no `..`, and no
    symbolic link on the way that leads out.  Else `InvalidKeyError`.
    """
    if inside is None:
        return os.path.abspath(dest)
    name, folder = os.fspath(dest), os.path.abspath(inside)
    try:
        check_key(name)
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"refused to write {name!r} into {folder!r}: {exc}") from exc
    path = os.path.join(folder, *name.split("/"))
    real, real_folder = os.path.realpath(os.path.dirname(path)), os.path.realpath(folder)
    if real != real_folder and not real.startswith(os.path.join(real_folder, "")):
        raise InvalidKeyError(
            f"refused to write {name!r} into {folder!r}: a symbolic link leads to {real!r}"
        )
    return path


class File:
    """A new file that is being written; a full disk and the like come as `StoreError`."""

    def __init__(self, path: str, *, becomes: str, executable: bool = False) -> None:
        """`becomes` is the path that it will have, for messages."""
        self._path = becomes
        with _failures(becomes):
            self._fd = os.open(path, _CREATE, 0o777 if executable else 0o666)

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        with _failures(self._path):
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def restart(self) -> None:
        """Forget what was written."""
        with _failures(self._path):
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.ftruncate(self._fd, 0)

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            os.close(self._fd)
        except OSError as exc:
            # NFS may tell of a full disk as late as now; an exception under way says more.
            if kind is None:
                raise _failed(self._path, exc) from exc


@contextmanager
def new_file(path: str) -> Iterator[File]:
    """A file to write; it replaces what is at `path` when the block ends without an exception."""
    if os.path.isdir(path):
        raise InvalidKeyError(f"{path!r} is a folder: name the file to write")
    temp = _temp(path)
    with _failures(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    file = File(temp, becomes=path)
    try:
        with file:
            yield file
        with _failures(path):
            os.replace(temp, path)
    except BaseException:
        os.unlink(temp)
        raise


@contextmanager
def new_folder(path: str) -> Iterator[Folder]:
    """A folder to fill; it appears at `path` when the block ends without an exception.

    Raises `AlreadyExistsError` if something is there that is not an empty folder.
    """
    _check_free(path)
    temp = _temp(path)
    with _failures(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(temp)
    try:
        yield Folder(temp, becomes=path)
        try:
            # Onto an empty folder only: it fails on anything else, a link to one too.
            os.rename(temp, path)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise _taken(path) from exc
            raise _failed(path, exc) from exc
    except BaseException:
        shutil.rmtree(temp)
        raise


class Folder:
    """A new folder that nobody else writes to, so that no link can stand in the way."""

    def __init__(self, path: str, *, becomes: str) -> None:
        self._path = path
        self._becomes = becomes
        self._made: set[str] = set()

    def file(self, name: str, *, executable: bool) -> File:
        """Create the file `name`, a key that was checked, and the folders above it."""
        path = os.path.join(self._path, *name.split("/"))
        becomes = os.path.join(self._becomes, *name.split("/"))
        parent = os.path.dirname(path)
        if parent not in self._made:
            with _failures(becomes):
                os.makedirs(parent, exist_ok=True)
            self._made.add(parent)
        return File(path, becomes=becomes, executable=executable)


def _temp(path: str) -> str:
    return os.path.join(os.path.dirname(path), TEMP_MARK + os.urandom(8).hex())


def _check_free(path: str) -> None:
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise _taken(path)
    with _failures(path), os.scandir(path) as found:
        empty = next(found, None) is None
    if not empty:
        raise _taken(path)


def _taken(path: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{path!r} exists and is not an empty folder; nothing was written: name a new one"
    )


@contextmanager
def _failures(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _failed(path, exc) from exc


def _failed(path: str, cause: OSError) -> StoreError:
    error = StoreError(f"cannot write {path!r}: {cause.strerror or cause}")
    error.errno = cause.errno
    return error
