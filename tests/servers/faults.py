"""What a test has a server or a proxy do wrong, and to which requests.

    rules.add(LoseReply(), operation="PutObject", key="state")       # the stub knows both
    rules.add(refuse(503, "SlowDown", retry_after=2), method="PUT", path=".*/log/.*", times=3)

The criteria are regular expressions for the whole value.  A rule counts the requests that meet
them and acts on the `nth` and the following ones, `times` of them; the first rule that acts wins.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape

HOLD_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer this instead of doing what was asked for."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def refuse(
    status: int,
    code: str,
    *,
    retry_after: int | None = None,
    condition: str | None = None,
    message: str = "injected",
) -> Refuse:
    """Answer with an error of S3; `condition` is what AWS names in its 412."""
    detail = f"<Condition>{escape(condition)}</Condition>" if condition else ""
    headers = [("Content-Type", "application/xml")]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return Refuse(
        status,
        tuple(headers),
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>{detail}</Error>".encode(),
    )


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """Close the connection; nothing was done."""


@dataclass(frozen=True, slots=True)
class LoseReply:
    """Do what was asked for, then close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection when so many bytes of the body have passed."""

    after_bytes: int
    of: Literal["request", "reply"] = "reply"


@dataclass(frozen=True, slots=True)
class Trickle:
    """Send the body of the reply in pieces, with a pause after each."""

    piece_bytes: int
    pause_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """Do nothing yet; do what was asked for when the test says so, even if nobody waits any more.

    `arrived` and `done` are set when the whole request has come, and when it was carried out.
    """

    arrived: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let it be carried out."""
        self._go.set()

    @property
    def released(self) -> bool:
        return self._go.is_set()

    def wait(self) -> None:
        """Wait for `release`, as the server does."""
        self.arrived.set()
        if not self._go.wait(HOLD_SECONDS):
            raise TimeoutError("a test held a request and never released it")


Action = Refuse | LoseRequest | LoseReply | Cut | Trickle | Hold


@dataclass(slots=True)
class Rule:
    """An action and when it is due.  `hits` is how often it has acted."""

    action: Action
    criteria: dict[str, re.Pattern[str]]
    nth: int
    times: int | None
    seen: int = 0
    hits: int = 0

    def acts_on(self, request: dict[str, str]) -> bool:
        if not all(each.fullmatch(request.get(name, "")) for name, each in self.criteria.items()):
            return False
        self.seen += 1
        due = self.seen >= self.nth and (self.times is None or self.hits < self.times)
        self.hits += due
        return due


class Rules:
    """The rules of one server.  Tests add to them while it serves."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._rules: list[Rule] = []

    def add(self, action: Action, *, nth: int = 1, times: int | None = 1, **criteria: str) -> Rule:
        """Act on the `nth` request that meets `criteria`, and on `times` of them (`None`: all)."""
        patterns = {name: re.compile(each, re.DOTALL) for name, each in criteria.items()}
        rule = Rule(action, patterns, nth, times)
        with self._mutex:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Do everything right from now on; what is held is carried out."""
        with self._mutex:
            rules, self._rules = self._rules, []
        for rule in rules:
            if isinstance(rule.action, Hold):
                rule.action.release()

    def action_for(self, **request: str) -> Action | None:
        """What is to be done with a request, if anything special."""
        with self._mutex:
            for rule in self._rules:
                if rule.acts_on(request):
                    return rule.action
        return None
