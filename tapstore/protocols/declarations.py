"""The values of a well-formed document as a `Definition`; names that are not declared are found.

Goes on after each fault, so that all of a file are told together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tapstore.errors import FormatError
from tapstore.protocols import actions, contents, tree
from tapstore.protocols.durations import parse_duration
from tapstore.protocols.expressions import (
    HELPERS,
    MESSAGE_VARIABLES,
    VARIABLES,
    Environment,
    ExpressionError,
    suggestion,
)
from tapstore.protocols.findings import MAX_FINDINGS, Finding, Path
from tapstore.protocols.model import (
    ALL,
    ANY,
    BUILT_IN_EVENTS,
    DEFAULT_MAX_COUNT,
    Action,
    Constraint,
    Definition,
    Expression,
    Function,
    MessageType,
    Role,
    Route,
    Rule,
    State,
    Transition,
)
from tapstore.protocols.references import References
from tapstore.tapfile.schema import UserSchema

Trees = dict[Path, tree.Node]
"""The compiled expressions, by where they stand."""

_TEMPLATE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
_SHARE = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*%\s*")


class EnoughError(Exception):
    """There are as many findings as are told."""


class Reader:
    """Reads one document, once."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._doc: Mapping[str, Any] = source.value
        self.findings: list[Finding] = []
        self.trees: Trees = {}

    def definition(self) -> Definition:
        """What was declared; means something only if there are no findings.

        Raises `EnoughError` if there are too many to go on.
        """
        doc = self._doc
        self._roles = self._names("roles", "id")
        self._messages = self._names("message_types", "type")
        self._states = self._names("states", "id")
        self._events = {*self._names("events", "name"), *BUILT_IN_EVENTS}
        self._names("constraints", "name")
        self._quorums = [c["name"] for c in doc.get("constraints", []) if c["type"] == "quorum"]
        self._functions = tuple(
            Function(each["name"], tuple(each.get("parameters", ())), each["returns"])
            for each in doc.get("functions", [])
        )
        self._check_functions()
        self._environment = Environment(self._functions)
        self._schemas: dict[str, Any] = {}
        messages = {m.type: m for m in map(self._message, *_numbered(doc, "message_types"))}
        self._references = References(
            roles=tuple(self._roles),
            messages=self._schemas,
            quorums=tuple(self._quorums),
            data=tuple(sorted(_collected(doc))),
            add=self._add_at,
        )
        self._compile_routes(messages.values())
        states = {s.id: s for s in self._all_states()}
        transitions = tuple(map(self._transition, *_numbered(doc, "transitions")))
        states = self._marked(states, transitions)
        bound_by = _bound_by(transitions)
        roles = {
            role.id: role
            for role in (self._role(n, r, bound_by) for n, r in enumerate(doc["roles"]))
        }
        constraints = tuple(map(self._constraint, *_numbered(doc, "constraints")))
        return Definition(
            protocol_id=doc["protocol_id"],
            version=doc["version"],
            description=doc.get("description", ""),
            roles=roles,
            messages=messages,
            states=states,
            transitions=transitions,
            constraints=constraints,
            events=tuple(sorted(self._events)),
            functions=self._functions,
        )

    # What is wrong

    def _add(self, code: str, message: str, path: Path) -> None:
        self._found(Finding(code, message, path, *self._source.locate(path)))

    def _found(self, finding: Finding) -> None:
        self.findings.append(finding)
        if len(self.findings) >= MAX_FINDINGS:
            raise EnoughError

    def _add_at(self, code: str, message: str, expression: Expression, offset: int) -> None:
        before = expression.text[:offset]
        line = before.count("\n") + 1
        column = offset - (before.rfind("\n") + 1) + 1
        self._add_within(code, message, expression, line, column)

    def _add_within(
        self, code: str, message: str, expression: Expression, line: int, column: int
    ) -> None:
        place = self._source.locate_in(expression.path, expression.text, line, max(column, 1))
        self._found(Finding(code, message, expression.path, *place))

    # Names

    def _names(self, section: str, key: str) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for number, each in enumerate(self._doc.get(section, [])):
            name, path = each[key], (section, number, key)
            if name in found:
                line = self._source.locate(found[name])[0]
                self._add("duplicate-name", f"{name!r} is there already, in line {line}", path)
            if name in (ALL, *BUILT_IN_EVENTS) and section in ("roles", "events"):
                self._add("duplicate-name", f"{name!r} is built in; take another name", path)
            found.setdefault(name, path)
        return found

    def _check_functions(self) -> None:
        built_in = {helper.name for helper in HELPERS} | {*VARIABLES, *MESSAGE_VARIABLES}
        for number, function in enumerate(self._functions):
            if function.name in built_in:
                path = ("functions", number, "name")
                self._add("duplicate-name", f"{function.name!r} is built in", path)
        # Declared twice under one signature, the library would refuse all expressions.
        seen = dict.fromkeys(f.name for f in self._functions)
        if len(seen) < len(self._functions):
            self._names("functions", "name")
        self._functions = tuple(
            {f.name: f for f in self._functions if f.name not in built_in}.values()
        )

    def _known(self, what: str, name: str, there: Iterable[str], path: Path) -> None:
        if name not in there:
            self._add(
                "undeclared-name", f"there is no {what} {name!r}; {suggestion(name, there)}", path
            )

    def _several(
        self, raw: str | list[str], what: str, there: Iterable[str], path: Path, extra: str = ""
    ) -> tuple[str, ...]:
        names = raw if isinstance(raw, list) else [raw]
        for number, name in enumerate(names):
            if name != extra:
                at = (*path, number) if isinstance(raw, list) else path
                self._known(what, name, there, at)
        return tuple(dict.fromkeys(names))

    # Expressions

    def _expression(
        self,
        raw: Any,
        path: Path,
        *,
        message: str | None = None,
        at_hand: bool = False,
        wanted: str = "bool",
    ) -> Expression:
        """`message`: the type whose content is `message`, where it is one type."""
        text = str(raw).lower() if isinstance(raw, bool | int | float) else raw
        expression = Expression(text, path)
        self._compile(expression, message=message, at_hand=at_hand, wanted=wanted)
        return expression

    def _compile(
        self, expression: Expression, *, message: str | None, at_hand: bool, wanted: str = ""
    ) -> None:
        try:
            node = self._environment.compile(expression.text, with_message=at_hand, wanted=wanted)
        except ExpressionError as exc:
            self._add_within("invalid-expression", str(exc), expression, exc.line, exc.column)
            return
        self.trees[expression.path] = node
        self._references.check(node, expression, message=message)

    # Sections

    def _message(self, number: int, raw: Mapping[str, Any]) -> MessageType:
        path: Path = ("message_types", number)
        senders = self._several(raw["sender_role"], "role", self._roles, (*path, "sender_role"))
        if "routing" in raw and "recipients" in raw:
            self._add("malformed", "give `recipients` or `routing`, not both", (*path, "routing"))
        routes = (
            [Route(self._recipients(raw["recipients"], (*path, "recipients")), None)]
            if "recipients" in raw
            else []
        )
        for index, route in enumerate(raw.get("routing", ())):
            at = (*path, "routing", index)
            when = route.get("when")
            text = str(when).lower() if isinstance(when, bool) else when
            routes.append(
                Route(
                    self._recipients(route["to"], (*at, "to")),
                    None if text is None else Expression(text, (*at, "when")),
                )
            )
        schema = self._content_schema(raw, (*path, "content_schema"))
        self._schemas[raw["type"]] = schema
        return MessageType(
            type=raw["type"],
            senders=senders,
            routes=tuple(routes) or (Route((ALL,), None),),
            content_schema=schema,
            description=raw.get("description", ""),
            path=path,
        )

    def _recipients(self, raw: str | list[str], path: Path) -> tuple[str, ...]:
        return self._several(raw, "role", self._roles, path, ALL)

    def _compile_routes(self, messages: Iterable[MessageType]) -> None:
        for message in messages:
            for route in message.routes:
                if route.when is not None:
                    self._compile(route.when, message=message.type, at_hand=True, wanted="bool")

    def _content_schema(self, raw: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
        if "content_schema" not in raw:
            return None
        try:
            schema = contents.to_json_schema(raw["content_schema"])
            UserSchema(schema, name="content_schema")
        except contents.ShortFormError as exc:
            self._add("invalid-schema", str(exc), (*path, *exc.path))
            return None
        except FormatError as exc:
            self._add("invalid-schema", str(exc), path)
            return None
        return schema

    def _role(self, number: int, raw: Mapping[str, Any], bound_by: Mapping[str, set[str]]) -> Role:
        path: Path = ("roles", number)
        count = raw.get("count")
        computed = None
        low, high = raw.get("min_count"), raw.get("max_count")
        if isinstance(count, str):
            match = _TEMPLATE.fullmatch(count)
            if match is None:
                self._add(
                    "invalid-counts",
                    f'{count[:60]!r} is neither a whole number nor "{{{{ CEL }}}}"',
                    (*path, "count"),
                )
            else:
                types = bound_by.get(raw["id"], set())
                computed = self._expression(
                    match[1].strip(),
                    (*path, "count"),
                    message=next(iter(types)) if len(types) == 1 else None,
                    at_hand=True,
                    wanted="int",
                )
        elif count is not None:
            if low is not None or high is not None:
                self._add(
                    "invalid-counts",
                    "`count` is exact; leave it or `min_count` and `max_count` out",
                    (*path, "count"),
                )
            low = high = count
        if low is None:
            low = 1
        if high is None:
            high = DEFAULT_MAX_COUNT if computed or "min_count" in raw else max(low, 1)
        if low > high:
            self._add("invalid-counts", f"min_count {low} is more than max_count {high}", path)
        rules = tuple(
            self._rule(raw["id"], rule, (*path, "constraints", index))
            for index, rule in enumerate(raw.get("constraints", ()))
        )
        return Role(
            id=raw["id"],
            min_count=low,
            max_count=high,
            count=computed,
            capabilities=tuple(raw.get("capabilities", ())),
            constraints=rules,
            description=raw.get("description", ""),
            path=path,
        )

    def _rule(self, role: str, raw: Mapping[str, Any], path: Path) -> Rule:
        message = self._message_trigger(raw["trigger"], (*path, "trigger"))
        if message and role not in self._senders_of(message):
            self._add(
                "undeclared-name", f"role {role!r} does not send {message}", (*path, "trigger")
            )
        condition = self._expression(
            raw["condition"], (*path, "condition"), message=message, at_hand=True
        )
        return Rule(raw["name"], message, condition)

    def _senders_of(self, message: str) -> tuple[str, ...]:
        for each in self._doc.get("message_types", ()):
            if each["type"] == message:
                raw = each["sender_role"]
                return tuple(raw) if isinstance(raw, list) else (raw,)
        return ()

    def _message_trigger(self, raw: str, path: Path) -> str:
        kind, _, name = raw.partition(".")
        if kind != "message" or not name:
            self._add("undeclared-name", f"{raw[:60]!r} is not message.TYPE", path)
            return ""
        self._known("message type", name, self._messages, path)
        return name

    def _all_states(self) -> Iterable[State]:
        for number, raw in enumerate(self._doc["states"]):
            path: Path = ("states", number)
            accepts = raw.get("accepts", [])
            names = self._several(accepts, "message type", self._messages, (*path, "accepts"))
            yield State(
                id=raw["id"],
                initial=raw.get("initial", False),
                final=raw.get("final", False),
                accepts=names,
                description=raw.get("description", ""),
                path=path,
            )

    def _marked(
        self, states: Mapping[str, State], transitions: Iterable[Transition]
    ) -> dict[str, State]:
        """With the initial and final states derived, where none is marked."""
        left = {name for t in transitions for name in t.sources}
        entered = {t.target for t in transitions}
        if not any(state.final for state in states.values()):
            final = {name for name in states if name not in left}
        else:
            final = {state.id for state in states.values() if state.final}
        initial = [state.id for state in states.values() if state.initial]
        if not initial:
            initial = [name for name in states if name not in entered and name not in final]
        if len(initial) != 1 and entered <= states.keys():
            about = " and ".join(initial) if initial else "none"
            path: Path = states[initial[1]].path if len(initial) > 1 else ("states",)
            self._add(
                "initial-state",
                f"instances have to begin in one state, and {about} could be it: mark one with "
                "`initial: true`",
                path,
            )
        return {
            s.id: State(s.id, s.id in initial, s.id in final, s.accepts, s.description, s.path)
            for s in states.values()
        }

    def _transition(self, number: int, raw: Mapping[str, Any]) -> Transition:
        path: Path = ("transitions", number)
        sources = self._several(raw["from"], "state", self._states, (*path, "from"), ANY)
        self._known("state", raw["to"], self._states, (*path, "to"))
        triggers = self._triggers(raw["trigger"], (*path, "trigger"))
        after = self._duration(raw["after"], (*path, "after")) if "after" in raw else None
        timed = "timeout" in triggers
        if timed and "after" not in raw:
            self._add("malformed", "a time-out needs `after`, such as PT30M", path)
        if not timed and ("after" in raw or "since" in raw):
            self._add("malformed", "`after` and `since` belong to `trigger: timeout`", path)
        types = [t.removeprefix("message.") for t in triggers if t.startswith("message.")]
        # At one of several triggers there is no message, so the expression may not name one.
        at_hand = len(types) == len(triggers)
        message = types[0] if at_hand and len(types) == 1 else None
        guard = None
        if "guard" in raw:
            guard = self._expression(
                raw["guard"], (*path, "guard"), message=message, at_hand=at_hand
            )
        steps = self._actions(
            raw.get("action"), (*path, "action"), actions.IN_TRANSITIONS, message, at_hand
        )
        return Transition(
            sources=sources,
            target=raw["to"],
            triggers=triggers,
            after=after,
            since=raw.get("since", "state"),
            guard=guard,
            actions=steps,
            path=path,
        )

    def _triggers(self, raw: str | list[str], path: Path) -> tuple[str, ...]:
        names = raw if isinstance(raw, list) else [raw]
        for number, name in enumerate(names):
            at = (*path, number) if isinstance(raw, list) else path
            kind, _, rest = name.partition(".")
            if kind == "message" and rest:
                self._known("message type", rest, self._messages, at)
            elif kind == "event" and rest:
                self._known("event", rest, sorted(self._events), at)
            elif name != "timeout":
                self._add(
                    "undeclared-name",
                    f"{name[:60]!r} is no trigger; there are: message.TYPE, timeout, event.NAME",
                    at,
                )
        return tuple(dict.fromkeys(names))

    def _duration(self, raw: str, path: Path) -> Any:
        try:
            return parse_duration(raw)
        except ValueError as exc:
            self._add("invalid-duration", str(exc), path)
            return None

    def _constraint(self, number: int, raw: Mapping[str, Any]) -> Constraint:
        path: Path = ("constraints", number)
        kind: Literal["timeout", "validation", "quorum", "permission"] = raw["type"]
        role = raw.get("role", "")
        if role:
            self._known("role", role, self._roles, (*path, "role"))
        roles = (
            self._several(raw["roles"], "role", self._roles, (*path, "roles"))
            if ("roles" in raw)
            else ()
        )
        states = (
            self._several(raw["state"], "state", self._states, (*path, "state"), ANY)
            if ("state" in raw)
            else ()
        )
        message = raw.get("message", "")
        if message:
            self._known("message type", message, self._messages, (*path, "message"))
        if "trigger" in raw:
            message = self._message_trigger(raw["trigger"], (*path, "trigger"))
        condition = None
        for key in ("condition", "where"):
            if key in raw:
                condition = self._expression(raw[key], (*path, key), message=message, at_hand=True)
        at_least, share = self._at_least(raw.get("at_least", 0), (*path, "at_least"))
        in_timeout = kind == "timeout"
        key = "action" if in_timeout else "violation_action"
        allowed = actions.IN_TIMEOUTS if in_timeout else actions.IN_VIOLATIONS
        if kind in ("validation", "permission") and key not in raw:
            steps: tuple[Action, ...] = (Action("reject", path=path),)
        else:
            steps = self._actions(
                raw.get(key), (*path, key), allowed, message or None, not in_timeout
            )
        for step in steps:
            if step.name in ("skip", "retry") and not role:
                self._add(
                    "invalid-action",
                    f"{step.name!r} is about the agents of a role: add `role: ROLE`",
                    step.path,
                )
        return Constraint(
            name=raw["name"],
            type=kind,
            states=states,
            role=role,
            duration=self._duration(raw["duration"], (*path, "duration")) if in_timeout else None,
            message=message,
            condition=condition,
            roles=roles,
            at_least=at_least,
            share_percent=share,
            actions=steps,
            path=path,
        )

    def _at_least(self, raw: int | str, path: Path) -> tuple[int, float]:
        if isinstance(raw, int):
            return raw, 0
        match = _SHARE.fullmatch(raw)
        if match is None or float(match[1]) == 0:
            self._add(
                "invalid-counts",
                f"{raw[:60]!r} is neither a whole number nor a share such as 60%",
                path,
            )
            return 0, 0
        return 0, float(match[1])

    def _actions(
        self, raw: Any, path: Path, allowed: tuple[str, ...], message: str | None, at_hand: bool
    ) -> tuple[Action, ...]:
        if raw is None:
            return ()

        def refuse(exc: actions.ActionError) -> None:
            self._add("invalid-action", str(exc), exc.path)

        found = tuple(actions.parse(raw, path, allowed, refuse))
        for action in found:
            for role in action.roles:
                self._known("role", role, self._roles, action.path)
            if action.target:
                self._known("state", action.target, self._states, action.path)
            if action.value is not None:
                self._compile(action.value, message=message, at_hand=at_hand)
            if action.name == "send":
                self._known("message type", action.message, self._messages, action.path)
                self._check_content(action, message)
            for _, expression in action.content or ():
                self._compile(expression, message=message, at_hand=at_hand)
        return found

    def _check_content(self, action: Action, forwarded: str | None) -> None:
        """Whether what is sent can have the content that its type has to have."""
        schema = self._schemas.get(action.message)
        if schema is None or (action.content is None and action.message == forwarded):
            return
        given = {name for name, _ in action.content or ()}
        there = contents.fields(schema)
        if there is not None:
            for name in sorted(given - set(there)):
                self._add(
                    "undeclared-field",
                    f"{action.message} has no field {name!r}; {suggestion(name, there)}",
                    (*action.path, "content", name),
                )
        needed = schema.get("required")
        missing = [name for name in needed if name not in given] if needed else []
        if missing:
            self._add(
                "undeclared-field",
                f"{action.message} needs {', '.join(missing)}: give it as "
                "`content: {FIELD: CEL}`",
                action.path,
            )


def _numbered(doc: Mapping[str, Any], section: str) -> tuple[range, list[Any]]:
    found = doc.get(section, [])
    return range(len(found)), found


def _collected(doc: Mapping[str, Any]) -> Iterable[str]:
    """What `collect` stores anywhere."""
    for transition in doc.get("transitions", ()):
        raw = transition.get("action")
        steps = raw if isinstance(raw, list) else [raw]
        for step in steps:
            found = step.get("collect") if isinstance(step, dict) else None
            into = found.get("into") if isinstance(found, dict) else None
            if isinstance(into, str):
                yield into


def _bound_by(transitions: Iterable[Transition]) -> dict[str, set[str]]:
    """For each role that is bound, the types of the messages that can be the reason."""
    found: dict[str, set[str]] = {}
    for transition in transitions:
        for action in transition.actions:
            for role in action.roles if action.name == "bind" else ():
                types = {t.removeprefix("message.") for t in transition.triggers}
                found.setdefault(role, set()).update(types)
    return found
