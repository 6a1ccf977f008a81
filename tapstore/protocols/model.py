"""A protocol as it was declared.  Pure.

Values only: whether the names that they hold are declared is for `loader`, whether the whole makes
sense for `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from tapstore.protocols.findings import Path

ANY = "*"
ALL = "all"
DEFAULT_MAX_COUNT = 1000

BUILT_IN_EVENTS: Mapping[str, str] = {
    "participant_skipped": "an agent was passed over by the action `skip`",
    "participants_below_min": "fewer agents of a role are left than its min_count",
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A text in CEL, and where it stands."""

    text: str
    path: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """What has to hold of a message that a role sends."""

    name: str
    message: str
    condition: Expression


@dataclass(frozen=True, slots=True)
class Role:
    id: str
    min_count: int
    max_count: int
    count: Expression | None
    """Where the number is computed when the role is bound."""
    capabilities: tuple[str, ...]
    constraints: tuple[Rule, ...]
    description: str
    path: Path


@dataclass(frozen=True, slots=True)
class Route:
    to: tuple[str, ...]
    when: Expression | None


@dataclass(frozen=True, slots=True)
class MessageType:
    type: str
    senders: tuple[str, ...]
    routes: tuple[Route, ...]
    content_schema: Mapping[str, Any] | None
    """JSON Schema; None: any mapping."""
    description: str
    path: Path


@dataclass(frozen=True, slots=True)
class State:
    id: str
    initial: bool
    final: bool
    accepts: tuple[str, ...]
    description: str
    path: Path


@dataclass(frozen=True, slots=True)
class Action:
    """One step: the name of a built-in and its arguments by name."""

    name: str
    role: str = ""
    """skip and retry: of the constraint."""
    roles: tuple[str, ...] = ()
    message: str = ""
    content: tuple[tuple[str, Expression], ...] | None = None
    into: str = ""
    value: Expression | None = None
    target: str = ""
    """The state that it leads to, or may lead to."""
    times: int = 0
    reason: str = ""
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Transition:
    sources: tuple[str, ...]
    target: str
    triggers: tuple[str, ...]
    after: timedelta | None
    since: Literal["state", "start"]
    guard: Expression | None
    actions: tuple[Action, ...]
    path: Path


@dataclass(frozen=True, slots=True)
class Constraint:
    name: str
    type: Literal["timeout", "validation", "quorum", "permission"]
    states: tuple[str, ...] = ()
    role: str = ""
    duration: timedelta | None = None
    message: str = ""
    condition: Expression | None = None
    roles: tuple[str, ...] = ()
    at_least: int = 0
    share_percent: float = 0
    actions: tuple[Action, ...] = ()
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Function:
    """What a Python function that is registered under this name takes and returns."""

    name: str
    parameters: tuple[str, ...]
    returns: str


@dataclass(frozen=True, slots=True)
class Definition:
    protocol_id: str
    version: str
    description: str
    roles: Mapping[str, Role]
    messages: Mapping[str, MessageType]
    states: Mapping[str, State]
    transitions: tuple[Transition, ...]
    constraints: tuple[Constraint, ...]
    events: tuple[str, ...]
    functions: tuple[Function, ...]

    @property
    def initial(self) -> str:
        return next(state.id for state in self.states.values() if state.initial)

    def sources(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The states that `from` or `state` means: `*` is each that is not final."""
        if ANY in names or not names:
            return tuple(state.id for state in self.states.values() if not state.final)
        return names
