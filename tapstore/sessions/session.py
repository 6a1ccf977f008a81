"""A session, as agents use it.

Everything that changes it is one commit and is decided by the rules in `operations`; the methods
here only put the parts together.  Safe to use from several threads.
"""

from __future__ import annotations

import builtins
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tapstore.abc import Clock
from tapstore.artifacts import external, paths
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.artifacts.streams import Progress
from tapstore.clock import SYSTEM_CLOCK, format_time_ms
from tapstore.errors import (
    AlreadyClaimedError,
    AlreadyExistsError,
    ClaimLostError,
    FormatError,
    NotAllowedError,
    NotFoundError,
    WaitTimeoutError,
)
from tapstore.keys import check_name, encode_name, mask_url
from tapstore.locks.guard import Guard
from tapstore.sessions import config as configs
from tapstore.sessions import editing, heartbeats, history, notices
from tapstore.sessions.artifactfiles import ArtifactFiles
from tapstore.sessions.artifactplace import ArtifactPlaces
from tapstore.sessions.claim import Claim
from tapstore.sessions.config import new_id
from tapstore.sessions.history import LogEntry
from tapstore.sessions.ringer import Ringer
from tapstore.sessions.state import SessionState
from tapstore.sessions.waiting import Waiter
from tapstore.sessions.watchdog import Watchdog
from tapstore.tapfile import format, operations
from tapstore.tapfile import model as model
from tapstore.tapfile.changes import Change
from tapstore.tapfile.model import COMPLETED, Participant, Tapfile
from tapstore.types import CREATE, Owner

if TYPE_CHECKING:
    from tapstore.sessions.lockservice import SessionLocks
    from tapstore.sessions.lockswitch import Switched


