"""What is wrong with a definition, where, and how an instance gets there.  Pure.

Codes are a contract: one may be added, none changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
MAX_FINDINGS = 200
"""As many are told of one file."""

Path = tuple[str | int, ...]
"""Keys and positions, from the document inwards."""

SEVERITIES: Mapping[str, Severity] = {
    "unreadable": "error",
    "malformed": "error",
    "too-large": "error",
    "duplicate-name": "error",
    "undeclared-name": "error",
    "undeclared-field": "error",
    "invalid-schema": "error",
    "invalid-duration": "error",
    "invalid-expression": "error",
    "invalid-action": "error",
    "invalid-counts": "error",
    "initial-state": "error",
    "state-unreachable": "error",
    "state-dead-end": "error",
    "state-without-deadline": "warning",
    "transitions-overlap": "warning",
    "transition-from-final": "error",
    "guard-never-true": "error",
    "guard-always-true": "warning",
    "quorum-too-large": "error",
    "quorum-unused": "warning",
    "message-never-accepted": "error",
    "permission-moot": "warning",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    code: str
    message: str
    path: Path = ()
    line: int = 0
    """From 1; 0 where it is about the whole file."""
    column: int = 0
    trace: tuple[str, ...] = ()
    """The events of a shortest way from the initial state to it, where there is one."""

    @property
    def severity(self) -> Severity:
        return SEVERITIES[self.code]
