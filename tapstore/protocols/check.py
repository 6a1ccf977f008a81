"""What is wrong with a protocol as a whole: a report of everything, sorted by place.

Errors mean that an instance would be stuck, or that something declared could never happen.
Warnings are suspicions: they may be meant.  A protocol without findings may still do something
else than its author thinks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tapstore.errors import FormatError
from tapstore.protocols import graph
from tapstore.protocols.findings import MAX_FINDINGS, Finding
from tapstore.protocols.loader import Loaded
from tapstore.protocols.logic import Verdict, combinations, judge
from tapstore.protocols.model import Action, Definition, Expression
from tapstore.protocols.tree import Node

MAX_COMBINATIONS_IN_ALL = 100_000
MAX_PAIRS = 3_000
"""Beyond these, guards are no longer looked into: a second or two."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one file; `definition` is None where it could not be read."""

    definition: Definition | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.severity == "error")


def examine(data: bytes) -> Report:
    """Read and check a definition.  Never refuses: what is wrong is in the report."""
    loaded = Loaded(data)
    if loaded.definition is None or loaded.source is None:
        return Report(None, tuple(loaded.findings))
    found = []
    moves = graph.size(loaded.definition)
    if moves > graph.MAX_MOVES:
        about = f"it has about {moves:,} moves from state to state; at most {graph.MAX_MOVES:,}"
        return Report(None, (Finding("too-large", about, ("transitions",), 1, 1),))
    for finding in itertools.islice(_Check(loaded.definition, loaded.trees).all(), MAX_FINDINGS):
        line, column = loaded.source.locate(finding.path)
        found.append(replace(finding, line=line, column=column))
    found.sort(key=lambda each: (each.line, each.column, each.code, each.message))
    return Report(loaded.definition, tuple(found))


def load(data: bytes, *, name: str) -> Definition:
    """The definition in `data`.  Raises `FormatError` that has every error with its place."""
    report = examine(data)
    if report.errors or report.definition is None:
        lines = [f"{name}:{e.line}:{e.column}: {e.message} [{e.code}]" for e in report.errors]
        raise FormatError("\n".join(lines))
    return report.definition


