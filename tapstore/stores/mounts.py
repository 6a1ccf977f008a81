"""What kind of mount a folder is on, and which of its options are bad for sharing a session.

`judge` is pure: a mount, as the kernel describes it, in; findings out.  `look` reads the
description of a real folder and tries what no description tells: hard links.

A finding is advice, not proof.  That none is found proves nothing either: what a mount does with
two hosts on it is only seen from two hosts.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tapstore.errors import UnsupportedOperationError
from tapstore.keys import TEMP_MARK

NFS = frozenset({"nfs", "nfs4"})

SSHFS = "fuse.sshfs"

_MEMORY = frozenset({"tmpfs", "ramfs"})

_LINKLESS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)

_DEFAULT_CACHE_SECONDS = 60
"""For how long Linux uses attributes at most, if it is not told otherwise."""

_BUCKETS: Mapping[str, str] = {
    "fuse.blobfuse": "az://",
    "fuse.blobfuse2": "az://",
    "fuse.gcsfuse": "gs://",
    "fuse.geesefs": "s3://",
    "fuse.goofys": "s3://",
    "fuse.mountpoint-s3": "s3://",
    "fuse.rclone": "s3://, gs:// or az://",
    "fuse.s3fs": "s3://",
}
"""Buckets that are made to look like folders, and where to find what they really are."""

_UNPROVEN = ("fuse.", "fuse", "cifs", "smb3", "9p", "virtiofs", "vboxsf")
"""What somebody else's program answers for; some of them keep names for a while."""

_PROVEN_FUSE = frozenset({"fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.lustre"})


class Severity(Enum):
    ERROR = "error"
    """Work can be lost, or people who are alive be taken for dead."""

    WARNING = "warning"
    """Something that a session offers does not hold here."""

    NOTE = "note"
    """Good to know; nothing needs to be done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a place that its users should know."""

    code: str
    """Stable, for programs."""

    severity: Severity
    text: str
    remedy: str
    """What to change; empty if nothing."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of `/proc/self/mountinfo`."""

    point: str
    type: str
    source: str
    """Of NFS `server:/export`."""

    options: Mapping[str, str]
    """Those of the mount and of the file system; a flag has the value ""."""

    @property
    def server(self) -> str:
        """Who serves it; empty for a local file system."""
        if self.type not in NFS:
            return ""
        return self.source.partition(":/")[0]

    @property
    def version(self) -> str:
        """Of NFS: "3", "4.2"; else empty."""
        return self.options.get("vers", "") if self.type in NFS else ""


# Reading


def parse(mountinfo: str) -> Iterator[Mount]:
    """The mounts of a text in the format of `/proc/self/mountinfo`, in its order."""
    for line in mountinfo.splitlines():
        # Fields that only some mounts have stand before the lone dash.
        before, dash, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if not dash or len(head) < 6 or len(tail) < 3:
            continue
        options = dict(_options(head[5]))
        options.update(_options(tail[2]))
        yield Mount(_unescape(head[4]), tail[0], _unescape(tail[1]), options)


def find(mountinfo: str, path: str) -> Mount | None:
    """The mount that an absolute path without symbolic links is on."""
    found = None
    for mount in parse(mountinfo):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # Of several at one point the last one hides the others.
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _options(text: str) -> Iterator[tuple[str, str]]:
    for option in text.split(","):
        name, _, value = option.partition("=")
        yield name, value


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


# Judging


def server_url(mount: Mount) -> str:
    """How the URL begins of a folder of a server that sshfs shows; empty if it is none."""
    # `me@host:/srv/team`, `[::1]:/srv/team`; a path that begins at a home has no URL.
    found = re.fullmatch(r"(?:.*@)?(\[.*?\]|[^:@]+):/+(.*?)/*", mount.source)
    if mount.type != SSHFS or found is None:
        return ""
    return f"sftp://{found[1]}/{found[2]}/" if found[2] else f"sftp://{found[1]}/"


