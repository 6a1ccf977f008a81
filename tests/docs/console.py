"""Runs the examples of one document as a reader would: in order, in one shell, in a new folder.

In a `console run` block a line that begins with `$ ` is a command (`> ` goes on with it) and what
follows is what it prints, standard error included; `...` there stands for anything.  A command
without shown output may print what it likes.  A command must succeed, unless `$ echo $?` follows.
A `python run` block is a program of its own in the same folder; it must succeed.  A block marked
`file NAME` is saved there.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.documents import Example

BIN_FOLDER = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    line: int
    expected: str
    """What is shown as its output; empty: anything."""

    may_fail: bool = False


def commands(example: Example) -> list[Command]:
    """The commands of one example, in order."""
    if example.file:
        name = shlex.quote(example.file)
        save = f'mkdir -p "$(dirname {name})" && printf %s {shlex.quote(example.text)} > {name}'
        return [Command(save, example.line, "")]
    if example.language == "python":
        return [Command(f"python -c {shlex.quote(example.text)}", example.line, "")]
    found: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(example.text.splitlines(), example.line + 1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif not found:
            raise ValueError(f"line {number}: output before the first command: {line!r}")
        elif line.startswith("> ") and not found[-1][2]:
            found[-1][1].append(line[2:])
        else:
            found[-1][2].append(line)
    texts = ["\n".join(text) for _, text, _ in found]
    return [
        Command(text, line, "\n".join(output).strip(), may_fail=following == "echo $?")
        for text, following, (line, _, output) in zip(texts, [*texts[1:], ""], found, strict=True)
    ]


def run(
    script: Sequence[Example],
    folder: Path,
    *,
    bin_folder: Path = BIN_FOLDER,
    environment: Mapping[str, str] = os.environ,
    timeout: float = 150,
) -> list[str]:
    """Run the examples and return what went wrong: empty when the document tells the truth.

    `python` and the rest come from `bin_folder`, by default that of this Python.
    """
    todo = [command for example in script for command in commands(example)]
    mark = f"--{uuid.uuid4().hex}--"
    # The mark carries the exit status and hands it on, so that `echo $?` sees that of the command.
    shell = "\n".join(
        f'{command.text}\n(status=$?; printf "\\n%s %s\\n" {mark} "$status"; exit "$status")'
        for command in todo
    )
    result = subprocess.run(
        ["bash", "-c", shell],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={**environment, "PATH": f"{bin_folder}{os.pathsep}{environment['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    parts = re.split(rf"\n{mark} (\d+)\n", result.stdout)
    outcomes = list(zip(parts[::2], parts[1::2], strict=False))
    problems = [
        problem
        for command, (output, status) in zip(todo, outcomes, strict=False)
        if (problem := _judge(command, output.strip(), int(status)))
    ]
    problems.extend(
        f"line {command.line}: `{command.text}` was not reached: {parts[-1]}"
        for command in todo[len(outcomes) :]
    )
    return problems


def _judge(command: Command, output: str, status: int) -> str | None:
    where = f"line {command.line}: `{command.text}`"
    if status and not command.may_fail:
        return f"{where} exited with {status} and printed:\n{output}"
    pattern = re.escape(command.expected).replace(re.escape("..."), ".*?")
    if command.expected and not re.fullmatch(pattern, output, re.DOTALL):
        return f"{where} printed:\n{output}\ninstead of:\n{command.expected}"
    return None
