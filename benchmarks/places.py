"""Where is measured: folders on a disk and on a tmpfs, and what is known of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TMPFS = Path("/dev/shm")

# Of Linux: read and set the attributes of a file, and the one of `chattr +T`.
_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHIES = 0x80086601, 0x40086602, 0x00020000


class Place(NamedTuple):
    """A folder to measure in."""

    name: str
    folder: Path
    filesystem: str
    fsync: bool

    def new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))


@contextmanager
def places(disk: Path) -> Iterator[list[Place]]:
    """The places; what was written there is removed at the end.  No tmpfs, no place there."""
    folders = [Path(tempfile.mkdtemp(prefix="tapstore-bench-", dir=disk))]
    if os.access(TMPFS, os.W_OK) and filesystem(TMPFS) == "tmpfs":
        folders.append(Path(tempfile.mkdtemp(prefix="tapstore-bench-", dir=TMPFS)))
    kind = filesystem(folders[0])
    if kind == "ext4":
        _spread(folders[0])
    found = [
        Place("disk, durable", folders[0], kind, fsync=True),
        Place("disk", folders[0], kind, fsync=False),
        *(Place("tmpfs", folder, "tmpfs", fsync=True) for folder in folders[1:]),
    ]
    try:
        yield found
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def _spread(folder: Path) -> None:
    """Let the directories made in this folder be far from each other on the disk, if we may.

    When ext4 makes a file, it looks at every inode nearby that was freed in the last five
    seconds.  So each run would pay for what the one before had removed.
    """
    fd = os.open(folder, os.O_RDONLY)
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, _GET_FLAGS, flags)
        number = struct.unpack("q", flags)[0] | _TOP_OF_HIERARCHIES
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("q", number))
    except OSError:
        pass
    finally:
        os.close(fd)


def filesystem(path: Path) -> str:
    """The kind of file system that holds the path, as the kernel names it."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    real = os.path.realpath(path)
    for line in mounts:
        _, point, name, *_ = line.split()
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, name
    return kind
