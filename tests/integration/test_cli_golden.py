"""What `--json` prints is a contract: `tests/format/cli/` has it, command by command.

Each file holds a command line, its exit code, and what it printed, with ids, times and places
replaced by words.  All that is in the file has to be in what is printed today; more may be, so
that keys can be added, but none can go.  `python -m tests.integration.test_cli_golden` prints
what is missing as files to add.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapstore.cli.app import COMMANDS
from tests.integration.cli_calls import Call, call

FOLDER = Path(__file__).parents[1] / "format" / "cli"

SCRIPT = """
init             init --role coder --role reviewer:2 --phase req --phase coding --phase review
                     --id golden --agent maker --set 'priority={"level": 5}' --ttl 90
status-new       status
claim            claim coder --agent c1 --ttl 60 --phase coding
claim-taken      claim coder --agent c2
claim-unknown    claim tester
heartbeat        heartbeat --claim @claim
publish          publish code.py --type code --consumer reviewer --meta lines=1 --claim @claim
publish-outside  publish - --as brief.txt --agent boss
publish-uri      publish --uri s3://bucket/model.bin --as model --agent boss
publish-nothing  publish
artifacts        artifacts --type code
complete         complete --claim @claim --publish report.md:type=report --phase review
complete-late    complete --claim @claim
fetch            fetch code.py -o copy.py
fetch-missing    fetch nothing.py
task-send        task send reviewer 'look at it' --id t1 --output review.md
task-list        task list reviewer
signal           signal go --data '{"n": 1}' --agent boss
signal-again     signal go --agent boss
wait             wait --phase review --signal go
wait-too-long    wait --completed reviewer --timeout 0
status           status
phase            phase
phase-undeclared phase nowhere --agent boss
reopen           reopen coder --agent boss --reason 'more to do'
reset-pending    reset coder --agent boss
claim-again      claim coder --agent c1
reset            reset coder --agent boss --reason stuck
claim-third      claim coder --agent c3
release          release later --claim @claim-third
claim-fourth     claim coder --agent c4
fail             fail 'no idea' --claim @claim-fourth
edit             edit --set participants.reviewer.agent_id=007 --append notes=one --agent boss
edit-missing     edit --unset nothing --agent boss
log              log
watch            watch --after 0 --timeout 0
validate         validate --artifacts
gc               gc
gc-too-young     gc --older-than 1s
watchdog         watchdog --once
locks            locks
locks-switch     locks switch o_excl --agent boss
locks-release    locks release gpu --generation 1
config           config --agent boss
lock-no-command  lock gpu -- ./missing
agent-run        agent run --role reviewer --agent a1 --once --idle 0 -- echo fine
agent-no-work    agent run --role reviewer --agent a1 --once --idle 0 -- echo fine
handoff-none     handoff next --role reviewer --agent r1
handoff-send     handoff send --to reviewer --message 'look at it' --role coder --agent c1
handoff-faults   handoff send --to nobody --priority soon --message hi --role coder --agent c1
handoff-list     handoff list
handoff-next     handoff next --role reviewer --agent r1
handoff-show     handoff show @handoff-send --role reviewer --agent r1
handoff-renew    handoff renew --role reviewer --agent r1
handoff-done     handoff done --role reviewer --agent r1
handoff-more     handoff send --to reviewer --message 'once more' --role coder --agent c1
handoff-second   handoff next --role reviewer --agent r1
handoff-release  handoff release --reason 'not mine' --role reviewer --agent r1
handoff-no-work  handoff done --role reviewer --agent r1
handoff-no-role  handoff next
handoff-deliver  handoff deliver
handoff-missing  handoff retry @handoff-send --role reviewer --agent r1
handoff-prune    handoff prune --older-than 30d
handoff-settings handoff settings
handoff-scripts  handoff install-scripts scripts
logs             logs
logs-agent       logs a1
logs-nobody      logs nobody
handoff-urgent   handoff send --to reviewer --message quick --priority 10 --role coder --agent c1
agent-handoffs   agent run --role reviewer --handoffs --agent a1 --once --idle 0 -- echo fine
protocol-good    protocol check good.yaml
protocol-bad     protocol check good.yaml bad.yaml
protocol-missing protocol check nothing.yaml
usage            claim
no-such-command  clame
"""
"""One call a line: the name of its file, and its arguments; `@name` is the claim, or the id, that
the call of that name printed."""

PROTOCOL = """\
protocol_id: small
version: 1.0
roles: [{id: asker, count: 1}]
message_types: [{type: Ask, sender_role: asker}]
transitions:
- {from: idle, to: asked, trigger: message.Ask}
- {from: "*", to: done, trigger: timeout, after: PT1H}
states:
- {id: idle, initial: true}
- {id: done, final: true}
- {id: asked}
"""

KEPT = ("claim", "id")


def calls() -> Iterator[tuple[str, str]]:
    for line in re.sub(r"\n {17}", " ", SCRIPT).strip().splitlines():
        name, arguments = line.split(maxsplit=1)
        yield name, arguments


def play() -> dict[str, dict[str, Any]]:
    """Make all calls, in order, in a new folder; what each did, with what varies replaced."""
    import shlex

    (Path.cwd() / "code.py").write_text("print(1)\n")
    (Path.cwd() / "report.md").write_text("fine\n")
    (Path.cwd() / "good.yaml").write_text(PROTOCOL)
    (Path.cwd() / "bad.yaml").write_text(
        PROTOCOL.replace('from: "*"', "from: idle") + "- {id: lonely}\n"
    )
    printed: dict[str, Call] = {}
    found = {}
    for name, arguments in calls():
        words = [
            _kept(printed[word[1:]].json) if word.startswith("@") else word
            for word in shlex.split(arguments)
        ]
        # What follows is for the command that is run.
        words.insert(words.index("--") if "--" in words else len(words), "--json")
        called = printed[name] = call(*words, stdin=b"do it\n")
        found[name] = {
            "command": f"tapstore {arguments}",
            "exit_code": called.status,
            "stdout": [_replace(json.loads(line)) for line in called.out.splitlines()],
            "stderr": [_replace(json.loads(line)) for line in called.err.splitlines()],
        }
    return found


def _kept(value: dict[str, Any]) -> str:
    return next(str(value[key]) for key in KEPT if key in value)


def _replace(value: Any, key: str = "") -> Any:
    """`value` without what differs from run to run."""
    if isinstance(value, dict):
        return {k: _replace(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_replace(v, key) for v in value]
    if key.endswith("age_seconds") and value is not None:
        return "<seconds>"
    if not isinstance(value, str):
        return value
    if key == "message":
        return "<message>"
    value = value.replace(os.path.realpath("."), "<place>")
    value = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>", value)
    value = re.sub(r"(?<!\d)\d{8}T\d{6}Z_(?=\d{6}_)", "<stamp>_", value)
    value = re.sub(r"(?<!\d)(\d\d)_\d{8}T\d\d/\d\d/\d\d/", r"\1_<hour>/<minute>/<second>/", value)
    value = re.sub(r"/\d{8}T\d\d/", "/<hour>/", value)
    value = re.sub(r"\bafter \d+\.\d s\b", "after <seconds>", value)
    return re.sub(r"\b(?<!sha256:)[0-9a-f]{16}\b", "<id>", value)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("golden"))
        return play()


@pytest.mark.parametrize("name", [name for name, _ in calls()])
def test_everything_that_was_promised_is_printed(name, played):
    promised = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert list(lacks(promised, played[name], name)) == []


def lacks(promised: Any, found: Any, place: str) -> Iterator[str]:
    """Where `found` does not have what `promised` has."""
    if isinstance(promised, dict) and isinstance(found, dict):
        for key, value in promised.items():
            if key in found:
                yield from lacks(value, found[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} is missing"
    elif isinstance(promised, list) and isinstance(found, list) and len(promised) == len(found):
        for number, (one, other) in enumerate(zip(promised, found, strict=True)):
            yield from lacks(one, other, f"{place}[{number}]")
    elif promised != found:
        yield f"{place} is {found!r}, not {promised!r}"


def test_each_golden_file_is_of_a_call():
    assert {path.stem for path in FOLDER.glob("*.json")} == {name for name, _ in calls()}


def test_each_command_has_a_golden_file():
    # They take seconds, and have tests of their own.
    without = {"demo", "doctor"}
    called = {arguments.split()[0] for _, arguments in calls()}
    assert {name for section in COMMANDS.values() for name in section} - without <= called


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, what in play().items():
            path = FOLDER / f"{name}.json"
            if not path.exists():
                path.write_text(json.dumps(what, indent=2, ensure_ascii=False) + "\n")
                print(f"added {path}")
