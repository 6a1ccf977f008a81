"""Increments a counter in a session until its standard input is closed.

Prints a JSON line before and after each attempt: what was printed as `ok` must be in the log
once, what was `refused` must not be, and of an attempt that only has `try` nobody knows.
"""

import json
import os
import select
import sys
import uuid

import tapstore


def say(attempt: str, outcome: str) -> None:
    os.write(1, (json.dumps({"attempt": attempt, "outcome": outcome}) + "\n").encode())


def increment(document: dict) -> None:
    document["counter"] += 1


def main() -> None:
    url, name = sys.argv[1:3]
    session = tapstore.open(url)
    while not select.select([0], [], [], 0)[0]:
        attempt = uuid.uuid4().hex
        say(attempt, "try")
        try:
            session.edit(increment, by=name, reason=attempt)
        except tapstore.OutcomeUnknownError:
            say(attempt, "unknown")
        except tapstore.TapstoreError as exc:
            print(exc, file=sys.stderr)
            say(attempt, "refused")
        else:
            say(attempt, "ok")


main()
