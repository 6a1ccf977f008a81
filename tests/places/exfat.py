"""exFAT, which has no hard links, mounted for real: an image, through FUSE.

Needs root, `/dev/fuse`, loop devices, and the Debian packages exfat-fuse and exfatprogs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import (
    ServerFailedError,
    ServerMissingError,
    find_program,
    run,
    temporary_folder,
)

HOW = "make servers"
SIZE = 16 << 20


@contextmanager
def mounted() -> Iterator[Path]:
    """A folder on a new file system."""
    programs = {
        name: find_program(name, HOW)
        for name in ("mkfs.exfat", "mount.exfat-fuse", "losetup", "umount")
    }
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        raise ServerMissingError("mounting needs root and /dev/fuse")
    with temporary_folder("exfat") as folder:
        image, point = folder / "image", folder / "mounted"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(SIZE)
        run([programs["mkfs.exfat"], image], folder)
        try:
            device = run([programs["losetup"], "--find", "--show", image], folder).strip()
        except ServerFailedError as exc:
            raise ServerMissingError(f"no loop device to be had: {exc}") from exc
        try:
            run([programs["mount.exfat-fuse"], device, point], folder)
            try:
                yield point
            finally:
                subprocess.run([programs["umount"], point], check=True)
        finally:
            subprocess.run([programs["losetup"], "--detach", device], check=True)
