"""Creating and opening sessions: puts the parts together.

A session exists from the moment that `.tap/session` does, and that file is created exclusively,
last: a crash before leaves nothing but leftovers of an incarnation that nobody knows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK, format_time_ms
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    NotAllowedError,
    UnsupportedOperationError,
)
from tapstore.keys import check_name, encode_name, without_password
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.sessions import artifactplace, direct, logged, place
from tapstore.sessions import config as configs
from tapstore.sessions.artifactplace import ArtifactOptions, ArtifactPlaces
from tapstore.sessions.config import SessionConfig, TapfileFormat, new_id
from tapstore.sessions.direct import DirectRevisions
from tapstore.sessions.logged import LoggedRevisions
from tapstore.sessions.place import Accept
from tapstore.sessions.revisions import Revisions
from tapstore.sessions.session import Session, list_names
from tapstore.sessions.sessionlog import SessionLogFile
from tapstore.sessions.state import SessionState, first_revision
from tapstore.sessions.view import NoView, View
from tapstore.stores.local import LocalStore
from tapstore.tapfile import model
from tapstore.tapfile.model import Participant, Tapfile
from tapstore.tapfile.schema import UserSchema
from tapstore.types import CREATE, OVERWRITE, Owner

_GITIGNORE = """\
# Unfinished writes, locks and signs of life mean nothing in another clone.
.tapstore-tmp-*
*.tmp
.tap/locks/
.tap/*/leases/
.tap/heartbeats/
"""


def assemble(
    store: Store,
    config: SessionConfig,
    config_bytes: bytes,
    clock: Clock,
    *,
    locks: str | None = None,
    places: ArtifactPlaces | None = None,
) -> Session:
    """The session of this configuration; nothing is looked at yet.

    `locks`: a URL of the opener's own for the lock service, with credentials.
    """
    view = _view(store, config, clock)
    revisions: Revisions
    if config.commits == "direct":
        revisions = DirectRevisions(store, config, config_bytes)
    else:
        revisions = LoggedRevisions(store, config, config_bytes, view.revision_hint)
    state = SessionState(
        store,
        config,
        revisions,
        view,
        clock=clock,
        user_check=_user_check(store, config),
    )
    return Session(state, locks=locks, places=places, clock=clock)


def _view(store: Store, config: SessionConfig, clock: Clock) -> View:
    if config.commits == "direct":
        return NoView(store, config)
    lock = log_file = None
    if isinstance(store, LocalStore):
        # After a power loss the view is published again; it need not be on the disk.
        store = LocalStore(store.root, durability="none", clock=clock)
        log_file = SessionLogFile(store.local_path(configs.SESSION_LOG_KEY))
        if config.foreign:
            owner = Owner(
                agent=f"{socket.gethostname()}:{os.getpid()}",
                instance=new_id(),
                host=socket.gethostname(),
                pid=os.getpid(),
            )
            lock = TapfileLock(
                store,
                configs.TAPFILE_LOCK_KEY,
                owner,
                clock=clock,
                foreign_stale_after=config.foreign_lock_stale_seconds or None,
            )
    return View(store, config, lock=lock, log_file=log_file)


def _user_check(store: Store, config: SessionConfig) -> Callable[[dict[str, Any]], None] | None:
    if not config.has_schema:
        return None
    return UserSchema(store.get(config.schema_key).data).check


def create(
    url: object,
    *,
    roles: Iterable[str] | Mapping[str, int] = (),
    phase: str = "",
    phases: Iterable[str] = (),
    session_id: str | None = None,
    tapfile_format: TapfileFormat = "yaml",
    locks: str | None = None,
    accept: Accept | None = None,
    foreign: bool | None = None,
    keep_revisions: int = 64,
    claim_ttl: float = 60,
    max_attempts: int = 3,
    notify_consumers: bool = True,
    schema: bytes | None = None,
    fields: Mapping[str, Any] | None = None,
    by: str = "",
    artifacts: str | os.PathLike[str] | None = None,
    artifacts_above: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    artifact_options: ArtifactOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Session:
    """Make a session at `url` and open it.

    `url`: a path, a URL (`file:///…`, `s3://…`, `memory://…`, any scheme of fsspec), a `Store`, or
    fsspec's own `(filesystem, path)`; `storage_options` as in fsspec.
    `locks`: who keeps named leases: `o_excl` (files or objects that are created exclusively),
    `store` (one object each, where the place can compare; the default there), or a URL such as
    `redis://host:6379/0`; the session remembers it, without the password.
    `accept`: "lock-only", on a place that ignores conditions, together with a lock service
    outside of it: a writer that is stopped in the middle of a write for longer than the lock
    lasts may then undo what others committed meanwhile.
    `roles`: names, a repeated one has so many slots; or a mapping of name to slots.  `phases`:
    the phases allowed, in order (none: any).  `foreign`: programs that edit the Tapfile
    themselves take part (default: where the place is made of files).  `schema`: a JSON Schema
    that every revision must also meet.  `fields`: further fields of the Tapfile.
    `artifacts`: URL or path of another place for the bytes of artifacts, all of them or those of
    more than `artifacts_above` bytes; the session remembers it.  `artifact_options`: its
    `storage_options`, or a callable that gives them for a URL (default: those of the session, if
    the scheme is the same).

    Raises `AlreadyExistsError` if there is a session, `NotAllowedError` for options that no
    session can work with, `UnsupportedOperationError` for a place that none can rely on: one that
    ignores conditions, or a mount whose options can lose work.
    """
    store = registry.open_store(url, storage_options=storage_options, clock=clock)
    store, found = place.settle(store, locks, accept, clock)
    configs.refuse_second(store)
    place.refuse_mount(store)
    if foreign is None:
        foreign = found.files
    elif foreign and not found.files:
        raise UnsupportedOperationError(
            f"{store.url} is not made of files, so no other program can edit the Tapfile there: "
            "leave out foreign=True"
        )
    direct_commits = place.commits_directly(found)
    if locks is None:
        locks = place.usual_locks(found)
    now = store.now()
    config = SessionConfig(
        session_id=check_name(session_id or _default_id(store.url), "session id"),
        incarnation=new_id(),
        created_at=format_time_ms(now),
        tapfile_format=tapfile_format,
        locks=without_password(locks),
        commits="direct" if direct_commits else "logged",
        place="" if found.files else store.identity,
        capabilities=None if found.files else found,
        exclusion="place" if accept is None else "locks",
        foreign=foreign,
        keep_revisions=keep_revisions,
        claim_ttl_seconds=claim_ttl,
        max_attempts=max_attempts,
        notify_consumers=notify_consumers,
        has_schema=schema is not None,
        artifacts="" if artifacts is None else artifactplace.check_url(artifacts),
        artifacts_above_bytes=artifacts_above,
    )
    configs.check(config)
    registry.open_locks(
        locks, store, configs.LOCKS_PREFIX, scope=config.incarnation, clock=clock
    ).close()
    names = (
        [name for name, count in roles.items() for _ in range(count)]
        if isinstance(roles, Mapping)
        else list_names(roles, "roles")
    )
    if taken := model.TAPFILE_FIELDS & (fields or {}).keys():
        raise NotAllowedError(
            f"fields: {', '.join(sorted(taken))} of a Tapfile cannot be given as a further field"
        )
    tapfile = Tapfile(
        session_id=config.session_id,
        participants=tuple(Participant(role=model.check_role(name)) for name in names),
        phases=tuple(check_name(p, "phase") for p in list_names(phases, "phases")),
        extra=dict(fields or {}),
    )
    if not phase and tapfile.phases:
        phase = tapfile.phases[0]
    if phase:
        tapfile = tapfile.with_phase(phase)
    if schema is not None:
        UserSchema(schema).check(model.to_doc(tapfile))
        store.put(config.schema_key, schema, OVERWRITE)
    places = ArtifactPlaces(
        store,
        config,
        storage_options=storage_options,
        artifact_options=artifact_options,
        clock=clock,
    )
    config = artifactplace.settle(places, config)
    begin = direct.begin if direct_commits else logged.begin
    try:
        begin(store, config, first_revision(config, tapfile, by=by, at=now))
        config_bytes = configs.create(store, config)
    except (AlreadyExistsError, FormatError, NotAllowedError):
        # These leave no doubt that nobody will ever look for it.
        artifactplace.unsettle(places)
        raise
    if isinstance(store, LocalStore):
        _make_folders(store, tapfile)
    session = assemble(store, config, config_bytes, clock, locks=locks, places=places)
    session.state.publish()
    return session


def _default_id(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2] or "session"


def _make_folders(store: LocalStore, tapfile: Tapfile) -> None:
    """The folders that plain programs expect to be there, and what git should leave out."""
    inboxes = [f"inbox/{encode_name(role)}" for role in tapfile.roles()]
    for folder in (configs.LOCKS_PREFIX, "artifacts", "inbox", "logs", *inboxes):
        os.makedirs(store.local_path(folder), exist_ok=True)
    try:
        store.put(".gitignore", _GITIGNORE.encode(), CREATE)
    except AlreadyExistsError:
        pass  # the user's own


def open(
    url: object,
    *,
    storage_options: Mapping[str, Any] | None = None,
    locks: str | None = None,
    artifact_options: ArtifactOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Session:
    """Open the session at `url` (as in `create`).

    `locks`, if given, has to be the lock service that the session uses, else `NotAllowedError`
    names both; its user and password are used by this process only.  `artifact_options` are the
    `storage_options` for the other place of its artifacts, and for external ones of that scheme,
    or a callable that gives them for a URL (default: those of the session, if the scheme is the
    same).  Raises `SessionNotFoundError`.
    """
    store = registry.open_store(url, storage_options=storage_options, clock=clock)
    data = configs.raw(store)
    config = configs.parse(store, data)
    if locks is not None:
        from tapstore.sessions import lockservice

        lockservice.check_same(store, config, locks)
    store = place.reopened(store, config, locks or config.locks, clock)
    places = ArtifactPlaces(
        store,
        config,
        storage_options=storage_options,
        artifact_options=artifact_options,
        clock=clock,
    )
    return assemble(store, config, data, clock, locks=locks, places=places)
