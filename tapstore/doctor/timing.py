"""How long requests take, one after the other, and what rate of commits to expect from that.

Not promised: that the same holds under load, or at another time of day.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from tapstore.doctor.subject import Subject
from tapstore.sessions import place
from tapstore.types import CREATE, OVERWRITE, Finding, Update

LATENCY = "latency"

SAMPLES = 20
SECONDS = 1.5
"""For each kind of request; a slow place gets fewer samples."""

_STATE_BYTES = 4096

SLOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that one kind of request took, sorted."""

    seconds: tuple[float, ...]

    def quantile(self, share: float) -> float:
        return self.seconds[min(int(share * len(self.seconds)), len(self.seconds) - 1)]


def latency(subject: Subject) -> Finding:
    """Time reads, writes, commits and listings on the store itself."""
    store = subject.raw
    found = subject.store.capabilities
    data = secrets.token_bytes(_STATE_BYTES)
    key = subject.work.key("timed")
    version = [store.put(key, data, OVERWRITE).version]

    def commit() -> None:
        fresh = data[16:] + secrets.token_bytes(16)
        if found.update:
            version[0] = store.put(key, fresh, Update(version[0])).version
        else:
            mode = CREATE if found.create else OVERWRITE
            store.put(subject.work.key(f"timed-{secrets.token_hex(8)}"), fresh, mode)

    # Before anything is overwritten without a condition: the version must stay the last one.
    times = {"conditional_put": _measure(subject, commit)}
    times["put"] = _measure(subject, lambda: store.put(key, data, OVERWRITE))
    times["get"] = _measure(subject, lambda: store.get(key))
    times["list"] = _measure(subject, lambda: list(store.list(subject.work.prefix)))
    return _judge(times, direct=place.commits_directly(found))


def _measure(subject: Subject, action: Callable[[], object]) -> Times:
    clock = subject.clock
    action()  # connections and caches are warm then
    begun = clock.monotonic()
    seconds: list[float] = []
    while len(seconds) < SAMPLES and (not seconds or clock.monotonic() - begun < SECONDS):
        sent = clock.monotonic()
        action()
        seconds.append(clock.monotonic() - sent)
    return Times(tuple(sorted(seconds)))


def _judge(times: dict[str, Times], *, direct: bool) -> Finding:
    commit = times["conditional_put"].quantile(0.5)
    # A commit writes the Tapfile, or its content and then the record that makes it count.
    writes = 1 if direct else 2
    alone = 1 / max(commit * writes, 1e-6)
    together = 1 / max(commit * writes + times["get"].quantile(0.5), 1e-6)
    values = {
        what: {
            "p50_seconds": round(each.quantile(0.5), 6),
            "p99_seconds": round(each.quantile(0.99), 6),
            "samples": len(each.seconds),
        }
        for what, each in times.items()
    } | {
        "writes_per_commit": writes,
        "commits_per_second": {"one_agent": _round(alone), "session": _round(together)},
    }
    names = {"get": "get", "put": "put", "conditional_put": "commit write", "list": "list"}
    spans = ", ".join(
        f"{name} {_milli(times[what].quantile(0.5))}/{_milli(times[what].quantile(0.99))}"
        for what, name in names.items()
    )
    seen = (
        f"{spans} ms (p50/p99); about {_round(alone):g} commits/s of one agent, "
        f"{_round(together):g} of all in one session"
    )
    if commit < SLOW_SECONDS:
        return Finding(LATENCY, "ok", seen, values=values)
    return Finding(
        LATENCY,
        "warning",
        seen,
        "agents that share a session will wait for each other",
        "put agents nearer to the place, or give each task a session of its own",
        values,
    )


def _round(rate: float) -> float:
    """Two digits: more would be made up."""
    return float(f"{rate:.2g}")


def _milli(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:.0f}"
