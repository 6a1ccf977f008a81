"""A command, in any language, as the handler of an agent.

It gets its inputs as files, as JSON on standard input and in its environment, and hands results
over on standard output and as files in a folder.  They are registered in the one commit that
completes the work, or not at all: docs/spec/inbox.md.

The command is an argument vector and never sees a shell; what stands in artifacts and tasks
reaches it as data only.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from tapstore.agents import job as jobs
from tapstore.agents import logs, process
from tapstore.agents.job import Job, of_work
from tapstore.agents.outcome import WorkFailedError, WorkReleasedError
from tapstore.agents.process import Exit, Order
from tapstore.agents.workspace import workspace
from tapstore.artifacts import model as artifact_model
from tapstore.artifacts.model import Artifact
from tapstore.tasks.work import Work

_PLACEHOLDER = re.compile(r"\{(output_dir|output|requirement)\}")
INPUTS = "{inputs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """Runs `argv` for each piece of work.

    In the arguments `{output_dir}`, `{output}` and `{requirement}` are replaced; `{inputs}`, as an
    argument of its own, becomes one argument an input file.
    """

    argv: tuple[str, ...]
    ok_exit: frozenset[int] = frozenset((0,))
    """Exit codes that complete the work; any other fails it."""

    stdout_as: str = ""
    """Publish standard output as an artifact of this name."""

    type: str = ""
    """Type of what is published."""

    consumers: tuple[str, ...] = ()
    """Roles or agents that what is published is for."""

    chdir: bool = False
    """Run it in the folder of its inputs, so that what it says of them has short names."""

    timeout: float | None = None
    """Seconds after which the command is ended and the work fails."""

    grace: float = process.GRACE_SECONDS
    """Seconds between SIGTERM and SIGKILL."""

    def __post_init__(self) -> None:
        for argument in self.argv:
            if INPUTS in argument and argument != INPUTS:
                raise ValueError(
                    f"{INPUTS} has to be an argument of its own, because it stands for any number "
                    f"of them; not {argument!r}"
                )

    def check(self) -> None:
        """Raise an error if the command can't be started here, before anything is claimed."""
        process.check_command(self.argv)

    def __call__(self, work: Work | Job) -> None:
        """Do one piece of work; add its results.

        Raises `WorkFailedError`, `WorkReleasedError` when the agent is to stop, `ClaimLostError`
        or `LeaseLostError`; in each case nothing of it is registered.
        """
        with workspace() as folder:
            _Run(self, of_work(work) if isinstance(work, Work) else work, folder).do()


