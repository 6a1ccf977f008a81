"""Reads from streams that may give less than they are asked for."""

from __future__ import annotations

from typing import BinaryIO


def read_up_to(size: int, source: BinaryIO) -> bytes:
    """The next `size` bytes of `source`, or fewer at its end."""
    pieces = []
    while size > 0 and (piece := source.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
