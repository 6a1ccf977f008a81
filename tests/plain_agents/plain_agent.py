"""An agent of the original Tapfile protocol, as people write one in an afternoon.

It knows nothing of tapstore and shares no code with it: standard library and PyYAML only.  It is
a test subject, so the weaknesses of its kind are kept on purpose: the lock is an empty file that
only its maker removes, and that survives its maker; YAML is loaded and dumped whole, which sorts
the fields and re-types what looks like a number or a time; by default the Tapfile is written in
place; nobody checks whether a role is still his when he reports its work as done.

    plain_agent.py init DIRECTORY             make a session, with a task in the coder's inbox
    plain_agent.py increment DIRECTORY COUNT  count in a field of its own, COUNT times
    plain_agent.py code DIRECTORY             claim a role, work, publish, complete
    plain_agent.py review DIRECTORY           review what is addressed to it, holding the lock
    plain_agent.py zombie DIRECTORY           as `code`, but wakes up when told and never gives up

Each event is printed as one JSON line as soon as it happened.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

CODE = '''\
def even_square_sum(numbers: list[int]) -> int:
    """The sum of the squares of the even numbers."""
    return sum(number * number for number in numbers if number % 2 == 0)
'''


def say(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Workspace:
    """The shared directory, handled as the original protocol proposes."""

    def __init__(self, directory: Path, *, poll: float, rename: bool) -> None:
        self.directory = directory
        self.tapfile = directory / ".tap" / "Tapfile"
        self.lock_file = directory / ".tap" / "locks" / "tapfile.lock"
        self.poll = poll
        self.rename = rename

    def try_lock(self) -> bool:
        try:
            os.close(os.open(self.lock_file, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        except FileExistsError:
            return False
        return True

    def lock(self) -> None:
        while not self.try_lock():
            time.sleep(self.poll)

    def unlock(self) -> None:
        try:
            os.remove(self.lock_file)
        except FileNotFoundError:
            say("lock gone")

    def read(self) -> dict[str, Any]:
        with open(self.tapfile) as file:
            document = yaml.safe_load(file)
        assert isinstance(document, dict), f"the Tapfile holds {document!r}"
        return document

    def write(self, document: dict[str, Any]) -> None:
        if not self.rename:
            with open(self.tapfile, "w") as file:
                yaml.dump(document, file, default_flow_style=False)
            return
        temporary = f"{self.tapfile}.tmp"
        with open(temporary, "w") as file:
            yaml.dump(document, file, default_flow_style=False)
        os.rename(temporary, self.tapfile)

    def publish(self, path: str, text: str) -> str:
        """Write an artifact and return its checksum."""
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_text(text, "utf-8")
        os.rename(temporary, target)
        return "sha256:" + hashlib.sha256(target.read_bytes()).hexdigest()


def set_role(document: dict[str, Any], role: str, status: str, agent: str | None = None) -> None:
    for participant in document["participants"]:
        if participant["role"] == role:
            if agent is not None:
                participant["agent_id"] = agent
            participant["status"] = status
            participant["last_activity"] = timestamp()


def is_pending(document: dict[str, Any], role: str) -> bool:
    return any(p["role"] == role and p["status"] == "pending" for p in document["participants"])


def work(options: argparse.Namespace) -> None:
    """Take some time, or as long as it takes until somebody says go on."""
    if options.gate == "-":
        sys.stdin.readline()
    elif options.gate is not None:
        while not os.path.exists(options.gate):
            time.sleep(options.poll)
    else:
        time.sleep(options.work)


def init(workspace: Workspace, options: argparse.Namespace) -> None:
    directory = workspace.directory
    inbox = directory / "inbox" / "coder"
    for folder in (workspace.lock_file.parent, directory / "artifacts", inbox):
        folder.mkdir(parents=True, exist_ok=True)
    workspace.write(
        {
            "version": "1.0",
            "session_id": options.session,
            "participants": [
                {"role": role, "agent_id": "", "status": "pending", "last_activity": None}
                for role in ("coder", "reviewer")
            ],
            "current_phase": "requirements_defined",
            "artifacts": [],
        }
    )
    task = {
        "task_id": options.session,
        "requirement": "Sum the squares of the even numbers of a list.",
        "output_artifact_name": "even_square_sum.py",
        "output_path": "artifacts/phase_1/even_square_sum.py",
    }
    (inbox / f"task_{options.session}.json").write_text(json.dumps(task, indent=2))
    say("initialised", session=options.session)


def increment(workspace: Workspace, options: argparse.Namespace) -> None:
    """Count; nobody else writes this counter, so any other value than the last one is a loss."""
    field = f"counter_{options.agent}"
    written: int | None = None
    for number in range(options.count):
        attempt = f"{options.agent}-{number:06d}"
        say("attempt", attempt=attempt)
        workspace.lock()
        try:
            document = workspace.read()
            found = document.get(field, 0)
            if written is not None and found != written:
                say("lost", field=field, expected=written, found=found)
            written = found + 1
            document[field] = written
            attempts = document.setdefault("attempts", [])
            attempts.append(attempt)
            if options.keep:
                del attempts[: -options.keep]
            workspace.write(document)
        finally:
            workspace.unlock()
        say("acknowledged", attempt=attempt, count=written)
        if options.work:
            time.sleep(options.work)


def find_task(workspace: Workspace, role: str) -> tuple[Path, dict[str, Any]] | None:
    for path in (workspace.directory / "inbox" / role).glob("*.json"):
        return path, json.loads(path.read_text("utf-8"))
    return None


def claim(workspace: Workspace, options: argparse.Namespace) -> tuple[dict[str, Any], Path | None]:
    """Wait for a task (if told to) and for the role to be pending, then take it.

    Returns the document as it was written, and the task file.
    """
    while True:
        task = find_task(workspace, options.role) if options.inbox else None
        if (task or not options.inbox) and workspace.try_lock():
            try:
                document = workspace.read()
                is_ours = task is None or document["session_id"] == task[1]["task_id"]
                if is_ours and is_pending(document, options.role):
                    set_role(document, options.role, "working", options.agent)
                    document["current_phase"] = "coding_in_progress"
                    workspace.write(document)
                    if task is not None:
                        options.name = task[1]["output_artifact_name"]
                        options.path = task[1]["output_path"]
                    say("working", role=options.role)
                    return document, task and task[0]
            finally:
                workspace.unlock()
        time.sleep(workspace.poll)


def report_done(
    workspace: Workspace, options: argparse.Namespace, checksum: str, document: dict[str, Any]
) -> None:
    """Mark the role completed, whoever has it by now."""
    set_role(document, options.role, "completed")
    document["current_phase"] = "awaiting_review"
    document["artifacts"].append(
        {
            "name": options.name,
            "path": options.path,
            "type": "code",
            "producer": options.agent,
            "consumer": [options.consumer],
            "checksum": checksum,
        }
    )
    workspace.write(document)


def code(workspace: Workspace, options: argparse.Namespace) -> None:
    """One task.  If the lock is taken when the work is done, the role stays working for ever."""
    _, task_file = claim(workspace, options)
    work(options)
    checksum = workspace.publish(options.path, options.content)
    say("published", path=options.path, checksum=checksum)
    if workspace.try_lock():
        try:
            report_done(workspace, options, checksum, workspace.read())
        finally:
            workspace.unlock()
        say("completed", role=options.role)
    else:
        say("gave up", role=options.role)
    if task_file is not None:
        task_file.unlink()


def zombie(workspace: Workspace, options: argparse.Namespace) -> None:
    """Go to work, and much later report it as done without looking.

    With `--stale` even the document is the one of back then.
    """
    remembered, _ = claim(workspace, options)
    work(options)
    checksum = workspace.publish(options.path, options.content)
    say("published", path=options.path, checksum=checksum)
    workspace.lock()
    try:
        document = remembered if options.stale else workspace.read()
        report_done(workspace, options, checksum, document)
    finally:
        workspace.unlock()
    say("completed", role=options.role)


def review(workspace: Workspace, options: argparse.Namespace) -> None:
    """One review.  The lock is held from the look at the phase to the end of the work."""
    last_phase = ""
    while True:
        if workspace.try_lock():
            try:
                document = workspace.read()
                phase = document.get("current_phase", "")
                found = [
                    artifact
                    for artifact in document["artifacts"]
                    if options.agent in artifact.get("consumer", []) and artifact["type"] == "code"
                ]
                if phase == "awaiting_review" and phase != last_phase and found:
                    review_all(workspace, options, document, found)
                    return
                last_phase = phase
            finally:
                workspace.unlock()
        time.sleep(workspace.poll)


def review_all(
    workspace: Workspace,
    options: argparse.Namespace,
    document: dict[str, Any],
    artifacts: list[dict[str, Any]],
) -> None:
    set_role(document, options.role, "working", options.agent)
    document["current_phase"] = "review_in_progress"
    workspace.write(document)
    say("working", role=options.role)
    for artifact in artifacts:
        source = (workspace.directory / artifact["path"]).read_text("utf-8")
        work(options)
        path = f"artifacts/phase_2/review_{os.path.basename(artifact['path'])}.md"
        text = (
            f"# Review of {artifact['path']}\n\n{len(source.splitlines())} lines, no complaints.\n"
        )
        checksum = workspace.publish(path, text)
        say("published", path=path, checksum=checksum)
        document = workspace.read()
        set_role(document, options.role, "completed")
        document["current_phase"] = "review_completed"
        document["artifacts"].append(
            {
                "name": f"review_for_{artifact['name']}",
                "path": path,
                "type": "report",
                "producer": options.agent,
                "consumer": [],
                "checksum": checksum,
            }
        )
        workspace.write(document)
    say("completed", role=options.role)


MODES = {
    "init": init,
    "increment": increment,
    "code": code,
    "review": review,
    "zombie": zombie,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("directory", type=Path, help="the session")
    common.add_argument("--poll", type=float, default=0.02, help="seconds between two looks")
    common.add_argument("--rename", action="store_true", help="write Tapfile.tmp and rename it")

    def mode(name: str, agent: str) -> argparse.ArgumentParser:
        added = modes.add_parser(name, parents=[common])
        added.add_argument("--agent", default=agent, help="its id")
        added.add_argument("--work", type=float, default=0.0, help="seconds of work")
        added.add_argument("--gate", help="work until this file exists; `-`: until a line comes in")
        return added

    parser = argparse.ArgumentParser(description="an agent of the original Tapfile protocol")
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("init", parents=[common]).add_argument("--session", default="plain_001")
    counter = mode("increment", "plain-counter")
    counter.add_argument("count", type=int)
    counter.add_argument("--keep", type=int, default=0, help="keep only so many attempts' ids")
    for name in ("code", "zombie"):
        coder = mode(name, "plain-coder")
        coder.add_argument("--role", default="coder")
        coder.add_argument("--inbox", action="store_true", help="wait for a task in its inbox")
        coder.add_argument("--name", default="even_square_sum.py", help="of the artifact")
        coder.add_argument("--path", default="artifacts/phase_1/even_square_sum.py")
        coder.add_argument("--content", default=CODE)
        coder.add_argument("--consumer", default="plain-reviewer")
        coder.add_argument("--stale", action="store_true", help="zombie: write what it read then")
    mode("review", "plain-reviewer").add_argument("--role", default="reviewer")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    MODES[options.mode](
        Workspace(options.directory, poll=options.poll, rename=options.rename), options
    )
