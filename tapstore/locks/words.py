"""What leases say when they refuse: who holds it, since when, and what helps.

Nothing here decides anything; it makes exceptions for the caller to raise.
"""

from __future__ import annotations

import shlex

from tapstore.clock import format_time
from tapstore.errors import ConflictError, FormatError, LeaseLostError, LeaseUnavailableError
from tapstore.locks.records import How
from tapstore.types import Holder, Lease, Owner


def unavailable(holder: Holder, asker: Owner, *, ended: bool) -> LeaseUnavailableError:
    """`ended`: it was taken from its holder, who may not know yet."""
    who = _who(holder.owner, holder.reason, holder.since, holder.generation)
    if ended:
        return LeaseUnavailableError(
            f"lease {holder.name!r} was held by {who}, who did not renew it in time but may rely "
            f"on it for up to {holder.ttl_seconds:g} s more; try again then"
        )
    if holder.owner.instance == asker.instance:
        who += ", the very one that asks: leases are not re-entrant"
    return LeaseUnavailableError(
        f"lease {holder.name!r} is held by {who}; wait for it, or end it with "
        f"`{command(holder.name, holder.generation)}`"
    )


def restless(name: str, url: str) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"lease {name!r} in {url} changes hands faster than it can be asked for; wait for it"
    )


def lost(lease: Lease, why: str) -> LeaseLostError:
    return LeaseLostError(
        f"lease {lease.name!r} (generation {lease.generation}) is no longer held by "
        f"{lease.owner.agent}: {why}; stop using what it protected"
    )


def other_generation(name: str, asked: int, present: int, holder: Holder | None) -> ConflictError:
    """Somebody wants to end a grant that is not the present one.

    Without `holder`: the record of the present one cannot be read.
    """
    if holder is None:
        held = f"generation {present}, whose record is unreadable, counts as held"
    else:
        held = f"it is held by {_who(holder.owner, holder.reason, holder.since, present)}"
    return ConflictError(
        f"generation {asked} of lease {name!r} is over; {held}; "
        f"to end that: `{command(name, present)}`"
    )


def unreadable(name: str, fault: str, remedy: str) -> FormatError:
    return FormatError(
        f"{fault}; as long as it is there, lease {name!r} counts as held: find out who wrote it, "
        f"then {remedy}"
    )


def how_it_ended(how: How, at: str, by: Owner | None) -> str:
    """`at`: the time that was written down; `by`: who did it, if that is known."""
    if how == "released":
        return f"it was released at {at}"
    if how == "forced":
        return f"it was ended by force at {at}"
    taker = "somebody" if by is None else by.agent
    if by is not None and by.host:
        taker += f" (host {by.host}, pid {by.pid})"
    return f"it was not renewed in time, and {taker} ended it at {at}"


def command(name: str, generation: int | str) -> str:
    """What ends this grant; a word for the number where that has to be found out."""
    return f"tapstore locks release {shlex.quote(name)} --generation {generation}"


def _who(owner: Owner, reason: str, since: float, generation: int) -> str:
    details = [f"since {format_time(since)}", f"generation {generation}"]
    if owner.pid:
        details.insert(0, f"pid {owner.pid}")
    if owner.host:
        details.insert(0, f"host {owner.host}")
    if reason:
        details.append(f"for {reason!r}")
    return f"{owner.agent} ({', '.join(details)})"