def native_url(mount: Mount) -> str:
    """How the URL begins of a bucket that is mounted as a folder; empty if it is no bucket."""
    return _BUCKETS.get(mount.type, "")


def judge(mount: Mount, *, no_links: str = "") -> tuple[Finding, ...]:
    """What is to be said of a mount; `no_links`: why a hard link could not be made, if so."""
    findings = []
    if "ro" in mount.options:
        findings.append(
            Finding(
                "read-only", Severity.ERROR,
                f"{mount.point} is mounted read-only: sessions on it can be read, and no more",
                "mount it with `rw`",
            )
        )  # fmt: skip
    if mount.type in _BUCKETS:
        findings.append(_bucket(mount))
    elif no_links:
        findings.append(_linkless(mount, no_links))
    if mount.type in NFS:
        findings.extend(_nfs(mount))
    elif mount.type in _MEMORY:
        findings.append(
            Finding(
                "in-memory", Severity.WARNING,
                f"{mount.point} is a {mount.type}: what lies there is gone after a reboot, and no "
                "other host sees it",
                "fine for trying things out; else take a folder on a disk or a server",
            )
        )  # fmt: skip
    elif mount.type == "overlay":
        findings.append(
            Finding(
                "container-layer", Severity.WARNING,
                f"{mount.point} is the file system of a container: what lies there is gone with "
                "the container, and no other one sees it",
                "mount a volume, and put sessions there",
            )
        )  # fmt: skip
    elif mount.type == SSHFS:
        findings.append(
            Finding(
                "sshfs-caches", Severity.WARNING,
                f"{mount.point} is an sshfs mount: for 20 s, if it is not told otherwise, this "
                "host shows names, sizes and times as they were, and may take agents of other "
                "hosts for dead",
                f"use the server itself, {server_url(mount) or 'sftp://'}…",
            )
        )  # fmt: skip
    elif mount.type.startswith(_UNPROVEN) and mount.type not in {*_BUCKETS, *_PROVEN_FUSE}:
        findings.append(
            Finding(
                "unproven", Severity.NOTE,
                f"{mount.point} is a {mount.type} mount: whether two hosts on it exclude each "
                "other, and how late they see what the other one wrote, depends on what serves it",
                "try it out from two hosts before you rely on it",
            )
        )  # fmt: skip
    return tuple(findings)


def _nfs(mount: Mount) -> Iterator[Finding]:
    options = mount.options
    if mount.version.startswith("2"):
        yield Finding(
            "nfs-version-2", Severity.ERROR,
            "NFS version 2 cannot create a file exclusively: two clients may both believe to "
            "have made it",
            "mount with `vers=4.2`, or at least `vers=3`",
        )  # fmt: skip
    elif mount.version.startswith("3"):
        yield Finding(
            "nfs-version-3", Severity.NOTE,
            "NFS version 3 keeps no file open: who reads a file in pieces gets an error when "
            "somebody replaces it meanwhile (sessions replace no artifacts)",
            "`vers=4.2` if the server has it",
        )  # fmt: skip
    for soft in ("soft", "softerr"):
        if soft in options:
            yield Finding(
                "nfs-soft", Severity.ERROR,
                f"mounted `{soft}`: when the server is slow, writes fail that may still be done "
                "later, and what a program wrote may be lost without anybody being told",
                "mount with `hard`",
            )  # fmt: skip
    if "nocto" in options:
        yield Finding(
            "nfs-nocto", Severity.ERROR,
            "mounted `nocto`: what is opened is not compared with the server, so this host may "
            "see old files for a minute, and take agents of other hosts for dead",
            "mount without `nocto`",
        )  # fmt: skip
    yield from _caching(options)
    yield from _locking(options)
    if options.get("proto", "").startswith("udp"):
        yield Finding(
            "nfs-udp", Severity.WARNING,
            "mounted over UDP: on fast networks packets that were put together wrongly can damage "
            "data silently",
            "mount with `proto=tcp`",
        )  # fmt: skip