class _Run:
    def __init__(self, handler: CommandHandler, job: Job, folder: Path) -> None:
        self._handler = handler
        self._job = job
        self._folder = folder
        self._inputs = folder / "inputs"
        self._output = folder / "output"
        self._stdout = folder / "stdout"
        self._tail = logs.Tail()
        self._ended_itself: bool | None = None

    def do(self) -> None:
        self._output.mkdir()
        (self._inputs / "files").mkdir(parents=True)
        inputs = self._job.fetch(self._inputs)
        ended = self._run(inputs)
        self._judge(ended)
        self._add_results()

    def _run(self, inputs: Sequence[tuple[Artifact, str]]) -> Exit:
        job, handler = self._job, self._handler
        stdin = self._folder / "work.json"
        stdin.write_bytes(msgspec.json.format(msgspec.json.encode(self._description(inputs))))
        argv = expand(
            handler.argv,
            inputs=[path for _, path in inputs],
            values={
                "output_dir": str(self._output),
                "output": self._output_path(),
                "requirement": job.requirement,
            },
        )
        started = time.monotonic()
        with ExitStack() as stack:
            log = stack.enter_context(job.log())
            log.note(f"$ {' '.join(map(repr, argv))}")
            source: IO[bytes] = stack.enter_context(stdin.open("rb"))
            copy = stack.enter_context(self._stdout.open("wb"))

            def on_stderr(chunk: bytes) -> None:
                log.write(chunk)
                self._tail.write(chunk)

            def on_stdout(chunk: bytes) -> None:
                on_stderr(chunk)
                copy.write(chunk)

            ended = process.run(
                argv,
                env=self._environment(stdin),
                cwd=str(self._inputs / "files") if handler.chdir else None,
                stdin=source,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                order=self._order,
                timeout=handler.timeout,
                grace=handler.grace,
            )
            log.note(f"{ended.says} after {time.monotonic() - started:.1f} s")
        return ended

    def _output_path(self) -> str:
        name = self._job.output_name
        return str(self._output / name) if name else ""

    def _description(self, inputs: Sequence[tuple[Artifact, str]]) -> dict[str, Any]:
        session = self._job.session
        return {
            "session_id": session.id,
            "url": session.url,
            **self._job.describe(),
            "artifacts": [
                {**artifact_model.to_doc(artifact), "local_path": path} for artifact, path in inputs
            ],
            "output_dir": str(self._output),
            "output": self._output_path(),
        }

    def _environment(self, description: Path) -> dict[str, str]:
        session = self._job.session
        # What this process got from another agent is not about this work.
        inherited = {k: v for k, v in os.environ.items() if k not in jobs.VARIABLES}
        return {
            **inherited,
            "TAPSTORE_URL": session.url,
            "TAPSTORE_SESSION": session.id,
            **self._job.environment(),
            "TAPSTORE_WORK": str(description),
            "TAPSTORE_OUTPUT_DIR": str(self._output),
            "TAPSTORE_OUTPUT": self._output_path(),
        }

    def _order(self) -> Order:
        if self._job.lost.is_set() and not self._ended_by_command():
            return Order.KILL
        return Order.STOP if self._job.stopping() else Order.GO_ON

    def _ended_by_command(self) -> bool:
        if self._ended_itself is None:
            self._ended_itself = self._job.was_ended_by_command()
        return self._ended_itself

    def _judge(self, ended: Exit) -> None:
        handler = self._handler
        if ended.ordered is Order.KILL or self._job.lost.is_set():
            raise self._job.loss()
        if ended.timed_out:
            raise WorkFailedError(self._with_tail(f"timed out after {handler.timeout:g} s"))
        if ended.ordered is Order.STOP:
            # Whatever code it ended with: it did not get to finish.
            raise WorkReleasedError(self._with_tail("the agent was told to stop"))
        if ended.code not in handler.ok_exit:
            raise WorkFailedError(self._with_tail(ended.says))

    def _with_tail(self, reason: str) -> str:
        tail = self._tail.text()
        return f"{reason}: {tail}" if tail else reason

    def _add_results(self) -> None:
        handler = self._handler
        for name, path in self._results().items():
            self._job.add(name, path, type=handler.type, consumers=handler.consumers)

    def _results(self) -> dict[str, Path]:
        """Names and files of what the command left."""
        results = {name: self._output / name for name in sorted(os.listdir(self._output))}
        for name, path in results.items():
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                # A link might lead to anything that this user can read.
                raise WorkFailedError(
                    f"{name!r} in the output folder is neither a file nor a folder; "
                    "only these are published"
                )
        wanted, printed = self._job.output_name, self._handler.stdout_as
        if wanted in results:
            wanted = ""
        if wanted and not printed:
            if results:
                raise WorkFailedError(
                    f"the task wants {wanted!r}, but the command left {', '.join(results)}; write "
                    "it to $TAPSTORE_OUTPUT, or print it and use --stdout-as"
                )
            if not self._stdout.stat().st_size:
                raise WorkFailedError(
                    f"the task wants {wanted!r}, but the command printed nothing and left no file"
                )
        name = wanted or printed
        if name:
            if name in results:
                raise WorkFailedError(
                    f"standard output is to be published as {name!r}, but the command left a file "
                    "of that name, too"
                )
            results[name] = self._stdout
        return results


def expand(argv: Sequence[str], *, inputs: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The arguments with placeholders replaced, once: what is put in is not looked at again."""

    def value(match: re.Match[str]) -> str:
        return values[match.group(1)]

    expanded: list[str] = []
    for argument in argv:
        if argument == INPUTS:
            expanded += inputs
        else:
            expanded.append(_PLACEHOLDER.sub(value, argument))
    return expanded
