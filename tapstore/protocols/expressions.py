"""CEL expressions over an instance, compiled: names and types are checked, and the size is bounded.

An expression reads what it is given and nothing else: no files, no clock, no Python.  The library
is loaded when the first expression is.  Whether text within it names roles, messages and fields
that are declared is for `references`; nothing here evaluates anything but constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from tapstore.errors import BackendNotInstalledError
from tapstore.protocols import tree
from tapstore.protocols.model import Function

if TYPE_CHECKING:
    from cel_expr_python import cel

MAX_CHARACTERS = 2_000
MAX_LOOPS = 10
MAX_LOOPS_NESTED = 3
MAX_COMPARED = 100
MAX_LISTED = 30
_MOST_TEXT = 300

VARIABLES: Mapping[str, tuple[str, str]] = {
    "state": ("string", "the state that the instance is in"),
    "elapsed": ("duration", "time since that state was entered"),
    "total_elapsed": ("duration", "time since the instance was started"),
    "data": ("map", "what `collect` has stored, by name"),
}
MESSAGE_VARIABLES: Mapping[str, tuple[str, str]] = {
    "message": ("map", "the content of the message"),
    "sender": ("string", "the id of the agent that sent it"),
    "sender_role": ("string", "the role in which it did"),
}
"""Only where a message is at hand: not at time-outs and events."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that is there in every expression; each parameter says what it names."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    returns: str
    meaning: str

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(name for name, _ in self.parameters)})"


def _helper(name: str, parameters: str, returns: str, meaning: str) -> Helper:
    pairs = tuple((each, _KINDS.get(each, "string")) for each in parameters.split())
    return Helper(name, pairs, returns, meaning)


_KINDS = {"value": "dyn", "order": "list"}

HELPERS = (
    _helper("messages", "type", "messages", "all messages of the type, oldest first"),
    _helper("messages", "type role", "messages", "those of them that the role sent"),
    _helper("count", "type", "int", "how many messages of the type there are"),
    _helper("count", "type role", "int", "how many of them the role sent"),
    _helper("senders", "type", "strings", "the agents that sent one, each once"),
    _helper("participants", "role", "strings", "the agents that are bound to the role"),
    _helper("all_sent", "role type", "bool", "whether each of them sent one"),
    _helper("min_count", "role", "int", "the role's min_count"),
    _helper("max_count", "role", "int", "the role's max_count"),
    _helper("quorum", "constraint", "bool", "whether the quorum of that name is reached"),
    _helper("rank", "value order", "int", "the place of the value in the list, from 0; else -1"),
)
"""A message in the results of `messages` has `type`, `sender`, `sender_role` and `content`."""


class ExpressionError(Exception):
    """Why an expression is refused, and the character where, counted from 1; 0: the whole."""

    def __init__(self, reason: str, *, line: int = 1, column: int = 0) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


