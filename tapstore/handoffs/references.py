"""Which artifacts a message names, and with which bytes: the header `artifacts`.  Pure.

`report.md@sha256:<hex> phase-1/a%20b.py@sha256:<hex>`: phase and name as key segments (percent
encoded), separated by single spaces.  One reference has one written form.

Whether the session has these artifacts, with these sums, is for the session to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tapstore.artifacts import paths
from tapstore.errors import FormatError, InvalidKeyError
from tapstore.keys import decode_name, encode_name

MAX_REFERENCES = 100

FORM = (
    "<name>@sha256:<64 hex digits>, with <phase>/ before it if it has one; spaces between several"
)

_REFERENCE = re.compile(r"(?:([^/\s]+)/)?([^/\s]+)@sha256:([0-9a-f]{64})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """One artifact, and the SHA-256 of the bytes that are meant.  Raises `FormatError`."""

    name: str
    sha256: str
    phase: str = ""

    def __post_init__(self) -> None:
        try:
            paths.check_name(self.name)
            paths.check_phase(self.phase)
            encode_name(self.name)
            encode_name(self.phase)
        except InvalidKeyError as exc:
            raise FormatError(f"no reference to an artifact: {exc}") from exc
        if _SHA256.fullmatch(self.sha256) is None:
            raise FormatError(
                f"the checksum {self.sha256[:80]!r} of artifact {self.name!r} is no SHA-256: 64 "
                "hexadecimal digits in lower case"
            )

    def __str__(self) -> str:
        phase = f"{encode_name(self.phase)}/" if self.phase else ""
        return f"{phase}{encode_name(self.name)}@sha256:{self.sha256}"

    @property
    def checksum(self) -> str:
        """`sha256:<hex>`, as in the Tapfile."""
        return f"sha256:{self.sha256}"


def render(references: Iterable[Reference]) -> str:
    """The value of the header.  Raises `FormatError` for too many or doubled ones."""
    return " ".join(map(str, _checked(tuple(references))))


def parse(value: str) -> tuple[Reference, ...]:
    """The references in the value of a header.  Raises `FormatError` with the first fault."""
    words = value.split(" ", MAX_REFERENCES)
    return _checked(tuple(map(_parse_one, words)))


def _parse_one(word: str) -> Reference:
    shown = repr(word if len(word) <= 100 else f"{word[:99]}…")
    match = _REFERENCE.fullmatch(word)
    if match is None:
        raise FormatError(f"{shown} is no reference to an artifact; it looks like {FORM}")
    phase, name, sha256 = match.groups()
    reference = Reference(decode_name(name), sha256, decode_name(phase or ""))
    if str(reference) != word:
        raise FormatError(f"{shown} is not how that reference is written: {reference}")
    return reference


def _checked(references: tuple[Reference, ...]) -> tuple[Reference, ...]:
    if not references:
        raise FormatError("it names no artifact")
    if len(references) > MAX_REFERENCES:
        raise FormatError(f"it names more than {MAX_REFERENCES} artifacts")
    seen = set()
    for reference in references:
        artifact = (reference.phase, reference.name)
        if artifact in seen:
            raise FormatError(f"it names the artifact {reference.name!r} twice")
        seen.add(artifact)
    return references
