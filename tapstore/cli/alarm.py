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
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as exc:  # brackets that do not match, a port that is no number
        raise click.BadParameter(f"this is no URL of the form https://host/path: {exc}") from exc
    if not good:
        raise click.BadParameter(f"{mask_url(url)!r} is no URL of the form https://host/path")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise click.BadParameter(
            f"{mask_url(url)!r} has characters that no URL may have: write %20 for a space, and so "
            "on"
        )
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

    class Posted(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            # Followed, it would become a GET without the event, and be answered with 200.
            return None

    opener = urllib.request.build_opener(Posted)
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
            with opener.open(request, timeout=TIMEOUT_SECONDS):
                return True
        except urllib.error.HTTPError as exc:
            exc.close()
            reason = f"HTTP {exc.code} {exc.reason}"
            if (elsewhere := exc.headers.get("Location")) is not None:
                reason += f"; it points to {mask_url(elsewhere)}, which is not followed"
            if exc.code < 500 and exc.code not in (408, 429):
                break  # the same request will not be liked better
        except (OSError, http.client.HTTPException) as exc:
            reason = str(getattr(exc, "reason", exc))
    complain(f"{mask_url(url)} did not take {event['event']} of revision {event['rev']}: {reason}")
    return False
