"""The command line `tapstore`.

A surface and no more: each command opens a session, calls it, and prints what came of it.  What
may happen in a session is decided below; what is printed with `--json`, and the exit codes, are
kept as they are from version to version (docs/reference/cli.md, exit-codes.md).
"""

from __future__ import annotations


def main() -> None:
    """What the `tapstore` script calls."""
    import sys

    from tapstore.cli.app import run

    sys.exit(run(sys.argv[1:]))
