"""ETags as versions, and the form in which a server wants them back in a condition.

HTTP has them in quotes.  radosgw compares the quotes, too, and never matches; AWS and most others
take both forms; a server may as well insist on the quotes.  So the bare form goes first, and what
is refused with it is tried in quotes, until one form was seen to match.  Only a refusal is
repeated in this way: nothing was done by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapstore_s3.refusal import Refusal


def bare(etag: str) -> str:
    """The version that an ETag is."""
    return etag.strip('"')


class Etags:
    """What is known of one server.  Threads may share it."""

    def __init__(self) -> None:
        self._quoted = False
        self._sure = False

    def form(self, version: str) -> str:
        return f'"{version}"' if self._quoted else version

    def matched(self, *, quoted: bool) -> None:
        """The server took this form for what it is."""
        self._quoted, self._sure = quoted, True

    def if_match(self, request: Callable[[str], dict[str, Any]], version: str) -> dict[str, Any]:
        """`request` takes what goes into If-Match; return its reply or raise its `Refusal`."""
        try:
            reply = request(self.form(version))
        except Refusal as exc:
            if self._sure or exc.status != 412:
                raise
        else:
            self.matched(quoted=self._quoted)
            return reply
        reply = request(f'"{version}"')
        self.matched(quoted=True)
        return reply