class _Check:
    def __init__(self, definition: Definition, trees: dict[tuple[str | int, ...], Node]) -> None:
        self._definition = definition
        self._trees = trees
        self._bounds = {
            Node("call", "size", children=(Node("call", "participants", children=(named,)),)): most
            for named, most in self._maxima()
        } | {
            Node("call", helper, children=(named,)): most
            for named, most in self._maxima()
            for helper in ("min_count", "max_count")
        }
        self._left = MAX_COMBINATIONS_IN_ALL
        self._graph = graph.Graph(definition)
        self._never: set[int] = set()
        self._always: set[int] = set()
        self._guards = list(self._guard_findings())
        self._edges = list(self._graph.edges(without=self._never))
        self._ways = graph.shortest(definition.initial, self._edges)

    def _judge(self, *guards: Expression | None) -> Verdict | None:
        """What can be told of all `guards` at once; None: nothing, or not with what is left."""
        trees = [self._trees[guard.path] for guard in guards if guard is not None]
        needed = combinations(trees, self._bounds)
        if needed > self._left:
            return None
        self._left -= needed
        return judge(trees, self._bounds)

    def _maxima(self) -> Iterator[tuple[Node, int]]:
        for role in self._definition.roles.values():
            yield Node("constant", value=role.id, type_name="string"), role.max_count

    def all(self) -> Iterator[Finding]:
        for number, finding in self._guards:
            start = next((s for s in self._graph.sources[number] if s in self._ways), None)
            yield replace(finding, trace=graph.steps(self._ways, start) if start else ())
        yield from self._states()
        yield from self._overlaps()
        yield from self._messages()
        yield from self._quorums()
        yield from self._permissions()
        yield from self._endings()

    def _guard_findings(self) -> Iterator[tuple[int, Finding]]:
        for number, transition in enumerate(self._definition.transitions):
            if transition.guard is None:
                continue
            verdict = self._judge(transition.guard)
            if verdict is None:
                continue
            if not verdict.possible:
                self._never.add(number)
                code = "guard-never-true"
                about = "this guard can never be true, so the transition is never taken"
            elif verdict.certain:
                self._always.add(number)
                code, about = "guard-always-true", "this guard is always true; leave it out"
            else:
                continue
            yield number, Finding(code, about, transition.guard.path)

    def _states(self) -> Iterator[Finding]:
        definition = self._definition
        final = {state.id for state in definition.states.values() if state.final}
        ending = graph.leading_to(final, self._edges)
        for state in definition.states.values():
            if state.id not in self._ways:
                yield Finding(
                    "state-unreachable",
                    f"no way leads from {definition.initial!r} to {state.id!r}",
                    state.path,
                )
            elif state.id not in ending:
                yield Finding(
                    "state-dead-end",
                    f"from {state.id!r} no way leads to a final state"
                    + ("" if final else "; no state is final"),
                    state.path,
                    trace=graph.steps(self._ways, state.id),
                )
            elif not state.final and not self._has_deadline(state.id):
                yield Finding(
                    "state-without-deadline",
                    f"an instance can wait in {state.id!r} for ever: add a transition with "
                    "`trigger: timeout` and no guard, or a timeout constraint with `goto`",
                    state.path,
                    trace=graph.steps(self._ways, state.id),
                )

    def _has_deadline(self, state: str) -> bool:
        definition = self._definition
        for number in self._graph.leaving[state]:
            transition = definition.transitions[number]
            if "timeout" in transition.triggers and (
                transition.guard is None or number in self._always
            ):
                return True
        # `skip` and `retry` lead on only if agents do not do what they should.
        return any(
            constraint.type == "timeout"
            and state in self._graph.where(constraint)
            and any(action.name == "goto" for action in constraint.actions)
            for constraint in definition.constraints
        )

    def _overlaps(self) -> Iterator[Finding]:
        """Of transitions for one event in one state, the first that is true is taken."""
        definition = self._definition
        told: set[tuple[int, int]] = set()
        for state, event, first, second in itertools.islice(self._rivals(), MAX_PAIRS):
            if (first, second) in told:
                continue
            one, other = definition.transitions[first], definition.transitions[second]
            verdict = self._judge(one.guard, other.guard)
            told.add((first, second))
            if verdict is not None and verdict.possible:
                yield Finding(
                    "transitions-overlap",
                    f"in {state!r}, {event} can lead to {one.target!r} and to {other.target!r}; "
                    "the one that is written first would be taken: make their guards exclude each "
                    "other",
                    other.path,
                    trace=graph.steps(self._ways, state),
                )

    def _rivals(self) -> Iterator[tuple[str, str, int, int]]:
        """State, event, and two transitions that it may trigger there."""
        for state in self._ways:
            by_event: dict[tuple[object, ...], list[int]] = {}
            for number in self._graph.leaving[state]:
                transition = self._definition.transitions[number]
                if number in self._never:
                    continue
                for trigger in transition.triggers:
                    # Time-outs of different length come one after the other.
                    timing = (transition.after, transition.since) if trigger == "timeout" else ()
                    by_event.setdefault((trigger, *timing), []).append(number)
            for (event, *_), numbers in by_event.items():
                for first, second in itertools.combinations(numbers, 2):
                    yield state, str(event), first, second

    def _messages(self) -> Iterator[Finding]:
        definition = self._definition
        accepted = {message for state in self._ways for message in self._graph.accepted[state]}
        sent = {action.message for action in self._actions() if action.name == "send"}
        for message in definition.messages.values():
            if message.type not in accepted | sent:
                yield Finding(
                    "message-never-accepted",
                    f"no state that can be reached accepts {message.type}, and no action sends it: "
                    "name it in `accepts` of a state, or in a trigger",
                    message.path,
                )

    def _actions(self) -> Iterator[Action]:
        for transition in self._definition.transitions:
            yield from transition.actions
        for constraint in self._definition.constraints:
            yield from constraint.actions

    def _quorums(self) -> Iterator[Finding]:
        used = {
            str(node.children[0].value)
            for each in self._trees.values()
            for node in each.walk()
            if node.kind == "call" and node.text == "quorum"
        }
        for constraint in self._definition.constraints:
            if constraint.type != "quorum":
                continue
            role = self._definition.roles[constraint.role]
            path = (*constraint.path, "at_least")
            if constraint.at_least > role.max_count:
                yield Finding(
                    "quorum-too-large",
                    f"{constraint.at_least} of {role.id!r} are needed, and there are at most "
                    f"{role.max_count}",
                    path,
                )
            elif constraint.share_percent > 100:
                yield Finding("quorum-too-large", "a share is at most 100%", path)
            elif constraint.role not in self._definition.messages[constraint.message].senders:
                yield Finding(
                    "quorum-too-large",
                    f"role {role.id!r} does not send {constraint.message}, so none is ever counted",
                    path,
                )
            if constraint.name not in used:
                yield Finding(
                    "quorum-unused",
                    f"nothing asks for this quorum: use quorum('{constraint.name}') in a guard",
                    constraint.path,
                )

    def _permissions(self) -> Iterator[Finding]:
        for constraint in self._definition.constraints:
            if constraint.type != "permission":
                continue
            senders = self._definition.messages[constraint.message].senders
            if not set(constraint.roles) & set(senders):
                yield Finding(
                    "permission-moot",
                    f"none of {', '.join(constraint.roles)} sends {constraint.message}, so nobody "
                    "may send it",
                    (*constraint.path, "roles"),
                )

    def _endings(self) -> Iterator[Finding]:
        states = self._definition.states
        for transition in self._definition.transitions:
            ended = [name for name in transition.sources if name in states and states[name].final]
            if ended:
                yield Finding(
                    "transition-from-final",
                    f"{ended[0]!r} is final: an instance ends there, and nothing leads on",
                    transition.path,
                )
            if states[transition.target].final:
                continue
            for action in transition.actions:
                if action.name in ("complete", "fail"):
                    yield Finding(
                        "invalid-action",
                        f"{action.name!r} ends an instance, and {transition.target!r} is no final "
                        "state",
                        action.path,
                    )
