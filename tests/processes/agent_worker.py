"""An agent in a process of its own: `agent_worker.py URL ROLE AGENT TTL ARGV…`.

Does one piece of work, in the session or root at URL, and says how it ended as JSON; on a signal
it stops.  Then it says what the largest amount of its memory was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tapstore.agents import (
    AgentSpec,
    CommandHandler,
    Worker,
    WorkFilter,
    stopping_on_signals,
)
from tapstore.errors import SessionNotFoundError
from tapstore.roots.root import root
from tapstore.sessions.opening import open as open_session


def max_rss_kb() -> int:
    """Of this program alone: what `getrusage` says begins with what started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(url: str, role: str, agent: str, ttl: str, *argv: str) -> None:
    try:
        target = open_session(url)
    except SessionNotFoundError:
        target = root(url)
    spec = AgentSpec(agent=agent, work=WorkFilter(role=role), then="done", ttl=float(ttl))
    handler = CommandHandler(argv=argv, stdout_as="out", grace=1)
    worker = Worker(target, spec, handler)
    with stopping_on_signals(worker) as signals:
        print(json.dumps({"ready": agent}), flush=True)
        outcome = worker.run_once()
    print(
        json.dumps(
            {
                "ending": None if outcome is None else outcome.ending.value,
                "session": None if outcome is None else outcome.session_id,
                "reason": None if outcome is None else outcome.reason,
                "signals": signals,
                "max_rss_kb": max_rss_kb(),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
