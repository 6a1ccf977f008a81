"""The scripts that change leases: each runs on the server as one step, or not at all.

They use what Redis 6.2 and Valkey have.  They touch the keys that they are given and no others.

Not promised: that a script can be taken back.  A server that dies in one keeps what its
persistence kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name that a server knows it by once it has seen it."""

    source: str = field(repr=False)
    sha: str

    def run(self, client: Any, keys: list[str], args: list[Any]) -> Any:
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            # New, restarted, or another node than before.
            return client.eval(self.source, len(keys), *keys, *args)


def _load(name: str) -> Script:
    folder = files(__package__) / "lua"
    source = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in ("common", name))
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


ACQUIRE = _load("acquire")
RENEW = _load("renew")
RELEASE = _load("release")
FORCE = _load("force")
INSPECT = _load("inspect")
