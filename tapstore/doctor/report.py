"""What all findings together say: one verdict, and what to exit with.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from tapstore.errors import StoreError, UnsupportedOperationError
from tapstore.types import Finding, Severity

REACH = "reach"
"""The probe whose failure says that nothing could be tried."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def verdict(findings: Sequence[Finding]) -> Severity:
    """The worst that was found."""
    return max((f.severity for f in findings), key=SEVERITIES.index, default="ok")


def exit_code(findings: Sequence[Finding]) -> int:
    """0 where one can work; else what `docs/reference/exit-codes.md` has for it."""
    fatal = {finding.probe for finding in findings if finding.severity == "fatal"}
    if any(probe.endswith(REACH) for probe in fatal):
        return StoreError.exit_code
    return UnsupportedOperationError.exit_code if fatal else 0


def summary(findings: Sequence[Finding], url: str, locks: str) -> str:
    """The verdict in one sentence; `locks` is the service that suits, or empty."""
    count = {s: sum(f.severity == s for f in findings) for s in SEVERITIES}
    if count["fatal"]:
        probes = ", ".join(f.probe for f in findings if f.severity == "fatal")
        return f"do not use {url} as it is: {probes}"
    suits = f" with locks={locks}" if locks else ""
    if count["warning"]:
        return f"{url} can be used{suits}; {_number(count['warning'], 'warning')} to look at"
    return f"{url} can be used{suits}"


def as_value(finding: Finding) -> Mapping[str, Any]:
    return {
        "probe": finding.probe,
        "severity": finding.severity,
        "seen": finding.seen,
        "means": finding.means,
        "change": finding.change,
        "values": dict(finding.values),
    }


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
