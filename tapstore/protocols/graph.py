"""The states of a protocol and how one leads to another; shortest ways.  Pure.

Guards are not evaluated: a way may be one that no instance can go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tapstore.protocols.model import Constraint, Definition

MAX_MOVES = 100_000
"""States times transitions times triggers: `*` stands for each state."""


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    event: str
    """message.TYPE, event.NAME, timeout, or the constraint that acted."""


class Graph:
    """What is declared, by state; each question is answered once."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.sources = [definition.sources(each.sources) for each in definition.transitions]
        """Of each transition, by its number."""
        self.leaving: dict[str, list[int]] = {name: [] for name in definition.states}
        """Of each state: the numbers of the transitions that leave it."""
        self.accepted = {name: set(state.accepts) for name, state in definition.states.items()}
        """Of each state: the message types that may be sent there."""
        for number, transition in enumerate(definition.transitions):
            types = [t.removeprefix("message.") for t in transition.triggers if "message." in t]
            for source in self.sources[number]:
                self.leaving[source].append(number)
                self.accepted[source].update(types)

    def edges(self, *, without: Collection[int] = ()) -> Iterator[Edge]:
        """Every move that is declared; `without`: numbers of transitions that are never taken."""
        for number, transition in enumerate(self._definition.transitions):
            if number in without:
                continue
            for source in self.sources[number]:
                for trigger in transition.triggers:
                    yield Edge(source, transition.target, trigger)
        for constraint in self._definition.constraints:
            targets = [action.target for action in constraint.actions if action.target]
            for source in self.where(constraint) if targets else ():
                for target in targets:
                    yield Edge(source, target, f"constraint {constraint.name}")

    def where(self, constraint: Constraint) -> tuple[str, ...]:
        """The states in which a constraint can act."""
        if constraint.type == "timeout":
            return self._definition.sources(constraint.states)
        return tuple(
            name for name, messages in self.accepted.items() if constraint.message in messages
        )


def size(definition: Definition) -> int:
    """About how many moves there are, without making them."""
    states = len(definition.states)
    moves = sum(
        len(definition.sources(each.sources)) * len(each.triggers)
        for each in definition.transitions
    )
    return moves + states * sum(max(len(each.actions), 1) for each in definition.constraints)


def shortest(start: str, moves: Collection[Edge]) -> dict[str, Edge | None]:
    """For each state that can be reached, the last move of a shortest way; None at the start."""
    by_source: dict[str, list[Edge]] = {}
    for edge in moves:
        by_source.setdefault(edge.source, []).append(edge)
    found: dict[str, Edge | None] = {start: None}
    waiting = deque([start])
    while waiting:
        for edge in by_source.get(waiting.popleft(), ()):
            if edge.target not in found:
                found[edge.target] = edge
                waiting.append(edge.target)
    return found


def steps(ways: dict[str, Edge | None], state: str) -> tuple[str, ...]:
    """The whole way to a state, for people."""
    found = []
    edge = ways[state]
    while edge is not None:
        found.append(f"{edge.event}: {edge.source} -> {edge.target}")
        edge = ways[edge.source]
    return tuple(reversed(found))


def leading_to(goals: Collection[str], moves: Collection[Edge]) -> set[str]:
    """The states from which one of the goals can be reached."""
    by_target: dict[str, list[str]] = {}
    for edge in moves:
        by_target.setdefault(edge.target, []).append(edge.source)
    found = set(goals)
    waiting = list(goals)
    while waiting:
        for source in by_target.get(waiting.pop(), ()):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found
