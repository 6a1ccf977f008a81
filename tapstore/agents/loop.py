"""Takes work, has a handler do it, and ends it, whatever happened to the handler; piece by piece.

What work is, where it is found and what ends it, subclasses say.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Generic, Protocol, TypeVar

from tapstore.agents import logs
from tapstore.agents.command import CommandHandler
from tapstore.agents.outcome import Ending, Outcome, WorkFailedError, WorkReleasedError
from tapstore.errors import ClaimLostError, LeaseLostError, OutcomeUnknownError, TapstoreError
from tapstore.keys import mask_url

_logger = logging.getLogger("tapstore.agents")


class Stoppable(Protocol):
    """A piece of work that is told when its agent is to stop."""

    stopping: Callable[[], bool]


W = TypeVar("W", bound=Stoppable)


class Loop(ABC, Generic[W]):
    """One agent at work."""

    def __init__(
        self,
        handler: Callable[[W], None],
        *,
        on_outcome: Callable[[Outcome], None] | None,
        on_start: Callable[[W], None] | None,
    ) -> None:
        if isinstance(handler, CommandHandler):
            handler.check()
        self._handler = handler
        self._on_outcome = on_outcome
        self._on_start = on_start
        self._stopping = False

    def stop(self) -> None:
        """Take no more work, and give back what is being done.  May be called by a signal handler
        or another thread; `run` returns soon after."""
        # Only this: a signal handler must not take locks.
        self._stopping = True

    def run_once(self, *, wait: float | None = None) -> Outcome | None:
        """Do one piece of work; None if there was none for `wait` seconds, or it was told to stop.

        `wait=0` looks once.
        """
        with closing(self._work(wait)) as found:
            for work in found:
                return self._do(work)
        return None

    def run(self, *, idle: float | None = None) -> int:
        """Do work until there was none for `idle` seconds (None: for ever); returns how much."""
        count = 0
        with closing(self._work(idle)) as found:
            for work in found:
                self._do(work)
                count += 1
        return count

    def _do(self, work: W) -> Outcome:
        work.stopping = lambda: self._stopping
        try:
            if self._on_start is not None:
                self._on_start(work)
        except BaseException as exc:
            self._end(work, Ending.RELEASED, f"not begun ({type(exc).__name__})", exc)
            raise
        outcome = self._outcome(work)
        self._tell(outcome)
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        if self._on_outcome is not None:
            self._on_outcome(outcome)

    def _outcome(self, work: W) -> Outcome:
        try:
            self._handle(work)
            return self._complete(work)
        except (ClaimLostError, LeaseLostError, OutcomeUnknownError) as exc:
            return self._lost(work, exc)
        except WorkReleasedError as exc:
            return self._end(work, Ending.RELEASED, str(exc), exc)
        except WorkFailedError as exc:
            return self._end(work, Ending.FAILED, str(exc), exc)
        except Exception as exc:
            self._log(work)
            return self._end(work, Ending.FAILED, f"{type(exc).__name__}: {exc}", exc)
        except BaseException as exc:
            self._end(work, Ending.RELEASED, f"interrupted ({type(exc).__name__})", exc)
            raise

    def _handle(self, work: W) -> None:
        self._handler(work)

    def _log(self, work: W) -> None:
        """What a handler raised, where its output would be."""
        try:
            with self._run_log(work) as log:
                log.write(traceback.format_exc().encode(errors="backslashreplace"))
        except (TapstoreError, OSError):
            _logger.exception("%r failed, and its log could not be written", work)

    @abstractmethod
    def _work(self, idle: float | None) -> Generator[W, None, None]:
        """Work as it comes up, until there was none for `idle` seconds or it is to stop."""

    @abstractmethod
    def _complete(self, work: W) -> Outcome:
        """End what the handler has done.  Raises what the handler might have raised."""

    @abstractmethod
    def _end(self, work: W, ending: Ending, reason: str, error: BaseException) -> Outcome:
        """End work that the handler did not do; whether it can be ended is not sure."""

    @abstractmethod
    def _lost(self, work: W, error: TapstoreError) -> Outcome:
        """Keep off work that is not ours any more, or nobody can tell."""

    @abstractmethod
    def _run_log(self, work: W) -> logs.RunLog:
        """Where the output of its handler goes."""


def trouble(place: str, error: TapstoreError, pause: float) -> None:
    """Say that looking for work did not succeed, and is tried again in `pause` seconds."""
    _logger.warning("%s: %s; looked at again in %g s", mask_url(place), error, pause)
