"""Where the bytes of artifacts lie: in the session, or all (or the large ones) in another place.

There they lie below a folder that belongs to this incarnation of the session alone, under the
same rules as in the session.  A registration has the whole URL as its path, so that programs that
know nothing of tapstore find them too; what tells them from bytes of somebody else is that URL.
The place is opened when it is first needed: without it everything else goes on.

Not promised: that a session that was copied has bytes of its own (it shares them with the
original, and collects none); that a place that is gone is told from one whose bytes are gone,
except when something is to be written there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.artifacts import external, paths, publish, sources
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.publish import Source
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidKeyError,
    NotFoundError,
    StoreError,
    UnsupportedOperationError,
)
from tapstore.keys import mask_url
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.place import refuse_mount
from tapstore.stores.known import KnownStore

MARKER = "place.json"
"""In the folder of each incarnation: which session it belongs to."""

ArtifactOptions = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]
"""`storage_options` for the places of artifacts, or what gives them for a URL."""


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    session: str
    """Where the session lies, as its store calls it."""

    created_at: str = ""


def check_url(place: str | os.PathLike[str]) -> str:
    """The URL to remember for a place that was given as a URL or path.

    Raises `InvalidKeyError` for one that holds credentials.
    """
    given = os.fspath(place)
    url = given if "://" in given else f"file://{os.path.abspath(os.path.expanduser(given))}"
    url = url.rstrip("/")
    fault = external.credentials_fault(url)
    if "://" not in url or not url.isprintable():
        fault = "give a URL or the path of a folder, other than '/'"
    if fault:
        raise InvalidKeyError(f"artifacts={paths.shown(given)!r}: {fault}")
    return url


class ArtifactPlaces:
    """Both places of one opened session; safe to use from several threads."""

    def __init__(
        self,
        home: Store,
        config: SessionConfig,
        *,
        storage_options: Mapping[str, Any] | None = None,
        artifact_options: ArtifactOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`storage_options` are those of `home`; they serve for URLs of the same scheme, too."""
        self.home = home
        self.config = config
        self._home_options = storage_options
        self._options = artifact_options
        self._clock = clock
        self._away: Store | None = None
        self._base = folder_of(config, config.incarnation) + "/" if config.artifacts else ""

    # Where bytes are

    @property
    def away(self) -> Store | None:
        """The other place, if the session has one; opened, but nothing was asked of it yet."""
        if not self._base:
            return None
        if self._away is None:
            # No mutex: one that another thread held during a fork would stay held in the child.
            self._away = self.open_folder(self.config.incarnation)
        return self._away

    def open_folder(self, incarnation: str) -> Store:
        """The folder in the other place that belongs to this, or an earlier, incarnation."""
        url = folder_of(self.config, incarnation)
        try:
            store = registry.open_store(
                url, storage_options=self.options_for(url), clock=self._clock
            )
        except TypeError as exc:
            raise FormatError(f"options for {mask_url(url)}: {exc}") from exc
        known = self.config.artifacts_capabilities
        if known is None or self.config.artifacts_place != store.identity:
            return store
        return KnownStore(store, known)

    def options_for(self, url: str) -> Mapping[str, Any]:
        """The `storage_options` for a place of artifacts, ours or that of an external URI."""
        if callable(self._options):
            return self._options(url)
        scheme = _scheme(url)
        if self._options is not None and scheme == _scheme(self.config.artifacts or url):
            return self._options
        return (self._home_options or {}) if scheme == _scheme(self.home.url) else {}

    def key_away(self, artifact: Artifact) -> str | None:
        """Where in the other place its bytes are; None if they are not there."""
        if not self._base or not artifact.path.startswith(self._base):
            return None
        return artifact.path[len(self._base) :]

    def path_away(self, key: str) -> str:
        """What is registered for bytes at `key` in the other place."""
        return self._base + key

    def locate(self, artifact: Artifact) -> tuple[Store, Artifact]:
        """The store that has the bytes, and the artifact with its path in that store.

        External ones stay as they are.
        """
        key = self.key_away(artifact)
        if key is None:
            return self.home, artifact
        assert self.away is not None
        return self.away, replace(artifact, path=key)

    # Writing

    def stage(
        self, source: Source, *, registered: Collection[Artifact], **details: Any
    ) -> Artifact:
        """`publish.stage`, in the place where an artifact of that size belongs."""
        above = self.config.artifacts_above_bytes
        if not self._base:
            return publish.stage(self.home, source, registered=registered, **details)
        if above is None:
            return self._stage_away(source, registered, details)
        with sources.measured(source) as (measured, size):
            if size > above:
                return self._stage_away(measured, registered, details)
            return publish.stage(self.home, measured, registered=registered, **details)

    def _stage_away(
        self, source: Source, registered: Collection[Artifact], details: Mapping[str, Any]
    ) -> Artifact:
        away = self.away
        assert away is not None
        # A folder where nothing is mounted takes everything, too.
        self._owner(away)
        there = [self.locate(a)[1] for a in registered if self.key_away(a) is not None]
        staged = publish.stage(away, source, registered=there, **details)
        return replace(staged, path=self.path_away(staged.path))

    # Whose it is

    def owner(self, folder: Store) -> str:
        """URL of the session that a folder in the other place belongs to.

        Raises `NotFoundError` if it does not say so.
        """
        data = folder.get(MARKER).data
        try:
            return msgspec.json.decode(data, type=_Marker).session
        except msgspec.DecodeError as exc:
            raise FormatError(f"{folder.url}: {MARKER} is damaged: {exc}") from exc

    def _owner(self, away: Store) -> str:
        try:
            return self.owner(away)
        except NotFoundError as exc:
            raise StoreError(
                f"the artifacts of session {self.config.session_id} lie in {away.url}, but "
                f"{MARKER} is missing there: is it mounted, is it the right server?  If it was "
                "deleted, restore it from a copy"
            ) from exc

    def why_not_collected(self) -> str | None:
        """Why nothing may be collected in the other place: this may be a copy of the session."""
        if self.away is None:
            return None
        made = self._owner(self.away)
        if made == self.home.url:
            return None
        return (
            f"{self.away.url} belongs to the session at {mask_url(made)}, and this is at "
            f"{mask_url(self.home.url)}: it may be a copy, so what lies there is not collected "
            f"from here.  If it was moved, say so in {MARKER} there"
        )

    def close(self) -> None:
        if self._away is not None:
            self._away.close()


