"""Kinds of values on the command line: durations, sizes, assignments, files with options.

Each is a function from text to value, for `type=…`; what it refuses it refuses with an example.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import click

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def duration(value: str | float) -> float:
    """Seconds, of a number that may have a unit."""
    if isinstance(value, int | float):
        return float(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|m|h|d)?", value.strip())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is no duration: write seconds, or a number with ms, s, m, h or d "
            "(30, 500ms, 5m)"
        )
    return float(match[1]) * _UNITS[match[2] or "s"]


def duration_or_forever(value: str | float) -> float:
    """The same, or infinity for `forever`."""
    return math.inf if value == "forever" else duration(value)


def or_none(seconds: float | None) -> float | None:
    """What the API takes: None for ever."""
    return None if seconds is None or math.isinf(seconds) else seconds


_SIZES = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def size(value: str | int) -> int:
    """Bytes, of a number that may have a unit."""
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]?)(i?)B?", value.strip())
    if match is None or (match[3] and not match[2]):
        raise click.BadParameter(
            f"{value!r} is no size: write bytes, or a number with kB, MB, GB, KiB, MiB or GiB "
            "(500000, 10MB, 64MiB)"
        )
    unit = match[2].replace("K", "k")
    factor = 1024 ** " kMGT".index(unit) if match[3] else _SIZES[unit]
    return int(float(match[1]) * factor)


def assignment(value: str | tuple[str, str]) -> tuple[str, str]:
    """`name=value`, split at the first `=`."""
    if isinstance(value, tuple):
        return value
    name, equals, text = value.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE")
    return name, text


def json_or_text(text: str) -> Any:
    """The value that JSON text stands for; any other text stands for itself."""
    import msgspec

    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return text


_FILE_OPTIONS = ("name", "type", "consumer", "phase", "path", "media_type")


def file_to_publish(value: str | tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """`FILE[:option=value,…]`: the path, and arguments for `Session.stage`."""
    if isinstance(value, tuple):
        return value
    path, colon, rest = value.rpartition(":")
    # A colon may be part of the file's name.
    if not colon or not re.match(r"[a-z_]+=", rest):
        path, rest = value, ""
    options: dict[str, Any] = {"name": os.path.basename(path.rstrip("/")), "consumers": []}
    for item in filter(None, rest.split(",")):
        name, _, text = item.partition("=")
        if name not in _FILE_OPTIONS:
            raise click.BadParameter(
                f"{value!r} has the option {name!r}; there are {', '.join(_FILE_OPTIONS)}"
            )
        if name == "consumer":
            options["consumers"].append(text)
        else:
            options[name] = text
    if not os.path.exists(path):
        raise click.BadParameter(f"there is no file {path!r}")
    return path, options
