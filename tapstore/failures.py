"""What stores say when they refuse: one wording for all of them.

Nothing here decides anything; it makes exceptions for the caller to raise.
"""

from __future__ import annotations

import errno as codes
import os

from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidKeyError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.types import CREATE, OVERWRITE, PutMode, Update

_ADVICE = {
    codes.ENOSPC: "the disk is full: free some space and repeat",
    codes.EDQUOT: "the disk quota is used up: free some space or ask for more, then repeat",
    codes.EFBIG: "the file is larger than the file system or the process limit allows",
    codes.EROFS: "the file system is mounted read-only",
    codes.EACCES: "no permission: check owner and mode of the folder and the user you run as",
    codes.EPERM: "not permitted: check owner, mode and attributes of the folder",
    codes.EIO: "the device or mount failed: look at the system log",
    codes.ESTALE: "the NFS handle is stale: somebody replaced the folder, or remount it",
    codes.ETIMEDOUT: "the server does not answer: check the mount",
    codes.EISDIR: "a folder is where a file should be: move it away",
    codes.ENOTDIR: "a file is where a folder should be: move it away",
    codes.ELOOP: "symbolic links go round in a circle",
    codes.EMFILE: "too many open files in this process: raise `ulimit -n`",
    codes.ENFILE: "too many open files on this host",
    codes.ENAMETOOLONG: "the path is too long for this file system: use a shorter root",
}


def already_exists(url: str, key: str) -> AlreadyExistsError:
    error = AlreadyExistsError(f"{key!r} exists already in {url}; nothing was written")
    error.errno = codes.EEXIST
    return error


def not_found(url: str, key: str) -> NotFoundError:
    error = NotFoundError(f"no {key!r} in {url}")
    error.errno = codes.ENOENT
    return error


def conflict(url: str, key: str, *, expected: str, found: str | None) -> ConflictError:
    state = "is gone" if found is None else f"has version {found}"
    return ConflictError(
        f"{key!r} in {url} {state}, not version {expected} as read; "
        "nothing was changed: read it again"
    )


def unsupported(url: str, capability: str, instead: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"{url} lacks the capability {capability!r}: {instead}")


def failed(url: str, key: str, action: str, cause: OSError) -> StoreError:
    """The place said no, and nothing changed.  Raise it `from cause`."""
    code = cause.errno
    reason = cause.strerror or str(cause) or type(cause).__name__
    advice = _ADVICE.get(code, "") if code is not None else ""
    if code == codes.EACCES and hasattr(os, "geteuid"):
        advice += f" (uid {os.geteuid()})"
    error = StoreError(f"cannot {action} {key!r} in {url}: {reason}{advice and '; ' + advice}")
    error.errno = code
    return error


def outcome_unknown(url: str, key: str, action: str, cause: BaseException) -> OutcomeUnknownError:
    """It may have happened.  Raise it `from cause`."""
    return OutcomeUnknownError(
        f"cannot tell whether {action} of {key!r} in {url} took effect ({cause}); "
        "read the key to find out: it holds these bytes if it did"
    )


def check_mode(mode: object) -> PutMode | Update:
    """Refuse what is not a put mode: a string taken for one must never mean OVERWRITE."""
    if mode is CREATE or mode is OVERWRITE or isinstance(mode, Update):
        return mode
    raise TypeError(f"mode must be CREATE, OVERWRITE or Update(version), not {mode!r}")


def check_range(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"invalid range: start={start}, end={end}")


def check_folder(prefix: str) -> None:
    """Refuse a prefix that is not the name of a folder; `check_prefix` sees to the rest."""
    if prefix and not prefix.endswith("/"):
        raise InvalidKeyError(f"invalid prefix {prefix!r}: it must be empty or end in '/'")
