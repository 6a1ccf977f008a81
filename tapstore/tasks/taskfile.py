"""A task file as a value: what it asks for, where it lies, and whether it can be done.  Pure.

People and scripts write these files, so everything in them is checked: names, roles, and above
all where results are to go.  Fields that tapstore does not know are kept.

Whether somebody is at work on it is not looked at: that is `taskbook`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapstore.artifacts import paths
from tapstore.errors import FormatError, InvalidKeyError
from tapstore.keys import check_name
from tapstore.tapfile import format
from tapstore.tapfile.fields import TEXT

SUFFIXES = (".json", ".yaml", ".yml")
"""Names that end otherwise are no tasks: signals, editors' backups, notes."""

MAX_BYTES = 1 << 20

_FIELDS: Mapping[str, Any] = {
    "task_id": TEXT,
    "session_id": TEXT,
    "role": TEXT,
    "requirement": TEXT,
    "output_artifact_name": TEXT,
    "output_path": TEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, as it was read."""

    key: str
    """Where its file lies: `inbox/coder/task_1.json`."""

    id: str
    """Its `task_id`, or the name of the file without its ending."""

    role: str
    """Who is to do it: `role`, or the folder that it lies in; empty if neither says."""

    document: Mapping[str, Any]
    """All that the file says."""

    digest: str
    """What identifies it, together with its place: two files with the same content differ."""

    attempt: int = 1
    """Which attempt taking it now would be."""

    @property
    def requirement(self) -> str:
        """What is to be done; empty if the file does not say."""
        return _text(self.document, "requirement")

    @property
    def output_name(self) -> str:
        """Name of the artifact that the result is to be; empty if the file does not say."""
        name = _text(self.document, "output_artifact_name")
        return name or self.output_path.rpartition("/")[2]

    @property
    def output_path(self) -> str:
        """Path that the result is to lie at; empty if the file does not say."""
        return _text(self.document, "output_path")

    @property
    def output_phase(self) -> str | None:
        """The phase that `output_path` files the result under; None if it names none."""
        parts = self.output_path.split("/")
        return parts[1] if len(parts) == 3 and parts[0] == paths.FOLDER else None

    @property
    def session_id(self) -> str:
        """The session it is for, if the file says so by that field."""
        return _text(self.document, "session_id")


def is_task_name(name: str) -> bool:
    """Whether a file of that name is read.  Dot names and `.tmp` names never are."""
    return name[:1] != "." and name.lower().endswith(SUFFIXES)


def is_whole(data: bytes) -> bool:
    """Whether a file that can be read is also finished.

    JSON ends with its last brace; the beginning of a YAML document is a YAML document.
    """
    return data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


def parse(data: bytes, *, key: str) -> Task:
    """The task in a file.  Raises `FormatError` with what is wrong and where.

    The role is what the file says; whether the session has it is for the caller to see.
    """
    name = key.rpartition("/")[2]
    if name.lower().endswith(".json") and not is_whole(data):
        raise FormatError(f"{key}: it is no JSON object: a task begins with '{{'")
    document = format.parse_plain(data, name=key, spec=_FIELDS)
    return check(document, key=key)


def check(document: Any, *, key: str) -> Task:
    """The task that a document is.  Raises `FormatError`."""
    if not isinstance(document, dict):
        raise FormatError(
            f"{key}: it is no mapping of fields; a task has task_id, requirement, "
            "output_artifact_name and output_path"
        )
    for field in _FIELDS:
        if not isinstance(document.get(field), str | None):
            kind = type(document[field]).__name__
            raise FormatError(f"{key}: {field} has to be text, not {kind}")
    # Any file may have a name that no id could be.
    stem = " ".join(key.rpartition("/")[2].rpartition(".")[0].split())[:100] or "task"
    task = Task(
        key=key,
        id=_text(document, "task_id") or stem,
        role=_text(document, "role"),
        document=document,
        digest=_digest(key, document),
    )
    try:
        check_name(task.id, "task_id")
        if task.role:
            check_name(task.role, "role")
        if task.output_name:
            paths.check_name(task.output_name)
        if task.output_path:
            paths.check_path(task.output_path)
    except InvalidKeyError as exc:
        raise FormatError(f"{key}: {exc}") from exc
    return task


def delivery(document: Mapping[str, Any]) -> str:
    """The id under which tapstore itself delivered it; done once, however often the file appears.

    Empty for what people and scripts drop: for them a file that appears again is a new task.
    """
    own = document.get("tapstore")
    found = own.get("delivery") if isinstance(own, dict) else None
    return found if isinstance(found, str) else ""


def raw_digest(key: str, data: bytes) -> str:
    """Identifies a file that is no task."""
    return _sha256(b"raw", key.encode(), data)


def _digest(key: str, document: Mapping[str, Any]) -> str:
    delivered = delivery(document)
    if delivered:
        return _sha256(b"delivery", delivered.encode())
    # By content, not by bytes: the line end that a script appends makes no second task.
    content = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return _sha256(b"task", key.encode(), content.encode())


def _sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:40]


def _text(document: Mapping[str, Any], field: str) -> str:
    value = document.get(field)
    return value if isinstance(value, str) else ""
