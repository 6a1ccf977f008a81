"""A claim in the hands of the agent that holds it.

From the claim on, heartbeats are written in the background until it ends.  `lost` is set, and
`check()` raises, once the role was taken back or heartbeats could not be written for too long;
every commit through the claim checks it anyway, so what comes too late is refused.

Used in a `with` block: an exception fails the claim with its reason, Ctrl-C releases it, and a
block that ends without `complete`, `fail` or `release` releases it with a warning.  A forked child
does not inherit it (`Session.resume_claim` may), nor does it end it by leaving the block.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.artifacts.streams import Progress
from tapstore.errors import (
    ClaimLostError,
    OutcomeUnknownError,
    SessionNotFoundError,
    StoreError,
    TapstoreError,
)
from tapstore.locks.guard import Renewer
from tapstore.sessions import heartbeats
from tapstore.sessions.config import new_id
from tapstore.tapfile import operations
from tapstore.tapfile.model import Participant
from tapstore.tapfile.operations import Operation

if TYPE_CHECKING:
    from tapstore.sessions.session import Session


MAX_REASON = 4000
"""Characters of an exception's message that are kept as the reason of a failure."""


class ClaimNotEndedWarning(UserWarning):
    """A `with session.claim(…)` block ended without `complete`, `fail` or `release`."""


class ConsumersNotToldWarning(UserWarning):
    """A claim is completed, but signal files for its consumers could not be written."""


