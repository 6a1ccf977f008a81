"""How far a long transfer has come, on a terminal; elsewhere nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from tapstore.cli.console import clean

_FROM_BYTES = 8 << 20
"""Less is there before anybody could read it."""


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a hook for `on_progress`, or None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        bar = None
        at = 0

        def show(done: int, total: int | None) -> None:
            nonlocal bar, at
            if total is None or total < _FROM_BYTES:
                return
            if bar is None:
                made = click.progressbar(length=total, label=clean(label), file=sys.stderr)
                bar = stack.enter_context(made)
            # It may go back, where something is sent again; the bar alone would not.
            bar.update(done - at)
            at = done

        yield show