def settle(places: ArtifactPlaces, config: SessionConfig) -> SessionConfig:
    """Prepare the other place of a session that is about to be made; what is known of it is added.

    Raises `UnsupportedOperationError` for a place that no session can rely on.
    """
    away = places.away
    if away is None:
        return config
    found = away.capabilities
    if not found.create:
        raise UnsupportedOperationError(
            f"no artifacts can lie in {mask_url(config.artifacts)}: it lacks the capability "
            "'create', so one artifact could overwrite another; choose another place"
        )
    refuse_mount(away)
    marker = _Marker(
        session_id=config.session_id, session=places.home.url, created_at=config.created_at
    )
    with suppress(AlreadyExistsError):  # the incarnation was drawn just now: only a lost reply
        away.put(MARKER, msgspec.json.encode(marker))
    return replace(
        config,
        artifacts_place="" if found.files else away.identity,
        artifacts_capabilities=None if found.files else found,
    )


def unsettle(places: ArtifactPlaces) -> None:
    """Take back what `settle` did, for a session that was not made."""
    if places.away is not None:
        with suppress(StoreError):  # no more than a small file
            places.away.delete(MARKER)


def folder_of(config: SessionConfig, incarnation: str) -> str:
    """The URL of an incarnation's folder.

    Its name begins with a word of ours: what is said in `.tap/session` must not be able to choose
    just any folder to write to.
    """
    return f"{config.artifacts}/tapstore-{incarnation}"


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else "file"
