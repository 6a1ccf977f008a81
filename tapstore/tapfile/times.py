"""The one written form of a time in a Tapfile, made of every form that it comes back in.  Pure.

A program that loads a time with a YAML 1.1 library and writes it back changes how it looks, not
what it is; in one form, equal times compare equal.  Nothing is rounded: digits of a second are
kept, as many as there are.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\dZ", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:(?:[Tt]|[ \t]+)(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d*))?)?"
    r"(?:[ \t]*(?:[Zz]|([-+])(\d\d?)(?::?(\d\d))?))?)?",
    re.ASCII,
)
_WRITE_LIKE = "write it like 2024-04-15T10:30:00Z"


def canonical_time(text: str) -> str:
    """The one way in which a time is written: `2024-04-15T10:30:00Z`, `2024-04-15T10:30:00.25Z`.

    Takes ISO 8601 and every form that YAML 1.1 libraries make of it; without a zone it is UTC,
    without a time of day midnight.  Raises `ValueError`.
    """
    try:
        if _CANONICAL.fullmatch(text):
            datetime.fromisoformat(text)
            return text
        match = _TIME.fullmatch(text)
        if match is not None:
            return _in_utc(*match.groups())
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"{_cut(text)} is no time ({exc}); {_WRITE_LIKE}") from exc
    raise ValueError(f"{_cut(text)} is no time; {_WRITE_LIKE}")


def _in_utc(
    year: str, month: str, day: str,
    hour: str | None, minute: str | None, second: str | None, fraction: str | None,
    sign: str | None, zone_hours: str, zone_minutes: str | None,
) -> str:  # fmt: skip
    moment = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
    )
    if sign:
        ahead = timedelta(hours=int(zone_hours), minutes=int(zone_minutes or 0))
        moment += -ahead if sign == "+" else ahead
    # The digits are kept as they are: nanoseconds do not fit into a datetime.
    digits = (fraction or "").rstrip("0")
    return f"{moment.isoformat()}{'.' if digits else ''}{digits}Z"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
