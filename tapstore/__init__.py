"""tapstore: shared state for agents that have nothing in common but a place to put files.

The public names; everything else is an implementation detail.

PYTEST_DONT_REWRITE: for programs that import this before they run pytest, which would warn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapstore.errors import (
    AlreadyClaimedError,
    AlreadyExistsError,
    ArtifactNotFoundError,
    BackendNotInstalledError,
    ChecksumError,
    ClaimLostError,
    ConflictError,
    FormatError,
    InvalidKeyError,
    LeaseLostError,
    LeaseUnavailableError,
    NotAllowedError,
    NotFoundError,
    OutcomeUnknownError,
    SessionNotFoundError,
    StoreError,
    TapstoreError,
    UnsupportedOperationError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Mailbox, MailboxFullError, MailboxStateError
    from tapstore.handoffs.queue.opening import mailbox
    from tapstore.roots.root import Root, root
    from tapstore.sessions.claim import Claim
    from tapstore.sessions.opening import create, open
    from tapstore.sessions.session import Session

__version__ = "0.1.0"

# Imported when first used: who only catches errors, or prints `--version`, need not wait.
_LAZY = {
    "Claim": "tapstore.sessions.claim",
    "Mailbox": "tapstore.handoffs.mailbox",
    "MailboxFullError": "tapstore.handoffs.mailbox",
    "MailboxStateError": "tapstore.handoffs.mailbox",
    "Session": "tapstore.sessions.session",
    "Root": "tapstore.roots.root",
    "create": "tapstore.sessions.opening",
    "mailbox": "tapstore.handoffs.queue.opening",
    "open": "tapstore.sessions.opening",
    "root": "tapstore.roots.root",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tapstore' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


__all__ = [
    "AlreadyClaimedError",
    "AlreadyExistsError",
    "ArtifactNotFoundError",
    "BackendNotInstalledError",
    "ChecksumError",
    "Claim",
    "ClaimLostError",
    "ConflictError",
    "FormatError",
    "InvalidKeyError",
    "LeaseLostError",
    "LeaseUnavailableError",
    "Mailbox",
    "MailboxFullError",
    "MailboxStateError",
    "NotAllowedError",
    "NotFoundError",
    "OutcomeUnknownError",
    "Root",
    "Session",
    "SessionNotFoundError",
    "StoreError",
    "TapstoreError",
    "UnsupportedOperationError",
    "WaitTimeoutError",
    "create",
    "mailbox",
    "open",
    "root",
]
