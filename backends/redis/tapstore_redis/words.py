"""What leases in Redis say when they refuse: who holds it, since when, and what helps.

Nothing here decides anything; it makes exceptions for the caller to raise.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Mapping

from tapstore.clock import format_time
from tapstore.errors import (
    ConflictError,
    FormatError,
    LeaseLostError,
    LeaseUnavailableError,
    NotFoundError,
    StoreError,
)
from tapstore.types import Holder, Lease, Owner
from tapstore_redis import records


def held(holder: Holder, asker: Owner, *, waiting: int) -> LeaseUnavailableError:
    who = _who(holder)
    if holder.owner.instance == asker.instance:
        who += ", the very one that asks: leases are not re-entrant"
    queue = f" ({waiting} are waiting)" if waiting else ""
    return LeaseUnavailableError(
        f"lease {holder.name!r} is held by {who}{queue}; wait for it, or end it with "
        f"`{_command(holder.name, holder.generation)}`"
    )


def reserved(name: str, url: str, *, waiting: int) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"lease {name!r} at {url} is free, but goes to the first of {waiting} who wait for it; "
        "wait for it, too"
    )


def forgotten(name: str, url: str) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"lease {name!r} was held a moment ago, but {url} lost its data since; its holder may rely "
        "on it until the end of its ttl: try again then"
    )


def too_slow(name: str, url: str, ttl: float) -> StoreError:
    error = StoreError(
        f"answers of {url} take longer than the ttl of {ttl:g} s that lease {name!r} was asked for "
        "with: ask for a longer one"
    )
    error.errno = errno.ETIMEDOUT
    return error


def lost(lease: Lease, fields: Mapping[str, str], url: str) -> LeaseLostError:
    return LeaseLostError(
        f"lease {lease.name!r} (generation {lease.generation}) is no longer held by "
        f"{lease.owner.agent}: {_why(lease, fields, url)}; stop using what it protected"
    )


def _why(lease: Lease, fields: Mapping[str, str], url: str) -> str:
    if not fields:
        return f"{url} does not know it, so it lost its data or never had it"
    holder = records.holder(lease.name, fields)
    if holder.generation != lease.generation:
        return f"it was not renewed in time, and passed on to {_who(holder)}"
    state = fields.get("state")
    if state == "held":
        return "its token is another one"
    at = format_time(records.seconds(fields.get("ended", "0")))
    return f"it was {'ended by force' if state == 'forced' else 'released'} at {at}"


def other_generation(holder: Holder, asked: int) -> ConflictError:
    return ConflictError(
        f"generation {asked} of lease {holder.name!r} is over; it is held by {_who(holder)}; "
        f"to end that: `{_command(holder.name, holder.generation)}`"
    )


def nobody(name: str, url: str) -> NotFoundError:
    return NotFoundError(f"nobody holds the lease {name!r} at {url}")


def malformed(name: str, key: str, url: str, fault: str) -> FormatError:
    return FormatError(
        f"what {url} has at the key {key!r} is no record of a lease: {fault}; as long as it is "
        f"there, lease {name!r} counts as held: find out who wrote it, then "
        f"`redis-cli DEL {shlex.quote(key)}`"
    )


def _command(name: str, generation: int) -> str:
    return f"tapstore locks release {shlex.quote(name)} --generation {generation}"


def _who(holder: Holder) -> str:
    details = [f"since {format_time(holder.since)}", f"generation {holder.generation}"]
    if holder.owner.pid:
        details.insert(0, f"pid {holder.owner.pid}")
    if holder.owner.host:
        details.insert(0, f"host {holder.owner.host}")
    if holder.reason:
        details.append(f"for {holder.reason!r}")
    return f"{holder.owner.agent} ({', '.join(details)})"
