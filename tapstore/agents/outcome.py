"""How a piece of work ended, and how a handler says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tapstore.errors import TapstoreError


class WorkFailedError(TapstoreError):
    """The work can't be done; the message becomes the reason of the failed claim."""


class WorkReleasedError(TapstoreError):
    """The work is given back for somebody else; the message says why."""


class Ending(Enum):
    """What became of a claim."""

    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"
    """Taken back, or not known: nothing that came later was registered under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One piece of work, from its end."""

    ending: Ending
    session_id: str
    url: str
    slot: str
    agent: str
    claim: str
    task_id: str = ""
    """Id of the task, if one in the inbox was the reason."""

    reason: str = ""
    error: BaseException | None = None
    """What the handler raised, if it did not end well."""
