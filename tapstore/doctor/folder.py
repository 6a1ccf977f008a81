"""What a folder's file system gives: links, renames, fsync, and what its mount options mean."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

from tapstore.doctor.subject import Subject
from tapstore.locks import namesakes, process
from tapstore.sessions.config import TAPFILE_LOCK_KEY
from tapstore.stores import linkless, mounts
from tapstore.stores.mounts import Severity as MountSeverity
from tapstore.stores.publish import sync_folder
from tapstore.types import Finding, Severity

FILES = "files"
MOUNT = "mount"
HOST_NAME = "host-name"

_SEVERITIES: dict[MountSeverity, Severity] = {
    MountSeverity.ERROR: "fatal",
    MountSeverity.WARNING: "warning",
    MountSeverity.NOTE: "note",
}


def files(subject: Subject) -> Finding:
    """Link, rename over and sync a file, as every commit does."""
    first = subject.store.local_path(subject.work.key("file"))
    second = subject.store.local_path(subject.work.key("link"))
    folder = os.path.dirname(first)
    steps: list[str] = []
    no_links = mounts.why_no_links(folder)
    try:
        steps.append("write and fsync")
        _write(first, b"1")
        started = subject.clock.monotonic()
        _write(first, b"2")
        seconds = subject.clock.monotonic() - started
        if no_links:
            steps.append("link")
            # The same that is asked when something is created there.
            if refused := linkless.why_refused(folder):
                raise OSError(refused)
        else:
            _try_links(first, second, steps)
        steps.append("rename over another file")
        _write(f"{first}.new", b"3")
        os.replace(f"{first}.new", second)
        if _read(second) != b"3" or _read(first) != b"2":
            raise OSError("it changed the wrong file")
        steps.append("fsync a folder")
        sync_folder(folder)
    except OSError as exc:
        return Finding(
            FILES,
            "fatal",
            f"cannot {steps[-1]}: {exc.strerror or exc}",
            "by this a file appears whole, and for one writer only",
            "take a folder on another file system, or a bucket",
            {"failed": steps[-1]},
        )
    finally:
        for path in (first, second, f"{first}.new"):
            if os.path.lexists(path):
                os.unlink(path)
    if no_links:
        return Finding(
            FILES,
            "note",
            f"no hard links ({no_links}); renames of this kernel that do not replace work instead",
            "as long as no other host shares the disk",
            "",
            {"fsync_seconds": round(seconds, 6)},
        )
    return Finding(
        FILES,
        "ok",
        f"hard links, renames and fsync work (a write with fsync {seconds * 1000:.1f} ms)",
        values={"fsync_seconds": round(seconds, 6)},
    )


def _try_links(first: str, second: str, steps: list[str]) -> None:
    steps.append("link")
    os.link(first, second)
    if not os.path.samefile(first, second):
        raise OSError("it made a copy instead")
    steps.append("link to a name that is taken")
    try:
        os.link(first, second)
    except FileExistsError:
        return
    raise OSError("it succeeded")


def mount(subject: Subject) -> Iterator[Finding]:
    """The kind of mount and what its options mean; one finding each, or one that all is well."""
    found, remarks = mounts.look(os.path.dirname(subject.store.local_path("x")))
    values = (
        {} if found is None else {"type": found.type, "point": found.point, "source": found.source}
    )
    kind = "of a kind that the system does not tell" if found is None else found.type
    version = f" {found.version}" if found is not None and found.version else ""
    # `files` tells what is done without links, or why nothing can be.
    remarks = tuple(remark for remark in remarks if remark.code != "no-hard-links")
    if not remarks:
        yield Finding(MOUNT, "ok", f"{kind}{version}", values=values)
    for remark in remarks:
        yield Finding(
            MOUNT,
            _SEVERITIES[remark.severity],
            f"{kind}{version}: {remark.text}",
            change=remark.remedy,
            values={**values, "code": remark.code},
        )
    yield from _namesakes(subject, found.version if found is not None else "")


def _namesakes(subject: Subject, nfs_version: str) -> Iterator[Finding]:
    """Other hosts with our name, if they are at work in the session that lies here."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return
    host = socket.gethostname()
    found = list(
        namesakes.find(
            subject.store,
            TAPFILE_LOCK_KEY,
            host=host,
            here=process.myself(),
            booted=subject.store.now() - time.clock_gettime(time.CLOCK_BOOTTIME),
        )
    )
    if found:
        yield Finding(
            HOST_NAME,
            "fatal" if nfs_version.startswith("4") else "warning",
            f"another host is named {host}, too: {found[0].agent} works there",
            "a server of NFS v4 takes the two for one, and each loses what it has open and locked",
            "give each host a name of its own",
            {"host": host, "agents": sorted({each.agent for each in found})},
        )


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