class Environment:
    """What expressions of one protocol may say.

    Raises `BackendNotInstalledError` where the CEL library is not installed.
    """

    def __init__(self, functions: Iterable[Function] = ()) -> None:
        self._functions = tuple(functions)
        self._envs = {with_message: self._env(with_message) for with_message in (False, True)}

    def _env(self, with_message: bool) -> cel.Env:
        library = _library()
        types = _types()
        variables = {**VARIABLES, **(MESSAGE_VARIABLES if with_message else {})}
        overloads: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for helper in HELPERS:
            kinds = tuple(kind for _, kind in helper.parameters)
            overloads.setdefault(helper.name, []).append((kinds, helper.returns))
        for function in self._functions:
            overloads.setdefault(function.name, []).append((function.parameters, function.returns))
        declared = [
            library.FunctionDecl(
                name,
                [
                    library.Overload(
                        f"{name}_{number}",
                        return_type=types[returns],
                        parameters=[types[kind] for kind in kinds],
                    )
                    for number, (kinds, returns) in enumerate(found)
                ],
            )
            for name, found in overloads.items()
        ]
        return library.NewEnv(
            variables={name: types[kind] for name, (kind, _) in variables.items()},
            functions=declared,
        )

    def names(self, *, with_message: bool) -> list[str]:
        """Every variable and function that an expression may name."""
        variables = [*VARIABLES, *(MESSAGE_VARIABLES if with_message else ())]
        functions = dict.fromkeys(
            [*(helper.name for helper in HELPERS), *(f.name for f in self._functions)]
        )
        return [*variables, *(f"{name}()" for name in functions)]

    def compile(self, text: str, *, with_message: bool, wanted: str = "") -> tree.Node:
        """The tree of `text`, whose value is `wanted` (`bool`, `int`; empty: anything).

        Raises `ExpressionError`.
        """
        if len(text) > MAX_CHARACTERS:
            raise ExpressionError(
                f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read"
            )
        try:
            compiled = self._envs[with_message].compile(text)
            node = tree.parse(compiled.serialize())
        except (RuntimeError, ValueError) as exc:
            raise self._explained(str(exc), with_message=with_message) from exc
        found = compiled.return_type().name()
        if wanted and found not in (wanted.upper(), "DYN"):
            raise ExpressionError(f"its value is {found.lower()}, and {wanted} is needed here")
        _refuse_costly(node)
        return node

    def _explained(self, message: str, *, with_message: bool) -> ExpressionError:
        match = re.search(r"<input>:(\d+):(\d+): (.*)", message)
        if match is None:
            reason = message.removeprefix("INVALID_ARGUMENT: ").split("\n")[0]
            return ExpressionError(f"it is no CEL that is read: {reason[:_MOST_TEXT]}")
        line, column, reason = int(match[1]), int(match[2]), match[3]
        there = self.names(with_message=with_message)
        unknown = re.match(r"undeclared reference to '([^']+)'", reason)
        if unknown is not None:
            name = unknown[1].partition(".")[0]
            if name in MESSAGE_VARIABLES and not with_message:
                return ExpressionError(
                    f"there is no {name!r} at a time-out or an event, where no message is at hand",
                    line=line,
                    column=column,
                )
            return ExpressionError(
                f"there is no {name!r}; {suggestion(name, there)}", line=line, column=column
            )
        if reason.startswith("Syntax error"):
            # What follows is the tokens of the grammar: of no use to the author.
            reason = reason.partition(" expecting ")[0]
            return ExpressionError(
                f"it is no CEL: {reason[:_MOST_TEXT]}; write an expression over {', '.join(there)}",
                line=line,
                column=column,
            )
        return ExpressionError(reason[:_MOST_TEXT], line=line, column=column)


def _refuse_costly(node: tree.Node) -> None:
    loops = sum(each.kind == "loop" for each in node.walk())
    if loops > MAX_LOOPS:
        raise ExpressionError(f"it has {loops} loops (all, exists, map…); at most {MAX_LOOPS}")
    if _nested(node) > MAX_LOOPS_NESTED:
        raise ExpressionError(f"its loops are nested deeper than {MAX_LOOPS_NESTED} levels")
    for each in node.walk():
        if each.kind == "call" and each.text == "matches" and each.children[1].kind != "constant":
            raise ExpressionError("a pattern of matches() has to be a text that stands there")


def _nested(node: tree.Node) -> int:
    """How deeply loops stand in the bodies of loops; what a loop goes over is not its body."""
    if node.kind != "loop":
        return max(map(_nested, node.children), default=0)
    over, *body = node.children
    return max(_nested(over), 1 + max(map(_nested, body)))


def suggestion(name: str, there: Iterable[str]) -> str:
    """`did you mean …?`, or what there is."""
    options = list(there)
    plain = {option.removesuffix("()"): option for option in options}
    # Comparing takes long: names of about the same length, and not all of very many.
    alike = [each for each in plain if abs(len(each) - len(name)) <= 4][:MAX_COMPARED]
    close = get_close_matches(name[:100], alike, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(plain[each] for each in close)}?"
    more = ", …" if len(options) > MAX_LISTED else ""
    return f"there are: {', '.join(options[:MAX_LISTED])}{more}" if options else "none is declared"


def _library() -> Any:
    try:
        from cel_expr_python import cel
    except ImportError as exc:
        raise BackendNotInstalledError(
            "protocols need the package cel-expr-python, which is not installed: "
            'pip install "tapstore[protocols]"'
        ) from exc
    return cel


@cache
def _types() -> Mapping[str, Any]:
    kinds = _library().Type
    return {
        "bool": kinds.BOOL,
        "int": kinds.INT,
        "double": kinds.DOUBLE,
        "string": kinds.STRING,
        "duration": kinds.DURATION,
        "timestamp": kinds.TIMESTAMP,
        "list": kinds.List(kinds.DYN),
        "map": kinds.Map(kinds.STRING, kinds.DYN),
        "strings": kinds.List(kinds.STRING),
        "messages": kinds.List(kinds.Map(kinds.STRING, kinds.DYN)),
        "dyn": kinds.DYN,
    }
