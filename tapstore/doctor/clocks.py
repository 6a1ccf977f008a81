"""How far this host's clock is from the store's.

Nothing in tapstore goes by the clock of one host alone; but times in logs are read by people, and
S3 refuses requests of a host that is wrong by a quarter of an hour.
"""

from __future__ import annotations

from tapstore.doctor.subject import Subject
from tapstore.types import Finding, Severity

CLOCK = "clock"

NOTE_SECONDS = 3.0
WARNING_SECONDS = 60.0


def offset(subject: Subject) -> float:
    """Seconds that this host is ahead of the store; about a second may be the store's rounding."""
    store = subject.raw
    # Where a store only tells whole seconds, looks at several moments narrow it down.
    store.now()
    return subject.clock.time() - store.now()


def check(subject: Subject) -> Finding:
    """Compare the two clocks."""
    seconds = offset(subject)
    return judge(seconds)


def judge(seconds: float) -> Finding:
    """What an offset means."""
    values = {"offset_seconds": round(seconds, 3)}
    size = abs(seconds)
    if size < NOTE_SECONDS:
        return Finding(CLOCK, "ok", f"this host is {say(seconds)} the store", values=values)
    severity: Severity = "note" if size < WARNING_SECONDS else "warning"
    return Finding(
        CLOCK,
        severity,
        f"this host is {say(seconds)} the store",
        "no commit goes by it; one-shot commands take roles back later, and logs of programs "
        "on this host are hard to compare",
        "set the clock of this host, or of the server (NTP)",
        values,
    )


def say(seconds: float) -> str:
    """`2.1 s ahead of`, `with`."""
    if abs(seconds) < 1.0:
        return "within a second of"
    return f"{abs(seconds):,.1f} s {'ahead of' if seconds > 0 else 'behind'}"
