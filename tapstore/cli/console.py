"""What is printed, for people or for programs.

Names, ids and reasons come from files that anybody may have written: for people, everything that
a terminal could take for a command is printed escaped, on the one line where it belongs.  With
`--json` one object is one line.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


def clean(text: str) -> str:
    """`text` on one line, with everything escaped that is not a visible character or a space."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or _is_space(c) else _escaped(c) for c in text)


def _is_space(char: str) -> bool:
    return unicodedata.category(char) == "Zs"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def say(*lines: str) -> None:
    """Print lines for people on standard output."""
    sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stdout.flush()


def note(*lines: str) -> None:
    """Print lines for people on standard error: what explains, but is not the result."""
    sys.stderr.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stderr.flush()


def emit(value: Any) -> None:
    """Print one JSON object on one line on standard output."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def json_line(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode() + "\n"
    except UnicodeEncodeError:
        # The name of a file or an argument that is not UTF-8: JSON can only spell it out.
        import json

        return json.dumps(msgspec.to_builtins(value)) + "\n"


_WIDEST = 48
"""One name that somebody gave must not move all other lines off the screen."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns; the last column, and cells that are very long, stick out."""
    cells = [list(header), *([clean(cell) for cell in row] for row in rows)]
    widths = [min(max(map(_width, column)), _WIDEST) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def _width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def span(seconds: float) -> str:
    """`4 s`, `3 min`, `5 h`, `12 d`: about how long, for people."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def size(count: int | None) -> str:
    """`120 B`, `4.2 kB`, `1.3 GB`, for people."""
    if count is None:
        return "?"
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 999.95:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} TB"
