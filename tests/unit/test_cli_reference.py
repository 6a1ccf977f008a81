"""What the reference says is so, and every command that a message names is there."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tapstore import errors
from tapstore.cli import app
from tapstore.cli.events import TYPES

ROOT = Path(__file__).parents[2]
EXIT_CODES = (ROOT / "docs" / "reference" / "exit-codes.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")


def rows() -> dict[int, set[str]]:
    """The table: codes, and the error classes that are named beside them."""
    return {
        int(code): set(re.findall(r"`([A-Z]\w+Error)`", rest))
        for code, rest in re.findall(r"^\| (\d+) \|(.*)$", EXIT_CODES, re.MULTILINE)
    }


def classes() -> dict[str, int]:
    return {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TapstoreError)
    }


def test_the_table_of_exit_codes_is_that_of_the_errors():
    assert {name: code for code, names in rows().items() for name in names} == classes()


def test_the_table_has_every_code_that_the_command_line_has_of_its_own():
    own = {0, click.UsageError.exit_code, app.INTERRUPTED, app.BROKEN_PIPE}
    assert own <= rows().keys()


def commands() -> Iterator[tuple[str, click.Command]]:
    root = click.Context(app.tapstore)
    for name in app.tapstore.list_commands(root):
        command = app.tapstore.get_command(root, name)
        if isinstance(command, click.Group):
            for sub, subcommand in command.commands.items():
                yield f"{name} {sub}", subcommand
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command


def section(name: str) -> str:
    """What the reference says about a command: from its heading to the next."""
    found = re.search(rf"^### `tapstore {name}`.*?(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading `tapstore {name}`"
    return found.group()


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_each_option_is_in_the_reference(name, command):
    said = section(name)
    everywhere = {"--help", "--workspace", "--json"}
    missing = [
        option.opts
        for option in command.params
        if isinstance(option, click.Option)
        and not everywhere & set(option.opts)
        and not any(f"`{opt}" in said for opt in option.opts)
    ]
    assert missing == []


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_the_reference_names_no_option_that_is_not_there(name, command):
    there = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--"}
    named = {word for span in re.findall(r"^- `([^`]+)`", section(name), re.MULTILINE)
             for word in re.findall(r"(?<!\S)--?[a-z][a-z-]*", span)}  # fmt: skip
    assert named <= there


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in ("metadata", "data"):
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_each_key_that_json_prints_is_in_the_reference():
    printed = set()
    for path in (ROOT / "tests" / "format" / "cli").glob("*.json"):
        golden = json.loads(path.read_text("utf-8"))
        printed |= set(keys(golden["stdout"])) | set(keys(golden["stderr"]))
    assert {key for key in printed if f"`{key}`" not in REFERENCE} == set()


def test_each_type_of_event_is_in_the_reference():
    assert [kind for kind in TYPES if f"| `{kind}` |" not in REFERENCE] == []


def test_each_variable_that_is_read_or_set_is_in_the_reference():
    source = "".join(p.read_text("utf-8") for p in (ROOT / "tapstore").rglob("*.py"))
    named = set(re.findall(r'"(TAPSTORE_[A-Z_]+)"', source))
    assert {name for name in named if f"`{name}`" not in REFERENCE} == set()


# Commands that messages name


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the package, with X for what is put in."""
    for path in sorted((ROOT / "tapstore").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield (
                    path.name,
                    "".join(
                        part.value if isinstance(part, ast.Constant) else "X"
                        for part in node.values
                    ),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value


def named_commands() -> list[tuple[str, str]]:
    found = [
        (place, " ".join(command.split()))
        for place, text in texts()
        for command in re.findall(r"`tapstore( [^`]*)`", text)
    ]
    found += [
        (path.name, command)
        for path in sorted((ROOT / "docs").rglob("*.md"))
        for command in re.findall(r"`tapstore( [^`\n]*)`", path.read_text("utf-8"))
    ]
    # A string that ends within the command is only a part of one of the others.
    return sorted({(place, command.strip()) for place, command in found})


@pytest.mark.parametrize(("place", "text"), named_commands())
def test_a_command_that_is_named_can_be_typed(place, text):
    words = [word for word in shlex.split(text.replace("\\|", "|")) if word != "…"]
    for end in ("|", "&"):
        words = words[: words.index(end)] if end in words else words
    command: click.Command = app.tapstore
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name == "COMMAND":
            return
        found = command.get_command(context, name)
        assert found is not None, f"{place}: there is no {name!r}"
        command, context = found, click.Context(found, parent=context)
    _, rest, _ = command.make_parser(context).parse_args(words)
    assert rest == [], f"{place}: `tapstore {text}` has too many arguments"


def test_a_command_that_is_not_there_would_be_found():
    with pytest.raises(AssertionError, match="there is no 'reste'"):
        test_a_command_that_is_named_can_be_typed("here", "reste coder")


def test_an_option_that_is_not_there_would_be_found():
    with pytest.raises(click.NoSuchOption):
        test_a_command_that_is_named_can_be_typed("here", "reset coder --tokens 1")
