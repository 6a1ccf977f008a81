"""What to do on mounts without hard links: an exclusive rename, or the URL to take instead.

`rename` names a finished file unless the name is taken, in one step of the kernel
(`RENAME_NOREPLACE`).  It is only used where this kernel alone decides, on file systems of its own
disks (FAT, exFAT, NTFS), and only after a race in the folder itself went well.

Not promised: anything on what other hosts share.  Of a mount by FUSE or SMB the kernel asks no
more than whether *it* knows of the name, which one host can't see through.  Those are refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from tapstore.keys import TEMP_MARK
from tapstore.stores import mounts
from tapstore.stores.mounts import Mount

_OWN_DISKS = frozenset({"exfat", "hfsplus", "msdos", "ntfs", "ntfs3", "udf", "vfat"})

_IN_WORKING_DIRECTORY = -100
_NOREPLACE = 1

_THREADS = 4
_ROUNDS = 8
_START_SECONDS = 30


def why_refused(folder: str) -> str:
    """Why no file can be created exclusively in a folder without hard links, and what to take.

    Empty if `rename` will do.  Makes and removes small files.
    """
    mount = mounts.mount_of(folder)
    kind = mount.type if mount else "of a kind that the system does not tell"
    if mount is None or mount.type not in _OWN_DISKS:
        reason = f"this file system ({kind}) has no hard links"
    else:
        reason = _lost_race(folder)
        if reason:
            reason = f"this file system ({kind}) has no hard links, and {reason}"
    return f"{reason}; {instead(mount)}" if reason else ""


def instead(mount: Mount | None) -> str:
    """The URL by which the same files can be had, as far as the mount tells."""
    if mount is None:
        return "use another folder"
    if mount.type in ("cifs", "smb3") and mount.source.startswith("//"):
        return f"use the share itself: smb:{mount.source}/…"
    if server := mounts.server_url(mount):
        return f"use the server itself: {server}…"
    url = mounts.native_url(mount)
    return f"use the bucket itself: {url}…" if url else "use another folder"


def rename(temp: str, path: str) -> None:
    """Raises `FileExistsError` if the name is taken, `OSError` if there is no such call."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    here = _IN_WORKING_DIRECTORY
    if call(here, os.fsencode(temp), here, os.fsencode(path), _NOREPLACE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def _lost_race(folder: str) -> str:
    # Where no further thread can be started, those that were wait for it.
    start = threading.Barrier(_THREADS, timeout=_START_SECONDS)

    def contend(name: str, number: int) -> bool:
        temp = f"{name}-{number}"
        start.wait()
        try:
            rename(temp, name)
        except FileExistsError:
            os.unlink(temp)
            return False
        return True

    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in range(_ROUNDS):
            name = f"{folder}/{TEMP_MARK}{os.urandom(8).hex()}"
            try:
                # Not by the threads: on a full disk some would wait for one that failed.
                for number in range(_THREADS):
                    with open(f"{name}-{number}", "xb") as made:
                        made.write(b"%d" % number)
                won = list(pool.map(contend, [name] * _THREADS, range(_THREADS)))
                with open(name, "rb") as file:
                    right = won.count(True) == 1 and file.read() == b"%d" % won.index(True)
            except OSError as exc:
                return f"no exclusive rename ({exc.strerror})"
            finally:
                for left in (name, *(f"{name}-{number}" for number in range(_THREADS))):
                    if os.path.lexists(left):
                        os.unlink(left)
            if not right:
                return "its exclusive rename is not exclusive"
    return ""