class Claim:
    """One claim of one role; made by `Session.claim` or `Session.resume_claim`."""

    def __init__(
        self,
        session: Session,
        participant: Participant,
        *,
        on_lost: Callable[[Claim], None] | None = None,
        beating: bool = True,
    ) -> None:
        assert participant.claim is not None
        self._session = session
        self._grant = participant.claim
        self.role = participant.role
        """The role."""
        self.slot = participant.label
        """The slot of the role: `reviewer`, `reviewer#2`."""
        self.agent = participant.agent_id
        """Id of the agent that holds it."""
        self.attempt = participant.attempt
        """1 for the first claim of this round."""
        self._count = 0
        self._ended = False
        self._ending = False
        self._pid = os.getpid()
        self._renewer: Renewer | None = None
        if beating:
            callback = None if on_lost is None else lambda: on_lost(self)
            self._renewer = Renewer(
                self._beat,
                ttl=self._grant.ttl_seconds,
                name=f"heartbeat of {self.slot}",
                clock=session.clock,
                on_lost=callback,
                error=ClaimLostError,
            )
            self._renewer.start()

    @property
    def id(self) -> str:
        """What every operation of this claim names (`TAPSTORE_CLAIM`)."""
        return self._grant.id

    @property
    def token(self) -> int:
        """Fencing token: rises with each grant of the role; for resources that can check it."""
        return self._grant.fence

    @property
    def ended(self) -> bool:
        """Whether it was completed, failed, released or detached through this object."""
        return self._ended

    @property
    def lost(self) -> threading.Event:
        """Set when the claim is known to be lost; never cleared."""
        if self._renewer is None:
            raise TapstoreError(f"the claim of {self.slot} was resumed without heartbeats")
        return self._renewer.lost

    @property
    def was_refused(self) -> bool:
        """Whether it is lost because it was seen to have ended, and not because time ran out."""
        return self._renewer is not None and self._renewer.was_refused

    def check(self) -> None:
        """Raise `ClaimLostError` if the claim is known to be lost.  No I/O."""
        if self._ended:
            raise ClaimLostError(f"the claim of {self.slot} has ended here")
        if self._renewer is not None:
            self._renewer.check()

    def heartbeat(self) -> None:
        """Write a heartbeat now; raises `ClaimLostError` if the claim has ended."""
        self._beat()

    def _beat(self) -> float:
        session = self._session
        started = session.clock.monotonic()
        try:
            tapfile = session.state.peek().tapfile
        except SessionNotFoundError as exc:
            raise ClaimLostError(f"the claim of {self.slot} went with its session: {exc}") from exc
        if tapfile.claimed_by(self.id) is None:
            if self._ending:
                # A heartbeat was due right after the commit that ends the claim: nothing is lost.
                return started + self._grant.ttl_seconds
            raise ClaimLostError(
                f"the claim of {self.slot} in session {session.id} by {self.agent} has ended: "
                "`tapstore log` tells why"
            )
        self._count += 1
        at = heartbeats.write(
            session.state.store,
            agent=self.agent,
            claim=self.id,
            count=self._count,
            clock=session.clock,
        )
        session.state.note_beat(self.id, at)
        return started + self._grant.ttl_seconds

    # Work

    def publish(
        self,
        name: str,
        source: Source,
        *,
        type: str = "",
        consumers: Iterable[str] = (),
        phase: str | None = None,
        path: str | None = None,
        media_type: str = "",
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        checksum: str = "",
        on_progress: Progress | None = None,
    ) -> Artifact:
        """Store an artifact and register it, in a commit of its own.

        See `Session.publish` for the arguments.  Raises `ClaimLostError` if the claim has ended.
        """
        return self._session.publish(
            name,
            source,
            type=type,
            consumers=consumers,
            phase=phase,
            path=path,
            media_type=media_type,
            metadata=metadata,
            overwrite=overwrite,
            checksum=checksum,
            claim=self,
            on_progress=on_progress,
        )

    def complete(
        self,
        *,
        phase: str = "",
        publish: Iterable[Artifact] = (),
        overwrite: bool = False,
        reason: str = "",
    ) -> None:
        """End the claim: artifacts, status and phase in one commit.

        `publish` takes artifacts from `Session.stage`.  Consumers get a signal file in their
        inboxes unless the session was made without.
        """
        self._end(
            operations.Complete(
                id=new_id(),
                by=self.agent,
                reason=reason,
                claim=self.id,
                phase=phase,
                artifacts=tuple(publish),
                overwrite=overwrite,
            )
        )
        try:
            self._session.notify_consumers(self)
        except (StoreError, OutcomeUnknownError) as exc:
            warnings.warn(
                f"the claim of {self.slot} is completed, but not every consumer has got a signal "
                f"file: {exc}",
                ConsumersNotToldWarning,
                stacklevel=2,
            )

    def fail(self, reason: str, *, phase: str = "") -> None:
        """End the claim as failed.  The slot stays failed until somebody reopens it."""
        self._end(
            operations.Fail(id=new_id(), by=self.agent, reason=reason, claim=self.id, phase=phase)
        )

    def release(self, reason: str = "") -> None:
        """Give the role back: pending again, and the attempt does not count."""
        self._end(operations.Release(id=new_id(), by=self.agent, reason=reason, claim=self.id))

    def _end(self, operation: Operation) -> None:
        self.check()
        self._ending = True
        try:
            self._session.state.commit(operation)
        except ClaimLostError:
            self.detach()
            raise
        except BaseException:
            self._ending = False
            raise
        self.detach()
        with suppress(StoreError):  # it has ended all the same; `gc` finds the file
            heartbeats.forget(self._session.state.store, agent=self.agent, claim=self.id)

    def detach(self) -> None:
        """Stop heartbeats and leave the claim as it is, for another process to resume."""
        self._ended = True
        if self._renewer is not None:
            self._renewer.stop()
        self._session.state.note_beat(self.id, None)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked child leaves the block, too, perhaps by its exit; the claim is its parent's.
        if self._ended or self._pid != os.getpid():
            return
        if error is None:
            self.release("ended without a result")
            # Last: a filter may make it an error.
            warnings.warn(
                f"the claim of {self.slot} ended without complete(), fail() or release(); "
                "it was released",
                ClaimNotEndedWarning,
                stacklevel=2,
            )
        elif isinstance(error, ClaimLostError):
            self.detach()
        else:
            # The error that is under way matters more than one while ending the claim: if that
            # fails too, the watchdog takes the role back.
            with suppress(TapstoreError, OSError):
                if isinstance(error, Exception):
                    self.fail(_told(error))
                else:
                    self.release(f"interrupted ({type(error).__name__})")
            if not self._ended:
                self.detach()

    def __repr__(self) -> str:
        return f"<Claim of {self.slot} by {self.agent}, token {self.token}>"


def _told(error: Exception) -> str:
    """An error as a reason: messages may hold file names that are no Unicode, or whole outputs."""
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"
