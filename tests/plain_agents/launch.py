"""Starts plain agents as processes of their own and reads what they say.

with launch.python("increment", session, 100, "--agent", "a") as agent:
    agent.wait_for("acknowledged")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

FOLDER = Path(__file__).resolve().parent


class Agent:
    """A running plain agent.  Leaving the context kills it if it still runs."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.seen: list[dict[str, Any]] = []
        """Every event read so far."""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read on until this event, and return it.  The test's own timeout is the limit."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line))
            if self.seen[-1]["event"] == event:
                return self.seen[-1]
        raise AssertionError(f"{self.command} ended before {event!r}: {self._complaint()}")

    def go_on(self) -> None:
        """End the work of an agent that was started with `--gate -`."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def finish(self, *, timeout: float = 60) -> list[dict[str, Any]]:
        """Wait for its end and return all events.  It must have ended well."""
        output, complaint = self.process.communicate(timeout=timeout)
        self.seen += map(json.loads, output.splitlines())
        assert self.process.returncode == 0, f"{self.command}: {complaint}"
        return self.seen

    def attempts(self, event: str = "acknowledged") -> list[str]:
        return [seen["attempt"] for seen in self.seen if seen["event"] == event]

    def _complaint(self) -> str:
        assert self.process.stderr is not None
        return f"status {self.process.wait()}: {self.process.stderr.read()}"

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


def python(mode: str, session: os.PathLike[str] | str, *options: object) -> Agent:
    script = FOLDER / "plain_agent.py"
    return Agent([sys.executable, str(script), mode, str(session), *map(str, options)])


def shell(mode: str, session: os.PathLike[str] | str, *arguments: object) -> Agent:
    script = FOLDER / "plain_agent.sh"
    return Agent(["sh", str(script), mode, str(session), *map(str, arguments)])
