"""The manifest of a published directory: which files it has, by their checksums.  Pure.

The same tree always gives the same bytes, so the manifest's checksum identifies the tree.  Kept
are paths, contents and the executable bit; not kept are empty folders, times, owners and other
bits.  What is read was written by others: `parse` accepts only what can be recreated below one
folder on every system.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Annotated

import msgspec

from tapstore import keys
from tapstore.artifacts.paths import OBJECTS, parents
from tapstore.errors import FormatError, InvalidKeyError

FORMAT = "tapstore-manifest"
VERSION = 1
MEDIA_TYPE = "application/vnd.tapstore.manifest+json"

MAX_ENTRIES = 100_000
MAX_BYTES = 32 << 20
MAX_GENERATIONS = 1000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the tree."""

    path: str
    """Relative to the directory, with `/`."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    executable: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All files of the tree, sorted by the UTF-8 bytes of their paths."""

    format: str = FORMAT
    version: int = VERSION
    entries: tuple[Entry, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)


class _Header(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


def build(entries: Iterable[Entry]) -> Manifest:
    """The manifest of these files.  Raises `InvalidKeyError` for what `parse` would refuse."""
    ordered = tuple(sorted(entries, key=lambda entry: entry.path.encode()))
    fault = _fault(ordered)
    if fault:
        raise InvalidKeyError(fault)
    return Manifest(entries=ordered)


def render(manifest: Manifest) -> bytes:
    """The manifest's bytes: JSON, one line."""
    return msgspec.json.encode(manifest) + b"\n"


def parse(data: bytes, what: str) -> Manifest:
    """The manifest that the bytes describe; raises `FormatError`, beginning with `what`."""
    try:
        header = msgspec.json.decode(data, type=_Header)
        if header.format != FORMAT:
            raise FormatError(f"{what} is not a {FORMAT}: its format is {header.format[:40]!r}")
        if header.version > VERSION:
            raise FormatError(
                f"{what} has version {header.version} of the format, and this tapstore reads up "
                f"to {VERSION}: upgrade it"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise FormatError(f"{what} is not a {FORMAT}: {exc}") from exc
    fault = _fault(manifest.entries)
    if fault is None and list(manifest.entries) != sorted(
        manifest.entries, key=lambda entry: entry.path.encode()
    ):
        fault = "its entries are not sorted"
    if fault:
        raise FormatError(f"{what} cannot be recreated safely: {fault}; nothing was written")
    return manifest


def _fault(entries: tuple[Entry, ...]) -> str | None:
    if len(entries) > MAX_ENTRIES:
        return (
            f"it has {len(entries)} files, more than {MAX_ENTRIES}: "
            "publish an archive of the directory instead"
        )
    spelled: dict[str, str] = {}
    files = set()
    for entry in entries:
        try:
            keys.check_key(entry.path)
        except InvalidKeyError as exc:
            return str(exc)
        if entry.path in files:
            return f"the path {entry.path!r} is there twice"
        files.add(entry.path)
        for part in (*parents(entry.path), entry.path):
            # Such names are one name on file systems that do not tell capitals apart.
            other = spelled.setdefault(unicodedata.normalize("NFC", part.casefold()), part)
            if other != part:
                return f"the paths {other!r} and {part!r} differ by case only"
    for path in sorted(files):
        for parent in parents(path):
            if parent in files:
                return f"the path {parent!r} is a file, and {path!r} needs it to be a folder"
    return None


def object_key(sha256: str, generation: int = 0) -> str:
    """Where the content of this sum lies.

    Generation n+1 is used when the name of generation n was, or may just be being, collected.
    """
    return f"{OBJECTS}/{sha256[:2]}/{sha256}" + (f"~{generation}" if generation else "")


def object_keys(sha256: str) -> Iterable[str]:
    """All names that this content may have, in the order in which they are used."""
    return (object_key(sha256, generation) for generation in range(MAX_GENERATIONS))


def sha256_of(key: str) -> str | None:
    """The sum that an object's name tells, or None if `key` names no object."""
    if not key.startswith(OBJECTS + "/"):
        return None
    return key.rpartition("/")[2].partition("~")[0]
