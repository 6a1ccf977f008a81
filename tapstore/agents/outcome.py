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
    """What became of a claim, or of hand-offs."""

    COMPLETED = "completed"
    FAILED = "failed"
    """Of hand-offs: given back with the reason, for another attempt or as dead."""

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
    """The slot that was claimed; of hand-offs the role."""

    agent: str
    claim: str = ""
    """Id of the claim; empty for hand-offs, which need none."""

    task_id: str = ""
    """Id of the task, if one in the inbox was the reason."""

    handoffs: tuple[str, ...] = ()
    """Names of the hand-offs that it was."""

    batch: str = ""
    """Id of the batch that they were accepted with."""

    attempt: int = 0
    """How often they had been accepted, this time included; of a batch the highest number."""

    reason: str = ""
    error: BaseException | None = None
    """What the handler raised, if it did not end well."""
