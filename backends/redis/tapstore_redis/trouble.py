"""What can go wrong between here and a Redis: whether it may have happened, and what helps.

Nothing is decided here; redis-py's exceptions are told apart, and turned into tapstore's.
"""

from __future__ import annotations

import errno as codes
import re
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redis import exceptions as theirs

from tapstore.errors import OutcomeUnknownError, StoreError, TapstoreError

_UNSENT = {
    codes.ECONNREFUSED,
    codes.ENOENT,
    codes.EHOSTUNREACH,
    codes.ENETUNREACH,
    codes.EACCES,
    codes.EPERM,
}
"""Nobody was there to take the command."""


# To who did not log in Redis says the last one of commands with many arguments.
_NO_ACCESS = re.compile("NOPERM|NOAUTH|unauthenticated")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a failure is to be taken."""

    advice: str
    errno: int
    sent: bool = False
    """The server may have done it."""

    again: bool = False
    """It may go better in a moment."""


class TroubleError(Exception):
    """A command did not come through.  Stays within this package."""

    def __init__(self, kind: Kind, cause: Exception) -> None:
        super().__init__(str(cause))
        self.kind = kind
        self.cause = cause

    def as_error(
        self, url: str, what: str, *, sent: bool = False, changes: bool = True
    ) -> TapstoreError:
        """The error for the caller.

        `sent`: an attempt before this one may have happened.  Without `changes` it does not matter.
        """
        reason = " ".join(str(self.cause).split()) or type(self.cause).__name__
        if changes and (sent or self.kind.sent):
            return OutcomeUnknownError(
                f"cannot tell whether {url} did {what}: {reason}; {self.kind.advice}; whatever it "
                "granted ends by its ttl, and `tapstore locks` shows what is held"
            )
        error = StoreError(f"cannot do {what} at {url}: {reason}; {self.kind.advice}")
        error.errno = self.kind.errno
        return error


def understand(exc: Exception, secrets: Iterable[str] = ()) -> TroubleError:
    """Tell what an exception of redis-py, or of the sockets below it, means.

    Servers name the user that they refuse; `secrets` are masked in all that will be shown.
    """
    for each in _chain(exc):
        for secret in filter(None, secrets):
            each.args = tuple(
                arg.replace(secret, "***") if isinstance(arg, str) else arg for arg in each.args
            )
    return TroubleError(_kind(exc), exc)


def _kind(exc: Exception) -> Kind:
    text = str(exc)
    if isinstance(exc, theirs.RedisClusterException) and isinstance(
        exc.__cause__, theirs.RedisError
    ):
        return _kind(exc.__cause__)
    if isinstance(exc, (theirs.AuthenticationError, theirs.AuthenticationWrongNumberOfArgsError)):
        return Kind(
            "set TAPSTORE_REDIS_USERNAME and TAPSTORE_REDIS_PASSWORD to a user that it knows",
            codes.EACCES,
        )
    if isinstance(exc, theirs.NoPermissionError) or _NO_ACCESS.search(text):
        return Kind(
            "set TAPSTORE_REDIS_USERNAME and TAPSTORE_REDIS_PASSWORD to a user that has the "
            "permissions which docs/how-to/redis.md lists",
            codes.EACCES,
        )
    if isinstance(exc, theirs.BusyLoadingError):
        return Kind("it is reading its data: wait", codes.EAGAIN, again=True)
    if isinstance(exc, theirs.ReadOnlyError):
        return Kind("this is a replica: use the address of the master", codes.EROFS, again=True)
    if isinstance(exc, theirs.OutOfMemoryError):
        return Kind("its maxmemory is reached: raise it, or remove data", codes.ENOSPC)
    if isinstance(exc, theirs.MaxConnectionsError):
        return Kind("raise max_connections in the URL", codes.EMFILE)
    if isinstance(exc, (theirs.ClusterError, theirs.TryAgainError, theirs.RedisClusterException)):
        return Kind("the cluster is not complete: look at CLUSTER INFO", codes.EAGAIN, again=True)
    if isinstance(exc, theirs.ResponseError):
        return _answer(text)
    return _connection(exc, text)


def _answer(text: str) -> Kind:
    """The server said no, so nothing has happened."""
    if text.startswith("MISCONF"):
        return Kind("it cannot write its own disk and takes no changes: see its log", codes.EIO)
    if text.startswith(("BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS")):
        return Kind("it cannot just now: see its log", codes.EAGAIN, again=True)
    if "max number of clients" in text:
        return Kind("raise its maxclients, or use fewer connections", codes.EMFILE, again=True)
    return Kind("it refuses what tapstore sends: use Redis 6.2 or newer, or Valkey", codes.EPROTO)


def _connection(exc: Exception, text: str) -> Kind:
    chain = list(_chain(exc))
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
        return Kind(
            "name the certificate authority with ?ssl_ca_certs=FILE, and the host as the "
            "certificate does",
            codes.EPROTO,
        )
    if any(isinstance(each, socket.gaierror) for each in chain):
        return Kind("check the name of the host", codes.EHOSTUNREACH, again=True)
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return Kind("check whether both sides use TLS (rediss://)", codes.EPROTO, again=True)
    if "max number of clients" in text:
        return Kind("raise its maxclients, or use fewer connections", codes.EMFILE, again=True)
    if type(exc).__name__ == "MasterNotFoundError":
        return Kind(
            "no sentinel that answers knows a master of that name: wait for the failover, or "
            "check the name",
            codes.EHOSTUNREACH,
            again=True,
        )
    code = next((e.errno for e in chain if isinstance(e, OSError) and e.errno), None)
    if code in (codes.EACCES, codes.EPERM):
        return Kind("check the mode of the socket and the user you run as", code)
    if code in _UNSENT:
        return Kind("check that it runs, and the address", code or codes.ECONNREFUSED, again=True)
    if isinstance(exc, theirs.TimeoutError) or any(isinstance(e, TimeoutError) for e in chain):
        return Kind(
            "check that it runs, or give it longer with ?socket_timeout=SECONDS",
            codes.ETIMEDOUT,
            sent="connecting to" not in text,
            again=True,
        )
    return Kind(
        "the connection broke: check that it runs", code or codes.ECONNRESET, sent=True, again=True
    )


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__
