"""The built-in actions: how each is written, and where it may stand.  Pure.

    action: [bind: reviewer, send: InitiateReview]
    action: {complete: "messages('Vote').size()"}

Actions are data; carrying them out belongs to what runs a protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tapstore.protocols.findings import Path
from tapstore.protocols.model import ALL, Action, Expression

MEANINGS: Mapping[str, str] = {
    "bind": "bind: ROLE, or a list of roles",
    "send": "send: MESSAGE, or {message, to, content: {FIELD: CEL}}",
    "collect": "collect: {into: NAME, value: CEL}",
    "complete": "complete, or complete: CEL",
    "fail": "fail, or fail: REASON",
    "skip": "skip, or skip: {otherwise: STATE}",
    "retry": "retry: {times: N, otherwise: STATE}",
    "goto": "goto: STATE",
    "reject": "reject",
}
"""How each is written."""

IN_TRANSITIONS = ("bind", "send", "collect", "complete", "fail")
IN_TIMEOUTS = ("skip", "retry", "goto", "send")
IN_VIOLATIONS = ("reject", "goto", "send")

MAX_RETRIES = 100


class ActionError(Exception):
    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(reason)
        self.path = path


def parse(
    raw: Any, path: Path, allowed: tuple[str, ...], refuse: Callable[[ActionError], None]
) -> Iterator[Action]:
    """The actions that `raw` means; what means none goes to `refuse`, and the rest is read."""
    steps = raw if isinstance(raw, list) else [raw]
    for number, step in enumerate(steps):
        at = (*path, number) if isinstance(raw, list) else path
        try:
            yield from _step(step, at, allowed)
        except ActionError as exc:
            refuse(exc)


def _step(step: Any, path: Path, allowed: tuple[str, ...]) -> Iterator[Action]:
    if isinstance(step, str):
        pairs: list[tuple[str, Any]] = [(step, None)]
    elif isinstance(step, dict):
        pairs = list(step.items())
    else:
        raise ActionError(f"an action is a name or a mapping; {_there(allowed)}", path)
    if len(pairs) != 1:
        raise ActionError("each action is an item of its own: put '- ' before its name", path)
    name, argument = pairs[0]
    at = path if isinstance(step, str) else (*path, name)
    if name not in allowed:
        about = "may not stand here" if name in MEANINGS else "is not built in"
        raise ActionError(f"the action {name[:60]!r} {about}; {_there(allowed)}", at)
    yield _READERS[name](argument, at)


def _there(allowed: tuple[str, ...]) -> str:
    return f"there are: {'; '.join(MEANINGS[name] for name in allowed)}"


def _wrong(name: str, path: Path) -> ActionError:
    return ActionError(f"this is no {name!r}; write {MEANINGS[name]}", path)


def _names(value: Any, name: str, path: Path) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(each, str) and each for each in names):
        raise _wrong(name, path)
    return tuple(names)


def _mapping(value: Any, name: str, path: Path, needed: set[str], more: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not needed <= value.keys() <= needed | more:
        raise _wrong(name, path)
    return value


def _expression(value: Any, name: str, path: Path) -> Expression:
    # A literal of CEL that is one of YAML, too.
    if isinstance(value, bool | int | float):
        return Expression(str(value).lower(), path)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(name, path)
    return Expression(value, path)


def _bind(value: Any, path: Path) -> Action:
    return Action("bind", roles=_names(value, "bind", path), path=path)


def _send(value: Any, path: Path) -> Action:
    if isinstance(value, str) and value:
        return Action("send", message=value, path=path)
    given = _mapping(value, "send", path, {"message"}, {"to", "content"})
    (message,) = _names(given["message"], "send", path)[:1]
    roles = _names(given["to"], "send", path) if "to" in given else ()
    if ALL in roles:
        roles = ()
    content = given.get("content")
    if content is None:
        return Action("send", message=message, roles=roles, path=path)
    if not isinstance(content, dict):
        raise _wrong("send", (*path, "content"))
    fields = tuple(
        (field, _expression(each, "send", (*path, "content", field)))
        for field, each in content.items()
    )
    return Action("send", message=message, roles=roles, content=fields, path=path)


def _collect(value: Any, path: Path) -> Action:
    given = _mapping(value, "collect", path, {"into", "value"}, set())
    into = given["into"]
    if not isinstance(into, str) or not into.isidentifier():
        raise _wrong("collect", (*path, "into"))
    value = _expression(given["value"], "collect", (*path, "value"))
    return Action("collect", into=into, value=value, path=path)


def _complete(value: Any, path: Path) -> Action:
    result = None if value is None else _expression(value, "complete", path)
    return Action("complete", value=result, path=path)


def _fail(value: Any, path: Path) -> Action:
    if value is not None and not isinstance(value, str):
        raise _wrong("fail", path)
    return Action("fail", reason=value or "", path=path)


def _skip(value: Any, path: Path) -> Action:
    if value is None:
        return Action("skip", path=path)
    given = _mapping(value, "skip", path, {"otherwise"}, set())
    (target,) = _names(given["otherwise"], "skip", path)[:1]
    return Action("skip", target=target, path=path)


def _retry(value: Any, path: Path) -> Action:
    given = _mapping(value, "retry", path, {"times", "otherwise"}, set())
    times = given["times"]
    if type(times) is not int or not 1 <= times <= MAX_RETRIES:
        raise ActionError(f"`times` is a whole number from 1 to {MAX_RETRIES}", (*path, "times"))
    (target,) = _names(given["otherwise"], "retry", path)[:1]
    return Action("retry", times=times, target=target, path=path)


def _goto(value: Any, path: Path) -> Action:
    if not isinstance(value, str) or not value:
        raise _wrong("goto", path)
    return Action("goto", target=value, path=path)


def _reject(value: Any, path: Path) -> Action:
    if value is not None:
        raise _wrong("reject", path)
    return Action("reject", path=path)


_READERS: Mapping[str, Callable[[Any, Path], Action]] = {
    "bind": _bind,
    "send": _send,
    "collect": _collect,
    "complete": _complete,
    "fail": _fail,
    "skip": _skip,
    "retry": _retry,
    "goto": _goto,
    "reject": _reject,
}
