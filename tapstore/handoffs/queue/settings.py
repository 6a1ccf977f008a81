"""What a session sets for its hand-offs: a small document of its own, read when it is needed.

Without one the defaults hold.  It is written whole by whoever configures the session, and is
hostile until it was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from tapstore.abc import Store
from tapstore.errors import FormatError, NotFoundError
from tapstore.handoffs import types as message_types
from tapstore.handoffs.mailbox import Mode
from tapstore.handoffs.names import check_role
from tapstore.handoffs.queue.places import SETTINGS_KEY
from tapstore.handoffs.types import MessageType
from tapstore.tapfile import format
from tapstore.tapfile.fields import shorten
from tapstore.types import OVERWRITE

MIN_LEASE_SECONDS = 1.0
MAX_LEASE_SECONDS = 7 * 86_400.0
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one session."""

    types: Mapping[str, MessageType] = field(default_factory=message_types.built_in)
    """All message types, built in and declared."""

    receive: Mapping[str, Mode] = field(default_factory=dict)
    """How roles receive; those that are not named take one message at a time."""

    lease_seconds: float = 3600.0
    """Without a sign of life for so long, what was accepted may be taken over."""

    max_attempts: int = 3
    """What was accepted so often and never completed is dead."""

    max_waiting: int = 0
    """`send` refuses to let more wait for a role; 0: any number."""

    ageing_seconds: float = 600.0
    """A message that waits for so long counts as one priority better; 0: never."""


_NAMES = tuple(f.name for f in fields(Settings))


def load(store: Store) -> Settings:
    """The settings of the session in this store.  Raises `FormatError`."""
    try:
        data = store.get(SETTINGS_KEY, end=MAX_BYTES + 1).data
    except NotFoundError:
        return Settings()
    return parse(data, name=SETTINGS_KEY)


def save(store: Store, data: bytes, *, name: str = "settings") -> Settings:
    """Check a document and make it the session's; returns what it says.  Raises `FormatError`."""
    settings = parse(data, name=name)
    store.put(SETTINGS_KEY, data, OVERWRITE)
    return settings


def parse(data: bytes, *, name: str) -> Settings:
    """The settings in a YAML or JSON document.  Raises `FormatError` with what is wrong."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"{name}: it has more than {MAX_BYTES:,} bytes")
    document = format.parse_plain(data, name=name)
    if document is None:
        return Settings()
    if not isinstance(document, dict):
        raise FormatError(f"{name}: it is no mapping of {', '.join(_NAMES)}")
    unknown = [key for key in document if key not in _NAMES]
    if unknown:
        raise FormatError(
            f"{name}: {shorten(unknown[0])} is no setting; there are {', '.join(_NAMES)}"
        )
    given = {key: value for key, value in document.items() if value is not None}
    declared = given.pop("types", ())
    if not isinstance(declared, list | tuple):
        raise FormatError(f"{name}: types is no list of message types")
    try:
        types = message_types.catalogue(declared)
    except FormatError as exc:
        raise FormatError(f"{name}: {exc}") from exc
    receive = _receive(given.pop("receive", {}), name)
    checked: dict[str, Any] = {}
    for key, value in given.items():
        low, high, whole = _RANGES[key]
        number = _number(value)
        if number is None or not low <= number <= high or (whole and number != int(number)):
            kind = "a whole number" if whole else "a number"
            raise FormatError(
                f"{name}: {key} is {shorten(value)}, not {kind} from {low:g} to {high:g}"
            )
        checked[key] = int(number) if whole else number
    return Settings(types=types, receive=receive, **checked)


_RANGES = {
    "lease_seconds": (MIN_LEASE_SECONDS, MAX_LEASE_SECONDS, False),
    "max_attempts": (1, 1000, True),
    "max_waiting": (0, 1_000_000, True),
    "ageing_seconds": (0, 30 * 86_400, False),
}


def _receive(given: object, name: str) -> dict[str, Mode]:
    if not isinstance(given, dict):
        raise FormatError(f"{name}: receive is no mapping of roles to task or batch")
    for role, mode in given.items():
        check_role(role if isinstance(role, str) else repr(role))
        if mode not in ("task", "batch"):
            raise FormatError(
                f"{name}: {role} receives {shorten(mode)}; a role receives task or batch"
            )
    return cast("dict[str, Mode]", dict(given))


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):  # plain YAML scalars come as text
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None
