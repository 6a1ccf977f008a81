"""Every error that tapstore raises, grouped by what the caller should do next.

- refresh and retry, read again and decide again: `ConflictError`, `AlreadyExistsError`
- wait, somebody else is at it: `LeaseUnavailableError`, `AlreadyClaimedError`,
  `WaitTimeoutError`
- stop, what you held is no longer yours: `LeaseLostError`, `ClaimLostError`
- fix the call, it can never succeed as it is: `InvalidKeyError`, `NotAllowedError`,
  `UnsupportedOperationError`
- it is not there: `NotFoundError` and its subclasses
- look at the data, what is stored is not what it should be: `FormatError`, `ChecksumError`
- find out, it may or may not have happened: `OutcomeUnknownError`
- look at the place, the disk, mount or server said no: `StoreError`
- install a package: `BackendNotInstalledError`

Each also subclasses the builtin that a Python user would catch.  Messages say what, which
key, who, and what to do next; they never hold credentials (URLs go through `keys.mask_url`).
"""

from __future__ import annotations


class TapstoreError(Exception):
    """Base of all errors of tapstore.  `exit_code` is what the command line exits with."""

    exit_code = 1


class ConflictError(TapstoreError):
    """The thing changed since it was read: nothing was written; read again and decide again."""

    exit_code = 4


class AlreadyExistsError(ConflictError, FileExistsError):
    """A create-only write found the key taken: nothing was written."""


class LeaseUnavailableError(TapstoreError, TimeoutError):
    """A lease is held by somebody else, and the wait (if any) ended.  Names the holder."""

    exit_code = 4


class AlreadyClaimedError(TapstoreError):
    """The role is claimed by somebody else.  Names the winner."""

    exit_code = 4


class WaitTimeoutError(TapstoreError, TimeoutError):
    """What was waited for did not happen within the time given."""

    exit_code = 4


class LeaseLostError(TapstoreError):
    """The lease is no longer ours: stop using what it protected."""

    exit_code = 5


class ClaimLostError(TapstoreError):
    """The claim was taken back or ended: nothing of this call was applied."""

    exit_code = 5


class InvalidKeyError(TapstoreError, ValueError):
    """A key, path or name that is refused, with the reason."""

    exit_code = 2


class NotAllowedError(TapstoreError, PermissionError):
    """The rules forbid it in this state; the message lists what would have been allowed."""

    exit_code = 3


class UnsupportedOperationError(TapstoreError, NotImplementedError):
    """The place cannot do what was asked, by name of the missing capability."""

    exit_code = 3


class NotFoundError(TapstoreError, FileNotFoundError):
    """No such key."""

    exit_code = 6


class SessionNotFoundError(NotFoundError):
    """No session at this URL, or the one that was opened has been deleted."""


class ArtifactNotFoundError(NotFoundError):
    """No such artifact in the session."""


class FormatError(TapstoreError, ValueError):
    """Stored or given data is malformed; names the place, the field and the reason."""

    exit_code = 7


class ChecksumError(TapstoreError, ValueError):
    """Bytes do not match their checksum; names both sums, the path and the producer."""

    exit_code = 7


class OutcomeUnknownError(TapstoreError):
    """A write may or may not have happened, and looking could not tell.

    The message says how to find out.  Never raised for something known to have failed.
    """

    exit_code = 8


class StoreError(TapstoreError, OSError):
    """The place refused or failed: full disk, no permission, I/O error, not a directory.

    The state is what it was before the call.  `errno` is kept from the cause where there is one.
    """

    exit_code = 9

    retry_after_seconds: float | None = None
    """How long the place asked to wait before the next attempt, if it did."""

    permission: str = ""
    """What a policy calls the permission that was missing, such as `s3:PutObject`; else empty."""


class BackendNotInstalledError(TapstoreError, ImportError):
    """The URL or lock service needs a package that is not installed; names the pip command."""

    exit_code = 10
