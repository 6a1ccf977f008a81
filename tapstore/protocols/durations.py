"""ISO 8601 durations of fixed length.  Pure.

Years and months are refused: how long they are depends on the date.
"""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<weeks>[0-9]{1,6})W|"
    r"(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?)"
)


def parse_duration(text: str) -> timedelta:
    """Raises ValueError for anything but a duration of more than zero and fixed length."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:60]!r} is no ISO 8601 duration of fixed length; write PT30M, PT1H30M or P2D "
            "(no years or months)"
        )
    given = {unit: float(value) for unit, value in match.groupdict().items() if value}
    if not any(given.values()):
        raise ValueError(f"{text[:60]!r} takes no time at all")
    return timedelta(**given)
