"""What the Tapfile says about an artifact.  A value; no I/O.

An artifact is identified by phase and name.  Its bytes never change: registering a new version
writes a new file and moves the registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

KNOWN_FIELDS = (
    "name",
    "path",
    "type",
    "producer",
    "consumer",
    "checksum",
    "phase",
    "size",
    "media_type",
    "role",
    "manifest",
    "metadata",
)


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `artifacts:`.  The first six fields are those of the original Tapfile."""

    name: str
    path: str
    """Key in the session, or a URI (`s3://…`, `https://…`) for bytes that live elsewhere."""

    type: str = ""
    producer: str = ""
    """Agent id."""

    consumer: tuple[str, ...] = ()
    """Roles or agent ids."""

    checksum: str = ""
    """`sha256:<hex>`; empty only where an external URI was registered without one."""

    phase: str = ""
    size: int | None = None
    """Bytes."""

    media_type: str = ""
    role: str = ""
    """The role under whose claim it was published; a later claim of that role may replace it."""

    manifest: bool = False
    """The bytes are a directory's manifest (see `artifacts.directory`)."""

    metadata: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}
    """Fields of other programs, kept as they are."""

    @property
    def identity(self) -> tuple[str, str]:
        return (self.phase, self.name)

    @property
    def is_external(self) -> bool:
        return "://" in self.path


def from_doc(doc: Mapping[str, Any]) -> Artifact:
    """The artifact of one checked entry of the document.

    An entry without `phase` (another program wrote it) has the phase that its path names.
    """
    known = {key: doc[key] for key in KNOWN_FIELDS if doc.get(key) is not None}
    known["consumer"] = tuple(known.get("consumer", ()))
    if "phase" not in known:
        parts = str(known["path"]).split("/")
        if len(parts) > 2 and parts[0] == "artifacts":
            known["phase"] = parts[1]
    extra = {key: value for key, value in doc.items() if key not in KNOWN_FIELDS}
    return Artifact(**known, extra=extra)


def to_doc(artifact: Artifact) -> dict[str, Any]:
    """The entry of the document, in its usual order, without empty optional fields."""
    doc: dict[str, Any] = {
        "name": artifact.name,
        "path": artifact.path,
        "type": artifact.type,
        "producer": artifact.producer,
        "consumer": list(artifact.consumer),
        "checksum": artifact.checksum,
        "phase": artifact.phase,
    }
    if artifact.size is not None:
        doc["size"] = artifact.size
    if artifact.media_type:
        doc["media_type"] = artifact.media_type
    if artifact.role:
        doc["role"] = artifact.role
    if artifact.manifest:
        doc["manifest"] = True
    if artifact.metadata:
        doc["metadata"] = dict(artifact.metadata)
    doc.update(artifact.extra)
    return doc
