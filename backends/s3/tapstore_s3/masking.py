"""Takes credentials out of texts that come from servers and libraries.

Not promised: to know a credential in a form that nobody gave it in, such as a signature.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlsplit

from tapstore_s3.options import Options

_SHORTEST = 4
"""What is shorter is no secret, and a part of too many words."""


class Masks:
    """What one client is to keep to itself."""

    def __init__(self, options: Options) -> None:
        customer = [
            value if isinstance(value, bytes) else str(value).encode()
            for name, value in options.extra.items()
            if "CustomerKey" in name and value
        ]
        proxies = dict(options.config.get("proxies") or {}).values()
        self._hidden: set[str] = set()
        self._add(
            options.key,
            options.secret,
            options.token,
            *(_user_info(url) for url in (options.endpoint, *proxies)),
            *(key.decode("latin-1") for key in customer),
            *(base64.b64encode(key).decode() for key in customer),
        )
        self._credentials: Any = None

    def watch(self, credentials: Any) -> None:
        """Hide what these credentials of botocore are; those of a role change from time to time."""
        self._credentials = credentials

    def hide(self, text: str) -> str:
        """`text` with `***` for each credential."""
        if self._credentials is not None:
            try:
                found = self._credentials.get_frozen_credentials()
            # What they were is known; what they are now could not even be fetched.
            except Exception:
                found = None
            if found is not None:
                self._add(found.access_key, found.secret_key, found.token)
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _add(self, *secrets: str | None) -> None:
        self._hidden |= {secret for secret in secrets if secret and len(secret) >= _SHORTEST}


def _user_info(url: str | None) -> str:
    return urlsplit(url or "").netloc.rpartition("@")[0]
