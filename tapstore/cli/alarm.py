"""Events to a webhook: POST of JSON, a few times, never for long.

Delivery is at least once or not at all: a receiver that answers too late gets the event again,
one that stays away does not get it.  `rev` and `event` tell repeats apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import click

from tapstore.cli import console
from tapstore.keys import mask_url

ATTEMPTS = 3
TIMEOUT_SECONDS = 10
PAUSE_SECONDS = 1.0


def check(url: str | None) -> str | None:
    """Return `url` if events can be posted there."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{mask_url(url)!r} is no URL of the form https://host/path")
    return url


def post(
    url: str,
    event: Mapping[str, Any],
    *,
    complain: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Deliver one event; whether it was.  Complains to people if it was not."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(
        url,
        data=console.json_line(event).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "tapstore"},
        method="POST",
    )
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(PAUSE_SECONDS * 2**attempt / 2)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                return True
        except urllib.error.HTTPError as exc:
            exc.close()
            reason = f"HTTP {exc.code} {exc.reason}"
            if exc.code < 500 and exc.code not in (408, 429):
                break  # the same request will not be liked better
        except (OSError, http.client.HTTPException) as exc:
            reason = str(getattr(exc, "reason", exc))
    complain(f"{mask_url(url)} did not take {event['event']} of revision {event['rev']}: {reason}")
    return False
