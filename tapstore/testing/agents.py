"""An agent whose every step a test gives: claim, publish, complete, or die in the middle.

    agent = ScriptedAgent(session, "coder", [claim(), publish("a.py", b"…"), complete()])
    agent.run(until=2)     # the first two steps
    agent.die()            # no heartbeats any more, nothing given back
    agent.run()            # it wakes up, and knows nothing of what happened meanwhile

Steps are taken in the caller's thread, one after the other, exactly as a real agent's calls: what
they raise the test gets.  It is no process: to see one killed, start one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from tapstore.artifacts.publish import Source
from tapstore.sessions.claim import Claim
from tapstore.sessions.session import Session

Step = Callable[["ScriptedAgent"], object]
"""A step is called with the agent; those below make the usual ones."""


class ScriptedAgent:
    """Works in one session, in one role, step by step."""

    def __init__(
        self, session: Session, role: str, steps: Iterable[Step] = (), *, agent: str = ""
    ) -> None:
        """`agent`: its id, the role with `-1` if there is none."""
        self.session = session
        self.role = role
        self.agent = agent or f"{role}-1"
        self.steps = list(steps)
        self.done = 0
        """How many steps it has taken."""
        self._claim: Claim | None = None

    @property
    def claim(self) -> Claim:
        """What it has claimed."""
        if self._claim is None:
            raise RuntimeError(f"{self.agent} has claimed nothing yet: the script lacks a claim()")
        return self._claim

    def take(self, claim: Claim) -> None:
        """Work under this claim from now on."""
        self._claim = claim

    def step(self) -> object:
        """Take the next step, and return what it returns.

        A step that raises is not taken: the next call repeats it.
        """
        result = self.steps[self.done](self)
        self.done += 1
        return result

    def run(self, *, until: int | None = None) -> None:
        """Take all steps that are left, or those before the step number `until` (from 0)."""
        end = len(self.steps) if until is None else until
        while self.done < end:
            self.step()

    def die(self) -> None:
        """Stop as a crashed agent does: no more heartbeats, and the claim stays as it is.

        Later steps are those of a zombie, which acts on what it knew when it died.
        """
        if self._claim is None or self._claim.ended:
            return
        # A zombie still has its claim in hand, and asks nobody whether it is worth anything.
        zombie = copy.copy(self._claim)
        zombie._renewer = None
        self._claim.detach()
        self._claim = zombie

    def __repr__(self) -> str:
        return f"<ScriptedAgent {self.agent} at step {self.done} of {len(self.steps)}>"


def claim(**options: Any) -> Step:
    """Claim the agent's role; `options` as in `Session.claim`."""
    return lambda agent: agent.take(agent.session.claim(agent.role, agent=agent.agent, **options))


def publish(name: str, source: Source, **options: Any) -> Step:
    """Publish an artifact; `options` as in `Claim.publish`."""
    return lambda agent: agent.claim.publish(name, source, **options)


def heartbeat() -> Step:
    """Write a heartbeat now."""
    return lambda agent: agent.claim.heartbeat()


def complete(**options: Any) -> Step:
    """Complete the claim; `options` as in `Claim.complete`."""
    return lambda agent: agent.claim.complete(**options)


def fail(reason: str, **options: Any) -> Step:
    """End the claim as failed."""
    return lambda agent: agent.claim.fail(reason, **options)


def release(reason: str = "") -> Step:
    """Give the role back."""
    return lambda agent: agent.claim.release(reason)


def die() -> Step:
    """Die here: what follows in the script are the steps of a zombie."""
    return lambda agent: agent.die()
