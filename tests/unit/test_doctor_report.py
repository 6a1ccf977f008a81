"""One verdict for all findings, and the exit code of it."""

from __future__ import annotations

import pytest

from tapstore.doctor import report
from tapstore.types import Finding


def findings(*severities, probe="x"):
    return [Finding(probe, severity, "") for severity in severities]


@pytest.mark.parametrize(
    ("severities", "worst", "code"),
    [
        ((), "ok", 0),
        (("ok", "note"), "note", 0),
        (("warning", "ok", "note"), "warning", 0),
        (("ok", "fatal", "warning"), "fatal", 3),
    ],
)
def test_the_worst_finding_is_the_verdict(severities, worst, code):
    found = findings(*severities)
    assert report.verdict(found) == worst
    assert report.exit_code(found) == code


@pytest.mark.parametrize("probe", ["reach", "locks-reach"])
def test_what_cannot_be_reached_has_an_exit_code_of_its_own(probe):
    assert report.exit_code(findings("fatal", probe=probe)) == 9


def test_the_summary_names_what_is_fatal():
    said = report.summary([*findings("ok"), *findings("fatal", probe="clock")], "s3://b", "store")
    assert said == "do not use s3://b as it is: clock"


def test_the_summary_names_the_locks_and_counts_warnings():
    assert (
        report.summary(findings("note"), "s3://b", "store") == "s3://b can be used with locks=store"
    )
    assert report.summary(findings("warning"), "s3://b", "").endswith("; 1 warning to look at")
    assert report.summary(findings("warning", "warning"), "s3://b", "").endswith(
        "2 warnings to look at"
    )
