"""What a new session of a root is like: `.tapstore/template.yaml` (or `.json`) of the root."""

from __future__ import annotations

from typing import Any

import msgspec

from tapstore.abc import Store
from tapstore.errors import FormatError, NotFoundError
from tapstore.sessions.config import TapfileFormat
from tapstore.tapfile import format
from tapstore.tapfile.fields import TEXT, Each

KEYS = (".tapstore/template.yaml", ".tapstore/template.json")

_FIELDS = {"phase": TEXT, "phases": Each(TEXT), "locks": TEXT, "roles": Each(TEXT)}


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `create` that a template may give; what it leaves out has its default."""

    roles: tuple[str, ...] | dict[str, int]
    phase: str = ""
    phases: tuple[str, ...] = ()
    tapfile_format: TapfileFormat = "yaml"
    locks: str | None = None
    claim_ttl_seconds: float = 60
    max_attempts: int = 3
    notify_consumers: bool = True
    fields: dict[str, Any] = {}
    """Further fields of the Tapfile."""

    def options(self) -> dict[str, Any]:
        """As keyword arguments of `create`."""
        options = {name: getattr(self, name) for name in self.__struct_fields__}
        options["claim_ttl"] = options.pop("claim_ttl_seconds")
        return options


def load(store: Store) -> Template | None:
    """The template of the root at `store`, or None.  Raises `FormatError`."""
    for key in KEYS:
        try:
            data = store.get(key).data
        except NotFoundError:
            continue
        name = f"{store.url}/{key}"
        document = format.parse_plain(data, name=name, spec=_FIELDS)
        try:
            return msgspec.convert(document, Template)
        except msgspec.ValidationError as exc:
            raise FormatError(f"{name}: {exc}") from exc
    return None
