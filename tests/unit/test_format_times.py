from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tapstore.clock import format_time, parse_time
from tapstore.tapfile.times import canonical_time

zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
# A year's room at both ends, for the zones.
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-04-15T10:30:00Z", "2024-04-15T10:30:00Z"),
        ("2024-04-15 10:30:00+00:00", "2024-04-15T10:30:00Z"),
        ("2024-04-15 10:30:00", "2024-04-15T10:30:00Z"),
        ("2024-04-15T10:30Z", "2024-04-15T10:30:00Z"),
        ("2024-04-15", "2024-04-15T00:00:00Z"),
        ("2024-4-5 1:02:03 -5", "2024-04-05T06:02:03Z"),
        ("2024-04-15T10:30:00+0545", "2024-04-15T04:45:00Z"),
        ("2024-01-01T00:30:00+02:00", "2023-12-31T22:30:00Z"),
        ("2024-04-15T10:30:00.500Z", "2024-04-15T10:30:00.5Z"),
        ("2024-04-15T10:30:00,123456789Z", "2024-04-15T10:30:00.123456789Z"),
        ("2024-04-15T10:30:00.000Z", "2024-04-15T10:30:00Z"),
        ("0099-01-01T00:00:00Z", "0099-01-01T00:00:00Z"),
        ("0099-01-01 00:00:00", "0099-01-01T00:00:00Z"),
    ],
)
def test_every_form_becomes_the_one_form(text, expected):
    assert canonical_time(text) == expected


@pytest.mark.parametrize(
    "text",
    ["now", "1713177000", "10:30", "2024-02-30T10:00:00Z", "2024-04-15T24:00:00Z", "20240415",
     "2024-04-15T10:30:60Z", "2024-04-15T10:30:00Z ", "٢٠٢٤-04-15", "0001-01-01T00:00:00+01:00",
     "2024-04-15T10:30:00+99:00Z", "2024-04-15T10:30:00ZZ", "2024-04-15T10:30:00Z\n"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"is no time.*write it like 2024-04-15T10:30:00Z"):
        canonical_time(text)


@given(moments, zones)
def test_the_form_that_yaml_makes_of_a_time_becomes_that_time(moment, zone):
    written = yaml.safe_dump(moment.replace(tzinfo=zone)).split("\n")[0]
    # In whole microseconds: seconds as floats do not tell them apart.
    aware = moment.replace(tzinfo=zone).astimezone(UTC)
    fraction = f".{aware.microsecond:06}".rstrip("0") if aware.microsecond else ""
    expected = aware.replace(microsecond=0, tzinfo=None).isoformat() + fraction + "Z"
    assert canonical_time(written) == expected


@given(moments)
def test_the_one_form_stays_as_it_is(moment):
    text = canonical_time(moment.isoformat())
    assert canonical_time(text) == text


@given(st.integers(0, 2**33))
def test_what_the_clock_writes_is_already_in_the_one_form(seconds):
    assert canonical_time(format_time(seconds)) == format_time(seconds)
    assert parse_time(canonical_time(format_time(seconds))) == seconds
