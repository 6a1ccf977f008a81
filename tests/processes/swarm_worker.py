"""One process of a swarm: sends, delivers or works; prints what it did as JSON lines.

`swarm_worker.py ours|plain send|deliver|work|next PROJECT ROLE [COUNT [TO]]`: `work` ends after
COUNT messages were completed, `deliver` when its input ends.  `plain` does as the original scripts.
"""

from __future__ import annotations

import json
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.swarm import opening, roles
from tests.plain_agents import plain_swarm

PAUSE_SECONDS = 0.005
LIMIT_SECONDS = 60


def say(**event):
    print(json.dumps(event), flush=True)


def send(kind, project, role, count, to):
    tree = Path(roles.read(project)[role].worktree)
    for number in range(count):
        text = f"{role}-{kind}-{number}"
        if kind == "plain":
            name = plain_swarm.send_note(tree, role, to, "50", text).name
        else:
            box = opening.open(project, role=role)
            draft = f"type: note\nto: {to}\npriority: 50\nmessage: {text}\n"
            name = str(box.send(draft.encode()).name)
        say(sent=text, name=name)


def deliver(kind, project, role):
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        if kind == "plain":
            plain_swarm.poll_once(Path(project))
        else:
            for _ in opening.open(project, role=role).deliver():
                pass


def work(kind, project, role, count):
    tree = Path(roles.read(project)[role].worktree)
    box = opening.open(project, role=role)
    end = time.monotonic() + LIMIT_SECONDS
    done = 0
    while done < count and time.monotonic() < end:
        if kind == "plain":
            # A copy that was withdrawn at that moment ends a script; its agent runs it again.
            path = None
            with suppress(FileNotFoundError):
                path = plain_swarm.ready_task(tree)
            texts = [plain_swarm.header(path, "message")] if path else []
        else:
            accepted = box.next()
            texts = [item.message.headers["message"] for item in accepted.items] if accepted else []
        if not texts:
            time.sleep(PAUSE_SECONDS)
            continue
        if kind == "plain":
            plain_swarm.done_task(tree)
        else:
            box.done()
        say(completed=texts)
        done += len(texts)


def next_once(project, role):
    """What one command gets, when a line comes in."""
    say(ready=True)
    sys.stdin.readline()
    box = opening.open(project, role=role)
    try:
        accepted = box.next()
    except MailboxStateError as exc:
        say(refused=exc.keyword)
        return
    say(places=[item.place for item in accepted.items] if accepted else [])


if __name__ == "__main__":
    kind, what, project, role, *rest = sys.argv[1:]
    if what == "send":
        send(kind, project, role, int(rest[0]), rest[1])
    elif what == "deliver":
        deliver(kind, project, role)
    elif what == "next":
        next_once(project, role)
    else:
        work(kind, project, role, int(rest[0]))
