"""Where an artifact's bytes may lie: names, phases and paths, and what stands beside what.  Pure.

It does not know what a store holds (`place` looks there), and what it accepts may still be
refused by the place.  Paths in a Tapfile were written by others: they are checked again before
they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tapstore import keys
from tapstore.artifacts.model import Artifact
from tapstore.errors import InvalidKeyError

FOLDER = "artifacts"

OBJECTS = f"{FOLDER}/.objects"
"""Files of published directories, named by their checksum (see `objects`)."""

COLLECTED = f"{FOLDER}/.collected"
"""One permanent record per name that was collected (see `condemned`)."""

GIT = ".git"
"""A session may be a repository, and git runs what `.git/config` and `.git/hooks` say."""

RESERVED = (".tap", "inbox", "logs", "handoffs", OBJECTS, COLLECTED, GIT)
"""Folders of a session that no artifact may lie in, nor replace by a file."""

MAX_ALTERNATIVES = 100

UNIQUE_CHARACTERS = 16

_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_name(name: str) -> str:
    """Return `name` if an artifact can have it: printable, and one portable path segment."""
    return _segment(name, "artifact name")


def check_phase(phase: str) -> str:
    """Return `phase` if artifacts can be filed under it: one portable path segment, or empty.

    One segment, because `artifacts/<phase>/<name>` must tell where the phase ends.
    """
    return _segment(phase, "phase") if phase else phase


def _segment(text: str, what: str) -> str:
    keys.check_name(text, what)
    if "/" in text:
        raise InvalidKeyError(
            f"{what} {text!r} contains '/', but it has to name one folder or file: "
            "use '-' or '_' instead"
        )
    try:
        keys.check_key(text)
    except InvalidKeyError as exc:
        raise InvalidKeyError(f"{what} {text!r} cannot name a file: {exc}") from exc
    return text


def default_path(phase: str, name: str) -> str:
    """`artifacts/<phase>/<name>`, or `artifacts/<name>` in a session without phases."""
    check_name(name)
    return f"{FOLDER}/{phase}/{name}" if check_phase(phase) else f"{FOLDER}/{name}"


def check_path(path: str, *, registered: Iterable[str] = ()) -> str:
    """Return `path` if an artifact may lie there, beside those that are registered.

    Raises `InvalidKeyError` with the reason: not a portable relative path, in a folder that
    belongs to something else, or a file where another artifact needs a folder.
    """
    keys.check_key(path)
    # Some file systems do not tell `Inbox` from `inbox`.
    folded = path.casefold()
    for reserved in RESERVED:
        if _below(folded, reserved) or folded == reserved:
            raise InvalidKeyError(
                f"artifact path {path!r} lies in {reserved!r}, which "
                f"{'git' if reserved == GIT else 'tapstore'} keeps for itself: "
                f"use {FOLDER}/<phase>/<name>"
            )
    if folded == FOLDER:
        raise InvalidKeyError(
            f"artifact path {path!r} would be a file where the folder {FOLDER!r} has to be"
        )
    check_beside(path, registered)
    return path


def check_beside(path: str, registered: Iterable[str]) -> None:
    """Refuse a file where another artifact needs a folder, either way round.

    URIs stand beside nothing.
    """
    for other in registered:
        if "://" in path or "://" in other:
            continue
        if _below(path, other):
            raise InvalidKeyError(
                f"artifact path {path!r} needs the folder {other!r}, "
                "but an artifact is registered at that path: choose another path"
            )
        if _below(other, path):
            raise InvalidKeyError(
                f"artifact path {path!r} would be a file, "
                f"but the artifact at {other!r} needs a folder of that name: choose another path"
            )


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


def parents(path: str) -> Iterator[str]:
    """The folders above `path`, outermost first."""
    cut = path.find("/")
    while cut >= 0:
        yield path[:cut]
        cut = path.find("/", cut + 1)


def alternatives(path: str, suffix: str) -> Iterator[str]:
    """The names to try for bytes that are wanted at `path`, best first.

    `x.py`, `x~<suffix>.py`, `x~<suffix>-2.py` and so on: before the last dot, and never before
    a leading one.  All are checked before the first is returned, so that a name that has no
    room for the suffix is refused at once and not only when it is needed.
    """
    if not _SUFFIX.fullmatch(suffix):
        raise InvalidKeyError(
            f"the suffix {suffix!r} is not made of 1 to 64 letters, digits, '-' and '_'"
        )
    check_path(unique(path, suffix, "0" * UNIQUE_CHARACTERS))
    return _alternatives(path, suffix)


def unique(path: str, suffix: str, random: str) -> str:
    """A name for these bytes that nobody else uses, where names cannot be taken exclusively."""
    return _with_suffix(path, f"{suffix}-{random}")


def _alternatives(path: str, suffix: str) -> Iterator[str]:
    yield path
    yield _with_suffix(path, suffix)
    for number in range(2, MAX_ALTERNATIVES + 1):
        yield _with_suffix(path, f"{suffix}-{number}")


def _with_suffix(path: str, suffix: str) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not stem:
        stem, dot, extension = name, "", ""
    return f"{folder}{slash}{stem}~{suffix}{dot}{extension}"


def shown(path: str) -> str:
    """The path or URI for messages, without credentials."""
    if "://" not in path:
        return path
    address, mark, _ = path.partition("#")
    try:
        return keys.mask_url(address) + (mark and "#…")
    except ValueError:
        # Not a URL, so nobody knows where in it a secret might stand.
        return path.partition("://")[0] + "://…"


def describe(artifact: Artifact) -> str:
    """Which artifact, where and whose, for messages.  Safe to print whatever others wrote."""
    phase = f" of phase {artifact.phase!r}" if artifact.phase else ""
    producer = f", by {artifact.producer!r}" if artifact.producer else ""
    return f"artifact {artifact.name!r}{phase} ({shown(artifact.path)!r}{producer})"
