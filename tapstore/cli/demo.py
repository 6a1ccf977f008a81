"""`tapstore demo`: a coder and a reviewer at work, one of them killed in the middle, for real.

Every line that begins with `$` is a command that is run as a process of its own, and every agent
is one.  The programs that do the work know nothing of tapstore; they are written into the demo's
folder, where all of it stays to be looked at.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapstore.cli import console
from tapstore.cli.invocation import Invocation, common_options
from tapstore.errors import UnsupportedOperationError, WaitTimeoutError
from tapstore.tapfile.model import COMPLETED, PENDING, WORKING

if TYPE_CHECKING:
    from tapstore.sessions.session import Session

TTL_SECONDS = 3
PATIENCE_SECONDS = 60.0
"""For one step; a minute only on a machine that hardly moves."""

REQUIREMENT = "a function that returns the sum of the squares of the even numbers in a list"

CODER = '''\
"""Writes what a task asks for.  It stands for a language model: slow, and not quite right.

It knows nothing of tapstore: a task on standard input, a file to write.
"""

import json
import os
import sys
import time

CODE = """\\
# Wanted: {requirement}


def even_square_sum(numbers: list[int]) -> int:
    return sum(n * n for n in numbers if n % 2 is 0)
"""

task = json.load(sys.stdin)
print("thinking about:", task["requirement"], flush=True)
time.sleep(float(os.environ["THINKING_SECONDS"]))
with open(task["output"], "w", encoding="utf-8") as file:
    file.write(CODE.format(requirement=task["requirement"]))
print("written:", os.path.basename(task["output"]))
'''


@click.command()
@common_options
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.pass_context
def demo(ctx: click.Context, folder: Path | None) -> None:
    """Watch a coder and a reviewer at work, one of them killed.

    A session is made in FOLDER (a new temporary one by default), where it stays.  Exits with 1 if
    anything did not come out as promised.
    """
    if not hasattr(os, "killpg"):
        raise UnsupportedOperationError("the demo kills processes in the way of POSIX systems")
    invocation: Invocation = ctx.obj
    folder = Path(tempfile.mkdtemp(prefix="tapstore-demo-")) if folder is None else folder
    started = time.monotonic()
    promises = _Demo(folder.resolve(), quiet=invocation.as_json).play()
    seconds = time.monotonic() - started
    good = all(promises.values())
    if invocation.as_json:
        console.emit(
            {
                "folder": str(folder),
                "seconds": round(seconds, 1),
                "kept": good,
                "promises": [{"promise": text, "kept": kept} for text, kept in promises.items()],
            }
        )
    else:
        console.say("", "What was promised:")
        marks = {True: "kept  ", False: "BROKEN"}
        console.say(*(f"  {marks[kept]}  {text}" for text, kept in promises.items()))
        console.say("", f"{seconds:.0f} seconds; all of it is in {folder}:")
        console.say(f"  {_typed()} status -w {shlex.quote(str(folder))}")
    ctx.exit(0 if good else 1)


class _Demo:
    """One run of it."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        self._folder = folder
        self._programs = folder / "programs"
        self._quiet = quiet
        # The session and the agents of whoever watches are no business of the demo.
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("TAPSTORE_")}
        self._stack = ExitStack()

    def play(self) -> dict[str, bool]:
        """Run it; what was promised, and whether it was kept."""
        from tapstore.sessions.opening import open

        self._programs.mkdir(parents=True, exist_ok=True)
        (self._programs / "coder.py").write_text(CODER, "utf-8")
        self._tell(
            "A coder and a reviewer have nothing in common but a folder.  A session is made in it,",
            "and somebody drops a task into the coder's inbox.",
        )
        self._show("cd", str(self._folder))
        made = self._command(
            "init", "--id", "demo", "--role", "coder", "--role", "reviewer",
            "--phase", "requirements_defined", "--phase", "coding_in_progress",
            "--phase", "awaiting_review", "--phase", "review_completed", "--ttl", str(TTL_SECONDS),
        )  # fmt: skip
        if made != 0:
            raise click.ClickException(f"no session could be made in {self._folder}; see above")
        self._command("task", "send", "coder", REQUIREMENT, "--output", "even_square_sum.py")
        with open(self._folder) as session, self._stack:
            codes = self._work(session)
            self._look_back()
            return _promises(session, codes)

    def _work(self, session: Session) -> dict[str, int]:
        """The agents at work; their exit codes."""
        self._tell("", "A reviewer waits for code: a linter, which has never heard of tapstore.")
        reviewer = self._agent("reviewer-01", _REVIEWER + _linter() + ["{inputs}"])
        self._tell(
            "", "A coder wakes up, claims its role, and begins to think.  Another stands by."
        )
        first = self._agent("coder-01", self._coder(), thinks=PATIENCE_SECONDS)
        self._poll("coder-01 thinks", lambda: _has_printed(session, "coder-01", b"thinking"))
        second = self._agent("coder-02", self._coder(), thinks=1)
        self._tell(
            "",
            "coder-01 is killed (SIGKILL) in the middle of its work.  Nothing has to be running to",
            f"notice: after {TTL_SECONDS} s without a sign of life whoever looks for work takes it "
            "back, here coder-02.",
        )
        os.killpg(first.pid, signal.SIGKILL)
        session.wait_for(phase="awaiting_review", timeout=PATIENCE_SECONDS)
        self._tell("", "The code is there, and the phase that the reviewer waits for.")
        session.wait_for(phase="review_completed", timeout=PATIENCE_SECONDS)
        agents = {"coder-01": first, "coder-02": second, "reviewer-01": reviewer}
        return {name: process.wait(PATIENCE_SECONDS) for name, process in agents.items()}

    def _look_back(self) -> None:
        self._tell("", "What happened:")
        self._command("log")
        self._tell("", "How things stand:")
        self._command("status")
        self._tell("", "The Tapfile says the same to any program that can read YAML:")
        self._show("cat", ".tap/Tapfile")
        self._print((self._folder / ".tap" / "Tapfile").read_text("utf-8"))
        self._tell("", "What the reviewer found in coder-02's work:")
        self._command("fetch", "review.txt", "-o", "-")

    # Agents

    def _coder(self) -> list[str]:
        return [*_CODER, sys.executable, os.path.join("programs", "coder.py")]

    def _agent(
        self, name: str, arguments: Sequence[str], *, thinks: float = 0
    ) -> subprocess.Popen[bytes]:
        """Start an agent for one piece of work, in a process group of its own."""
        arguments = ["agent", "run", "--agent", name, "--once", *arguments]
        self._show("tapstore", *arguments)
        out = self._stack.enter_context((self._programs / f"{name}.out").open("wb"))
        process = subprocess.Popen(
            [*_TAPSTORE, *arguments],
            env={**self._env, "THINKING_SECONDS": f"{thinks:g}"},
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        self._stack.callback(_kill, process)
        return process

    def _poll(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"{what}: not within {PATIENCE_SECONDS:g} s")
            time.sleep(0.02)

    # Telling

    def _tell(self, *lines: str) -> None:
        if not self._quiet:
            console.say(*lines)

    def _show(self, *words: str) -> None:
        """A command as one would type it."""
        names = {word: os.path.basename(word) for word in _linter()} | {sys.executable: "python"}
        typed = [names.get(word, word) for word in words]
        first, *more = _wrapped([w if w == "{inputs}" else shlex.quote(w) for w in typed])
        self._tell(f"  $ {first}", *(f"      {line}" for line in more))

    def _command(self, *arguments: str) -> int:
        """Run a command and show what it prints; returns its exit code."""
        self._show("tapstore", *arguments)
        result = subprocess.run(
            [*_TAPSTORE, *arguments],
            env=self._env,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self._print(result.stdout.decode(errors="replace"))
        return result.returncode

    def _print(self, text: str) -> None:
        self._tell(*(f"  {line}".rstrip() for line in text.splitlines()))


_TAPSTORE = (sys.executable, "-m", "tapstore")

_CODER = [
    "--role", "coder", "--claim-phase", "coding_in_progress", "--type", "code",
    "--consumer", "reviewer", "--then", "awaiting_review", "--",
]  # fmt: skip

_REVIEWER = [
    "--role", "reviewer", "--when-phase", "awaiting_review", "--needs", "type=code",
    "--ok-exit", "0,1", "--chdir", "--stdout-as", "review.txt", "--type", "report",
    "--then", "review_completed", "--",
]  # fmt: skip


def _typed() -> str:
    """What one types here for `tapstore`: after `make demo` it is on nobody's PATH."""
    if shutil.which("tapstore") is not None:
        return "tapstore"
    beside = os.path.join(os.path.dirname(sys.executable), "tapstore")
    if os.path.exists(beside):
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(sys.executable)} -m tapstore"


def _linter() -> list[str]:
    """A program of others that looks at code: ruff if it is here, else Python's own compiler."""
    ruff = shutil.which("ruff") or shutil.which("ruff", path=os.path.dirname(sys.executable))
    if ruff is not None:
        return [ruff, "check", "--isolated", "--no-cache", "--output-format", "concise"]
    return [sys.executable, "-W", "error", "-m", "compileall", "-q"]


def _wrapped(words: Sequence[str], width: int = 90) -> list[str]:
    """One command on as many lines as it needs; an option stays with its value."""
    parts = [words[0]]
    for before, word in pairwise(words):
        if before.startswith("--") and before != "--":
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _has_printed(session: Session, agent: str, text: bytes) -> bool:
    from tapstore.agents import logs

    return agent in logs.agents(session) and text in b"".join(logs.read(session, agent))


def _promises(session: Session, codes: Mapping[str, int]) -> dict[str, bool]:
    """What was promised, and whether it was kept, by what the session says."""
    from tapstore.sessions import history

    tapfile = session.tapfile
    moves = [(e, m) for e in session.log() for m in e.moves if m.participant == "coder"]
    taken_back = [e for e, m in moves if (m.old, m.new, m.agent) == (WORKING, PENDING, "coder-01")]
    completed = [m.agent for _, m in moves if m.new == COMPLETED]
    code, review = (tapfile.artifact(name) for name in ("even_square_sum.py", "review.txt"))
    artifacts = session.artifacts
    return {
        "coder-01 was killed, and its claim taken back, with the reason in the log": (
            codes["coder-01"] == -signal.SIGKILL
            and len(taken_back) == 1
            and "no sign of life from coder-01" in taken_back[0].reason
        ),
        "coder-02 did its work, once, and nothing of coder-01 was registered": (
            codes["coder-02"] == 0
            and completed == ["coder-02"]
            and {a.producer for a in tapfile.artifacts} == {"coder-02", "reviewer-01"}
        ),
        "the code is what was registered, by its checksum": (
            code is not None and REQUIREMENT in artifacts["even_square_sum.py"].read_text()
        ),
        "the reviewer read it, and found what is wrong with it": (
            codes["reviewer-01"] == 0
            and review is not None
            and "literal" in artifacts["review.txt"].read_text()
        ),
        "all roles are completed, in the last of the phases": (
            all(p.status == COMPLETED for p in tapfile.participants)
            and tapfile.current_phase == tapfile.phases[-1]
        ),
        "the log has no hole, and each record names the hash of the one before": (
            not list(history.verify(session.state.log))
        ),
    }
