"""Races of real processes, each with a connection of its own, that any place has to pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tapstore
from tapstore.sessions import history

RACER = Path(__file__).with_name("racer.py")
CLIENTS = 4


@contextmanager
def racers(place, kinds) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that are connected and wait for a line, one of each kind."""
    environment = os.environ | {"STORAGE_OPTIONS": json.dumps(place.storage_options)}
    with ExitStack() as stack:
        running = []
        for number, kind in enumerate(kinds):
            process = subprocess.Popen(
                [sys.executable, RACER, kind, place.url, "abcdefgh"[number]], env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            running.append(process)
        for process in running:
            assert process.stdout.readline() == "ready\n"
        yield running
        for process in running:
            process.stdin.close()
            assert process.wait(60) == 0


def ask(running, line) -> list[str]:
    """The answers of all to the same line, given at the same time."""
    for process in running:
        process.stdin.write(f"{line}\n")
    answers = [process.stdout.readline().strip() for process in running]
    assert all(answers), f"a racer ended: {answers}"
    return answers


def one_creates_and_all_see_it_whole(place, rounds) -> None:
    with racers(place, ["create"] * CLIENTS + ["watch"]) as running:
        for number in range(rounds):
            *answers, seen = ask(running, f"race/{number}")
            assert answers.count("won") == 1, answers
            winner = "abcdefgh"[answers.index("won")]
            assert set(answers) == {"won", f"lost {winner}"}
            assert seen == f"saw {winner}"
            assert place.read(f"race/{number}")[:1] == winner.encode()


def one_claims(place, rounds) -> None:
    options = place.storage_options
    with (
        tapstore.create(place.url, roles=["coder"], storage_options=options) as session,
        racers(place, ["claim"] * CLIENTS) as running,
    ):
        tokens = []
        for number in range(rounds):
            answers = ask(running, number)
            winners = [answer for answer in answers if answer != "lost"]
            assert len(winners) == 1, answers
            tokens.append(int(winners[0].split()[1]))
            session.reset("coder")
        assert tokens == sorted(set(tokens))


def no_commit_is_lost(place, rounds) -> None:
    options = place.storage_options
    tapstore.create(place.url, roles=["r"], fields={"count": 0}, storage_options=options).close()
    with racers(place, ["count"] * CLIENTS) as running:
        acknowledged = [reason for number in range(rounds) for reason in ask(running, number)]
    with tapstore.open(place.url, storage_options=options) as session:
        assert session.tapfile.extra["count"] == CLIENTS * rounds
        landed = Counter(entry.reason for entry in session.log(after=1))
        assert landed == Counter(acknowledged)
        assert set(landed.values()) == {1}
        assert list(history.verify(session.state.log)) == []


def later(action) -> None:
    """Do it in another thread, after a moment in which the caller is likely to wait for it."""
    threading.Timer(0.2, action).start()
