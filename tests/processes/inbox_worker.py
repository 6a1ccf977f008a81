"""Takes tasks at the same moment as others: `inbox_worker.py URL ROLE AGENT`.

For each line on standard input it looks for a task once, completes it if there is one, and says
its id, or null.
"""

from __future__ import annotations

import json
import sys

from tapstore.sessions.opening import open as open_session
from tapstore.tasks.work import WorkFilter, seek


def main(url: str, role: str, agent: str) -> None:
    with open_session(url) as session:
        for _ in sys.stdin:
            work = seek(session, WorkFilter(role=role), agent=agent)
            done = None
            if work is not None:
                assert work.task is not None
                done = work.task.id
                work.complete()
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