class Session:
    """One session at one place.  Made by `tapstore.create` and `tapstore.open`."""

    def __init__(
        self,
        state: SessionState,
        *,
        locks: str | None = None,
        places: ArtifactPlaces | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`locks`: a URL of the opener's own for the lock service, with credentials."""
        self.state = state
        self.store = state.store
        self.config = state.config
        self.artifact_places = places or ArtifactPlaces(self.store, self.config, clock=clock)
        self.clock = clock
        self.url = state.store.url
        self._given_locks = locks
        self._locks: SessionLocks | None = None
        self._watchdog = Watchdog(state, clock=clock)
        self._ringer: Ringer | None = None
        if "://" in self.config.locks:
            self._ringer = Ringer(lambda: self.locks.bell())
            state.on_commit = self._ringer.ring

    # Reading

    @property
    def id(self) -> str:
        """The session's id."""
        return self.config.session_id

    @property
    def tapfile(self) -> Tapfile:
        """The newest committed state; an edit of the Tapfile by another program included."""
        return self.state.refresh().tapfile

    @property
    def phase(self) -> str:
        """The current phase."""
        return self.tapfile.current_phase

    @property
    def artifacts(self) -> ArtifactFiles:
        """The registered artifacts: a mapping by name, or by (phase, name)."""
        return ArtifactFiles(self.artifact_places, lambda: self.state.refresh().tapfile)

    def log(self, *, after: int = 0) -> Iterator[LogEntry]:
        """What happened, one entry a commit, from revision `after` + 1 on."""
        return (history.log_entry(head) for head in self.state.log.records(after=after))

    def signals(self) -> list[str]:
        """Names of the signals given so far."""
        from tapstore.keys import decode_name

        return [decode_name(name) for name in self.store.children(f"{configs.SIGNALS_PREFIX}/")]

    # Work

    def claim(
        self,
        role: str,
        *,
        agent: str,
        wait: float | None = 0,
        ttl: float | None = None,
        phase: str = "",
        expected: str | None = None,
        takeover: bool = False,
        on_lost: Callable[[Claim], None] | None = None,
        reason: str = "",
    ) -> Claim:
        """Take a role; of any number of agents exactly one gets a slot.

        Waits up to `wait` seconds (None: for ever) while others hold it, and takes it back from
        holders that died.  Heartbeats are written until the claim ends; without one for `ttl`
        seconds (the session's default if None) anybody may reset it.  `phase` is set in the same
        commit; with `expected` it is made in that phase only.

        Raises `AlreadyClaimedError` naming the winner, or `NotAllowedError` if there is nothing
        to claim (completed, assigned to another agent, no such role, another phase).
        """
        operation = self._claim_operation(role, agent, ttl, phase, expected, takeover, reason)
        with self._waiting(wait) as waiter:
            while True:
                try:
                    snapshot = self.state.commit(operation)
                    break
                except AlreadyClaimedError as exc:
                    self._wait_for_slot(operation, waiter, exc)
        participant = snapshot.tapfile.claimed_by(operation.id)
        assert participant is not None
        return Claim(self, participant, on_lost=on_lost)

    def _wait_for_slot(
        self, operation: operations.Claim, waiter: Waiter, refusal: AlreadyClaimedError
    ) -> None:
        """Return when a claim is worth an attempt; raises the refusal when the wait is over."""
        while True:
            # Nothing needs to be running for recovery: whoever wants the role looks.
            if any(True for _ in self._watchdog.sweep(by=operation.agent)):
                return
            if not waiter.wait():
                raise refusal
            try:
                # An attempt takes tapfile.lock, which wakes everybody who waits for a change.
                self.state.try_out(operation)
            except AlreadyClaimedError as exc:
                refusal = exc
            else:
                return

    def _claim_operation(
        self,
        role: str,
        agent: str,
        ttl: float | None,
        phase: str,
        expected: str | None,
        takeover: bool,
        reason: str,
    ) -> operations.Claim:
        ttl = self.config.claim_ttl_seconds if ttl is None else ttl
        if not 0 < ttl <= configs.MAX_TTL_SECONDS:
            raise NotAllowedError(f"ttl must be more than 0 s and at most a week, not {ttl:g} s")
        return operations.Claim(
            id=new_id(),
            by=check_name(agent, "agent id"),
            role=role,
            agent=agent,
            instance=new_id(),
            ttl_seconds=ttl,
            phase=phase,
            expected=expected,
            takeover=takeover,
            reason=reason,
        )

    def resume_claim(self, claim_id: str, *, beating: bool = False) -> Claim:
        """The claim of that id, granted to another process (`TAPSTORE_CLAIM`).

        With `beating` this process writes its heartbeats from now on.  Raises `ClaimLostError` if
        it has ended.
        """
        participant = self.tapfile.claimed_by(claim_id)
        if participant is None:
            raise ClaimLostError(
                f"claim {claim_id} in session {self.id} has ended; `tapstore log` tells why"
            )
        return Claim(self, participant, beating=beating)

    def stage(
        self,
        name: str,
        source: Source,
        *,
        type: str = "",
        consumers: Iterable[str] = (),
        producer: str = "",
        phase: str | None = None,
        path: str | None = None,
        media_type: str = "",
        metadata: Mapping[str, Any] | None = None,
        claim: Claim | None = None,
        on_progress: Progress | None = None,
    ) -> Artifact:
        """Store the bytes of an artifact without registering it, for `Claim.complete(publish=…)`.

        `source`: bytes, a path (a directory becomes a manifest) or a binary stream.  The path is
        `artifacts/<phase>/<name>` unless given; if it is taken by other bytes, the claim's id is
        added to it.
        """
        tapfile = self.tapfile
        phase = tapfile.current_phase if phase is None else phase
        return self.artifact_places.stage(
            source,
            name=name,
            phase=phase,
            path=path,
            suffix=new_id() if claim is None else claim.id,
            registered=tapfile.artifacts,
            type=type,
            producer=producer or ("" if claim is None else claim.agent),
            consumers=list_names(consumers, "consumers"),
            media_type=media_type,
            metadata=metadata,
            on_progress=on_progress,
        )

    def publish(
        self,
        name: str,
        source: Source,
        *,
        type: str = "",
        consumers: Iterable[str] = (),
        producer: str = "",
        phase: str | None = None,
        path: str | None = None,
        media_type: str = "",
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        checksum: str = "",
        claim: Claim | None = None,
        on_progress: Progress | None = None,
    ) -> Artifact:
        """Store an artifact and register it; returns it as registered.

        `source` is as in `stage`, or a URI (`s3://…`, `https://…`), which is registered without
        copying and verified on fetch if a `checksum` (`sha256:<hex>`) is given.  `overwrite`
        moves the registration of another role; the old bytes stay until `gc`.
        """
        if isinstance(source, str) and "://" in source:
            artifact = external.register(
                source,
                name=paths.check_name(name),
                phase=self.phase if phase is None else phase,
                checksum=checksum,
                type=type,
                producer=producer or ("" if claim is None else claim.agent),
                consumers=list_names(consumers, "consumers"),
                media_type=media_type,
                metadata=metadata,
            )
        else:
            artifact = self.stage(
                name,
                source,
                type=type,
                consumers=consumers,
                producer=producer,
                phase=phase,
                path=path,
                media_type=media_type,
                metadata=metadata,
                claim=claim,
                on_progress=on_progress,
            )
            if checksum and checksum != artifact.checksum:
                raise FormatError(
                    f"{name!r} has {artifact.checksum}, not {checksum} as given; not registered"
                )
        if claim is not None:
            claim.check()
        self.state.commit(
            operations.Publish(
                id=new_id(),
                by=artifact.producer,
                artifacts=(artifact,),
                claim="" if claim is None else claim.id,
                overwrite=overwrite,
            )
        )
        return artifact

    def notify_consumers(self, claim: Claim) -> None:
        """Drop a signal file for each consumer of what this claim published, if switched on."""
        if not self.config.notify_consumers:
            return
        tapfile = self.tapfile
        notices.notify(self.store, tapfile, claim=claim.id, role=claim.role, agent=claim.agent)

    def wake(self) -> None:
        """Have those who wait for something in this session look early; may reach nobody.

        Commits do so by themselves.
        """
        if self._ringer is not None:
            self._ringer.ring()

    # Steering

    def set_phase(
        self, phase: str, *, by: str = "", reason: str = "", expected: str | None = None
    ) -> None:
        """Move the session to a phase; with `expected` only from that one."""
        self.state.commit(
            operations.SetPhase(id=new_id(), by=by, reason=reason, phase=phase, expected=expected)
        )

    def reopen(self, slot: str, *, by: str = "", reason: str = "", phase: str = "") -> None:
        """Start the next round of a completed or failed slot (`reviewer`, `reviewer#2`)."""
        self.state.commit(
            operations.Reopen(id=new_id(), by=by, reason=reason, slot=slot, phase=phase)
        )

    def reset(self, slot: str, *, by: str = "", reason: str = "", token: int | None = None) -> None:
        """Take a working slot back from whoever holds it; what the holder still does is refused.

        With `token`, only from the claim with that fencing number.
        """
        held = operations.find_slot(self.tapfile, slot).claim
        if token is not None and (held is None or held.fence != token):
            now = "by nobody" if held is None else f"under token {held.fence}"
            raise ClaimLostError(f"{slot} is held {now}, not under token {token}; not reset")
        claim = "" if held is None else held.id
        self.state.commit(
            operations.Reset(id=new_id(), by=by, reason=reason, slot=slot, claim=claim)
        )

    def edit(
        self,
        change: Callable[[dict[str, Any]], Any],
        *,
        by: str = "",
        reason: str = "",
        timeout: float = 60,
        key: str = "",
    ) -> tuple[Change, ...]:
        """Change fields of the document: `change` gets a copy and alters it in place.

        Returns what changed.  The same rules hold as for any other change; `FormatError` says
        what is no Tapfile.  If another commit changed the same field meanwhile, `change` is called
        again with the newest document, for up to `timeout` seconds; then `ConflictError` says
        which field.

        With a `key` from `new_key` the edit is made once, however often and wherever the call is
        repeated: after `OutcomeUnknownError`, or after a crash.  Returned is what the one that
        was made has changed.
        """
        return editing.edit(
            self.state,
            change,
            by=by,
            reason=reason,
            timeout=timeout,
            key=key,
            clock=self.clock,
        )

    def new_key(self) -> str:
        """A key for one `edit`; keep it before you begin, to repeat that edit after a crash."""
        return editing.new_key(self.state)

    def signal(self, name: str, data: Any = None, *, by: str = "") -> None:
        """Give a signal, once and for all: no lock, no commit, one exclusive creation.

        Raises `AlreadyExistsError` if it was given before.
        """
        record = {"name": name, "data": data, "by": by, "at": format_time_ms(self.store.now())}
        written = format.render(record, fmt="json")
        try:
            self.store.put(self._signal_key(name), written, CREATE)
        except AlreadyExistsError as exc:
            raise AlreadyExistsError(
                f"signal {name!r} of session {self.id} was given already; signals are given once"
            ) from exc

    def read_signal(self, name: str) -> dict[str, Any] | None:
        """The signal (`name`, `data`, `by`, `at`), or None if it was not given yet.

        Of one that another program gave by making the file, `data` is the text in it.
        """
        try:
            got = self.store.get(self._signal_key(name))
        except NotFoundError:
            return None
        at = format_time_ms(got.info.modified)
        try:
            record = msgspec.json.decode(got.data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = got.data.decode(errors="backslashreplace")
            return {"name": name, "data": text or None, "by": "", "at": at}
        return {"name": name, "data": None, "by": "", "at": at} | record

    def _signal_key(self, name: str) -> str:
        return f"{configs.SIGNALS_PREFIX}/{encode_name(check_name(name, 'signal'))}"

    # Waiting

    def wait_for(
        self,
        *,
        phase: str | None = None,
        artifact: str | None = None,
        signal: str | None = None,
        completed: str | None = None,
        timeout: float | None = None,
    ) -> Tapfile:
        """Wait until all that is named holds at once; returns the state that it holds in.

        `completed` is a role whose slots all have to be completed.  Raises `WaitTimeoutError`
        that says what is the case instead.
        """
        if phase is None and artifact is None and signal is None and completed is None:
            raise ValueError("wait_for needs a phase, an artifact, a signal or a role")
        with self._waiting(timeout) as waiter:
            while True:
                tapfile = self.tapfile
                missing = self._missing(tapfile, phase, artifact, signal, completed)
                if not missing:
                    return tapfile
                if not waiter.wait():
                    raise WaitTimeoutError(
                        f"session {self.id}, after {timeout:g} s: {'; '.join(missing)}"
                    )

    def waiter(self, timeout: float | None) -> Waiter:
        """Paces who looks again and again, for `timeout` seconds (None: for ever); close it."""
        bell = None if self._ringer is None else lambda: self.locks.bell()
        return Waiter(self.store, self.clock, timeout=timeout, open_bell=bell)

    @contextmanager
    def _waiting(self, timeout: float | None) -> Iterator[Waiter]:
        with closing(self.waiter(timeout)) as waiter:
            yield waiter

    def _missing(
        self,
        tapfile: Tapfile,
        phase: str | None,
        artifact: str | None,
        signal: str | None,
        completed: str | None,
    ) -> list[str]:
        missing = []
        if phase is not None and tapfile.current_phase != phase:
            if tapfile.phases and phase not in tapfile.phases:
                tapfile.with_phase(phase)
            missing.append(f"the phase is {tapfile.current_phase!r}, not {phase!r}")
        if artifact is not None and tapfile.artifact(artifact) is None:
            missing.append(f"there is no artifact {artifact!r}")
        if signal is not None and self.read_signal(signal) is None:
            missing.append(f"signal {signal!r} was not given")
        if completed is not None:
            slots = tapfile.slots(completed)
            if not slots:
                operations.find_slot(tapfile, completed)
            missing += [f"{p.label} is {p.status}" for p in slots if p.status != COMPLETED]
        return missing

    def watch(
        self, *, after: int | None = None, timeout: float | None = None
    ) -> Iterator[LogEntry]:
        """Yield each commit as it happens; from now on, or from revision `after` + 1.

        Ends when nothing happened for `timeout` seconds; None: never.
        """
        seen = self.state.refresh().rev if after is None else after
        while True:
            with self._waiting(timeout) as waiter:
                while self.state.refresh().rev <= seen:
                    if not waiter.wait():
                        return
            for entry in self.log(after=seen):
                seen = entry.rev
                yield entry

    # Locks, watchdog

    @property
    def locks(self) -> SessionLocks:
        """The lock service of the session: whichever is in force."""
        if self._locks is None:
            # Most commands take no lease, and each starts a new interpreter.
            from tapstore.sessions.lockservice import SessionLocks

            self._locks = SessionLocks(
                self.store, self.config, given=self._given_locks, clock=self.clock
            )
        return self._locks

    def switch_locks(
        self,
        locks: str,
        *,
        wait: float = 30,
        force: bool = False,
        old_is_gone: bool = False,
        agent: str = "",
    ) -> Switched:
        """Have everybody use another lock service from now on, also who has the session open.

        Waits up to `wait` seconds for the leases that are held in the old one; then `force` ends
        them, else `LeaseUnavailableError` says who holds what: only these cannot be had before
        they are given back.  With `old_is_gone` the old one is not asked, only waited for: whoever
        can still reach it, or holds a lease with a longer ttl than `wait`, may believe in it beside
        a new holder.  Repeat the call to go on after a failure.
        """
        from tapstore.sessions import lockswitch

        lockswitch.check_can_switch(self.config.exclusion, f"session {self.id}")
        return lockswitch.switch(
            self.locks,
            locks,
            owner=_owner(agent),
            wait=wait,
            force=force,
            old_is_gone=old_is_gone,
        )

    def lock(
        self,
        name: str,
        *,
        ttl: float,
        wait: float | None = 0,
        agent: str = "",
        reason: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> Guard:
        """Hold a named lease; renewed in the background, released when the block ends.

        `guard.lease.generation` is the fencing token.  Raises `LeaseUnavailableError` naming the
        holder when `wait` seconds (None: for ever) are over.
        """
        lease = self.locks.acquire(name, _owner(agent), ttl=ttl, wait=wait, reason=reason)
        return Guard(self.locks, lease, clock=self.clock, on_lost=on_lost)

    def sweep(self, *, by: str = "watchdog") -> builtins.list[Participant]:
        """Take roles back from agents that died; returns the slots that were reset."""
        return [judgement.participant for judgement in self._watchdog.sweep(by=by)]

    def judge(self) -> builtins.list[heartbeats.Judgement]:
        """How alive the working participants are; changes nothing."""
        return self._watchdog.judge()

    def close(self) -> None:
        """Release what the session holds open.  Claims go on until they end or go stale."""
        with ExitStack() as stack:
            stack.callback(self.store.close)
            stack.callback(self.artifact_places.close)
            if self._locks is not None:
                stack.callback(self._locks.close)
            if self._ringer is not None:
                stack.callback(self._ringer.close)  # before the locks, whose bell it rings
            self.state.flush()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id} at {mask_url(self.url)}>"


def _owner(agent: str) -> Owner:
    host = socket.gethostname()
    return Owner(
        agent=agent or f"{host}:{os.getpid()}", instance=new_id(), host=host, pid=os.getpid()
    )


def list_names(given: Iterable[str], what: str) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"{what} is a list of names: [{given!r}], not {given!r}")
    return list(given)