def _caching(options: Mapping[str, str]) -> Iterator[Finding]:
    if "noac" in options:
        return
    longest = {
        name: int(options.get(name) or _DEFAULT_CACHE_SECONDS)
        for name in ("acregmax", "acdirmax")
        if (options.get(name) or "0").isdecimal()
    }
    for name, seconds in longest.items():
        if seconds > _DEFAULT_CACHE_SECONDS:
            yield Finding(
                "nfs-cache-long", Severity.WARNING,
                f"`{name}` is {seconds} s: for so long this host may show old sizes, times and "
                "listings to programs that look without opening",
                "mount with `actimeo=3`, or leave the defaults",
            )  # fmt: skip
    if options.get("lookupcache", "all") == "all":
        seconds = longest.get("acdirmax", _DEFAULT_CACHE_SECONDS)
        yield Finding(
            "nfs-absence-cached", Severity.NOTE,
            f"this host remembers for up to {seconds} s that a file was not there; tapstore asks "
            "again, but other programs that wait for a file see it late",
            "mount with `lookupcache=pos` if such programs take part",
        )  # fmt: skip


def _locking(options: Mapping[str, str]) -> Iterator[Finding]:
    local = options.get("local_lock", "none")
    if "nolock" in options or local != "none":
        name = "nolock" if "nolock" in options else f"local_lock={local}"
        yield Finding(
            "nfs-locks-local", Severity.WARNING,
            f"mounted `{name}`: flock and fcntl keep apart programs on this host, but not those "
            "of different hosts.  No commit of tapstore rests on them",
            f"mount without `{name}` if programs that use such locks take part",
        )  # fmt: skip


def _bucket(mount: Mount) -> Finding:
    return Finding(
        "bucket-mount", Severity.ERROR,
        f"{mount.point} is a bucket behind {mount.type.removeprefix('fuse.')}: what looks like "
        "creating or renaming a file there is not exclusive between hosts",
        f"take the bucket itself: {_BUCKETS[mount.type]}…",
    )  # fmt: skip


def _linkless(mount: Mount, reason: str) -> Finding:
    return Finding(
        "no-hard-links", Severity.ERROR,
        f"{mount.point} ({mount.type}) has no hard links ({reason}), by which a file appears "
        "whole and for one writer only",
        "take a folder on another file system, or a bucket",
    )  # fmt: skip


# Looking


def look(folder: str | os.PathLike[str]) -> tuple[Mount | None, tuple[Finding, ...]]:
    """The mount that an existing folder is on, and what is to be said of it.

    Makes and removes a small file there, if that is allowed.  The mount is None where the system
    does not describe its mounts.
    """
    path = os.path.realpath(folder, strict=True)
    mount = mount_of(path)
    reason = why_no_links(path)
    return mount, judge(mount or Mount(path, "unknown", "", {}), no_links=reason)


def mount_of(folder: str | os.PathLike[str]) -> Mount | None:
    """The mount that a folder is on or would be made on; None if the system does not tell."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return find(file.read(), os.path.realpath(folder))
    except FileNotFoundError:
        return None


def refuse(folder: str | os.PathLike[str]) -> None:
    """Raise `UnsupportedOperationError` where the mount alone says that work can be lost.

    Nothing is tried; the folder need not be there.
    """
    mount = mount_of(folder)
    for finding in () if mount is None else judge(mount):
        if finding.severity is Severity.ERROR:
            raise UnsupportedOperationError(
                f"nothing can be shared in {os.fspath(folder)}: {finding.text}; {finding.remedy}"
            )


def why_no_links(folder: str) -> str:
    """Why no hard link can be made in `folder`; empty if it can, or if nothing can be made."""
    name = f"{folder}/{TEMP_MARK}{secrets.token_hex(8)}"
    linked = f"{name}l"
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError:
        return ""
    try:
        os.link(name, linked)
        same = os.path.samefile(name, linked)
        os.unlink(linked)
    except OSError as exc:
        return exc.strerror or str(exc) if exc.errno in _LINKLESS else ""
    finally:
        os.unlink(name)
    return "" if same else "it made a copy instead"
