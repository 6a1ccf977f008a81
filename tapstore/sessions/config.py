"""What a session was created with: `.tap/session`, written once, exclusively.

Creating this file is what creates the session.  It names the *incarnation*, drawn at creation,
under which everything that must not be mixed with a deleted session of the same name lies.  It
never holds credentials.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Literal

import msgspec

from tapstore.abc import Store
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    NotAllowedError,
    NotFoundError,
    SessionNotFoundError,
    StoreError,
)
from tapstore.keys import shell_word
from tapstore.types import CREATE, Capabilities

SESSION_KEY = ".tap/session"
TAPFILE_KEY = ".tap/Tapfile"
SESSION_LOG_KEY = ".tap/session.log"
TAPFILE_LOCK_KEY = ".tap/locks/tapfile.lock"
LOCKS_PREFIX = ".tap/locks"
HEARTBEATS_PREFIX = ".tap/heartbeats"
SIGNALS_PREFIX = ".tap/signals"
CONFLICTS_PREFIX = ".tap/conflicts"
INBOX = "inbox"

MAX_TTL_SECONDS = 7 * 86400

FORMAT = 1
"""Version of the layout below `.tap/`; docs/spec/layout.md."""

TapfileFormat = Literal["yaml", "json"]


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that all who open the session must agree on."""

    session_id: str
    incarnation: str
    format: int = FORMAT
    created_at: str = ""
    tapfile_format: TapfileFormat = "yaml"
    commits: Literal["logged", "direct"] = "logged"
    """What commits: a record in the log, or (where the place can compare) the Tapfile itself."""

    place: str = ""
    """Where it was made, as `Store.identity`; for that place alone `capabilities` are known."""

    capabilities: Capabilities | None = None

    exclusion: Literal["place", "locks"] = "place"
    """What keeps writers apart: conditions of the place, or (a weaker guarantee) locks alone."""

    locks: str = "o_excl"
    """Lock service for named leases."""

    artifacts: str = ""
    """URL of the place where the bytes of artifacts lie; empty: in the session."""

    artifacts_above_bytes: int | None = None
    """Only those of artifacts that are larger lie there; None: all."""

    artifacts_place: str = ""
    """That place as `Store.identity`; for it alone `artifacts_capabilities` are known."""

    artifacts_capabilities: Capabilities | None = None

    foreign: bool = True
    """Programs that edit the Tapfile themselves take part, under `tapfile.lock`."""

    keep_revisions: int = 64
    """How many of the newest contents are kept."""

    claim_ttl_seconds: float = 60
    """A claim without a heartbeat for this long is stale."""

    max_attempts: int = 3
    """After so many stale claims in a round the watchdog fails the slot; 0: never."""

    notify_consumers: bool = True
    """`complete` drops a signal file into the inbox of each consumer."""

    tapfile_lock_wait_seconds: float = 2
    """How long a commit waits for `tapfile.lock` before it goes on without publishing."""

    foreign_lock_stale_seconds: float = 0
    """Remove a `tapfile.lock` of another program after so long; 0: a person decides."""

    has_schema: bool = False
    """The JSON Schema at `schema_key` is checked in each commit."""

    @property
    def prefix(self) -> str:
        """Where the log and the revisions lie."""
        return f".tap/{self.incarnation}"

    @property
    def schema_key(self) -> str:
        """Where the session's own schema lies, if it has one."""
        # Not beside `.tap/session`: whoever tries to make a session that is there already must
        # not change its rules.
        return f"{self.prefix}/schema.json"


def new_id() -> str:
    """64 random bits, hex: ids of operations, writes and instances; unique enough in a session."""
    return os.urandom(8).hex()


def load(store: Store) -> SessionConfig:
    """The session at this place.  Raises `SessionNotFoundError` or `FormatError`."""
    return parse(store, raw(store))


def raw(store: Store) -> bytes:
    """The bytes of `.tap/session`; raises `SessionNotFoundError`."""
    try:
        return store.get(SESSION_KEY).data
    except NotFoundError as exc:
        raise SessionNotFoundError(
            f"no session at {store.url}; `tapstore init -w {shell_word(store.url)} --role ROLE …` "
            "makes one"
        ) from exc


def check_same(store: Store, expected: bytes) -> None:
    """Raise `SessionNotFoundError` if the session was deleted (and perhaps made again)."""
    if raw(store) != expected:
        raise SessionNotFoundError(
            f"the session at {store.url} was deleted and another one made in its place; open it "
            "again"
        )


def parse(store: Store, data: bytes) -> SessionConfig:
    try:
        config = msgspec.json.decode(data, type=SessionConfig)
    except msgspec.DecodeError as exc:
        raise FormatError(f"{store.url}: {SESSION_KEY} is damaged: {exc}") from exc
    if config.format > FORMAT:
        raise FormatError(
            f"{store.url}: the session has layout version {config.format}, this tapstore knows "
            f"{FORMAT}; upgrade: pip install -U tapstore"
        )
    if not config.incarnation.isalnum():
        raise FormatError(f"{store.url}: {SESSION_KEY}: incarnation is not letters and digits")
    return config


def check(config: SessionConfig) -> None:
    """Raise `NotAllowedError` for values that no session can work with."""
    try:
        msgspec.convert(msgspec.to_builtins(config), SessionConfig)
    except msgspec.ValidationError as exc:
        raise NotAllowedError(f"options of the session: {exc}") from exc
    if not 0 < config.claim_ttl_seconds <= MAX_TTL_SECONDS:
        raise NotAllowedError(
            "the ttl of claims must be more than 0 s and at most a week, not "
            f"{config.claim_ttl_seconds:g} s"
        )
    if config.keep_revisions < 1 or config.max_attempts < 0:
        raise NotAllowedError(
            f"keep_revisions must be at least 1, not {config.keep_revisions}, and max_attempts at "
            f"least 0, not {config.max_attempts}"
        )
    if config.artifacts_above_bytes is not None:
        if not config.artifacts:
            raise NotAllowedError(
                "artifacts_above says which go to another place: give artifacts=URL"
            )
        if config.artifacts_above_bytes < 0:
            raise NotAllowedError(
                f"artifacts_above is a size in bytes, not {config.artifacts_above_bytes}"
            )


def create(store: Store, config: SessionConfig) -> bytes:
    """Make the session exist; everything that it names must be there already.

    Returns the bytes written.  Raises `AlreadyExistsError` if there is a session; then nothing of
    this one is left.
    """
    data = msgspec.json.format(msgspec.json.encode(config), indent=2)
    try:
        store.put(SESSION_KEY, data, CREATE)
    except AlreadyExistsError as exc:
        if store.get(SESSION_KEY).data != data:  # else: our own write whose reply was lost
            with suppress(StoreError):  # else `gc` finds them
                for info in list(store.list(f"{config.prefix}/")):
                    store.delete(info.key)
            raise _taken(store) from exc
    return data


def refuse_second(store: Store) -> None:
    """Raise `AlreadyExistsError` if there is a session, before anything is written for another."""
    try:
        raw(store)
    except SessionNotFoundError:
        return
    raise _taken(store)


def _taken(store: Store) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"there is a session at {store.url} already; open it, or choose another URL"
    )


def as_dict(config: SessionConfig) -> dict[str, Any]:
    return dict(msgspec.to_builtins(config))
