"""`report.md`: what a run of the benchmarks found, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks import remote
from benchmarks.bare import INTERVAL, KEEP
from benchmarks.coldstart import ratio
from benchmarks.contended import Run, pooled
from benchmarks.handoffs import BLOCK as HANDOFF_BLOCK
from benchmarks.handoffs import Depth, Rate
from benchmarks.machine import Machine
from benchmarks.queues import OURS as OUR_QUEUE
from benchmarks.remote import Far
from benchmarks.results import Results, goals
from benchmarks.stats import Spread, spread
from benchmarks.uncontended import BLOCK, Timing, ratios


def render(results: Results, *, plots: Sequence[str]) -> str:
    """The report, in Markdown; `plots` lie beside it."""
    sections = [_head(results), _table_of_goals(results)]
    if results.alone:
        sections += [_plot("commit.png", plots), _alone(results.alone)]
    if results.runs:
        images = [_plot(name, plots) for name in ("throughput.png", "waits.png")]
        sections += [*images, _contended(pooled(results.runs))]
    if results.rates:
        sections.append(_handoffs(results.rates))
    if results.depths:
        sections.append(_depths(results.depths))
    if results.starts:
        sections += [_plot("coldstart.png", plots), _coldstart(results)]
    if results.far:
        sections.append(_far(results.far))
    if results.alone:
        sections.append(_calls(results.alone))
    return "\n\n".join(section for section in sections if section) + "\n"


def _plot(name: str, plots: Sequence[str]) -> str:
    return f"![{name.removesuffix('.png')}]({name})" if name in plots else ""


def _head(results: Results) -> str:
    places = "; ".join(
        f"{name} ({kind})" if kind != name else name for name, kind in results.places.items()
    )
    kind = "Quick run: small numbers, large spread. " if results.quick else ""
    return (
        f"# Benchmarks of tapstore\n\n{kind}{_machine(results.machine)}\n\n"
        f"Places: {places or 'a folder on a disk'}.  *Durable* means that a commit returns when "
        'it is on the disk (`durability="full"`); the other ways call fsync there, too.'
    )


def _machine(machine: Machine) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in machine.packages.items())
    return (
        f"{machine.when}, commit {machine.commit}; {machine.processor}, {machine.cores} cores, "
        f"{machine.memory_gb:g} GB; {machine.system}; {machine.python}; {packages}; load average "
        f"before: {machine.load:g}."
    )


def _table_of_goals(results: Results) -> str:
    rows = [
        (goal.what, goal.where, goal.aim, goal.measured, "yes" if goal.met else "**no**")
        for goal in goals(results)
    ]
    return "## Goals\n\n" + _table(("what", "where", "aim", "measured", "met"), rows)


def _alone(alone: list[Timing]) -> str:
    floors = {(timing.place, timing.name): timing for timing in alone}
    rows = []
    for timing in alone:
        against = ""
        if timing.floor is not None:
            against = _times(ratios(timing, floors[timing.place, timing.floor]))
        rows.append((timing.place, timing.name, _milliseconds(timing.seconds), against))
    return (
        "## One process\n\nMilliseconds a commit, median and quartiles of the means of blocks of "
        f"{BLOCK} commits; and how many times as long as nothing but its own system calls, block "
        "against block.\n\n" + _table(("place", "what", "ms", "× its calls"), rows)
    )


def _contended(runs: list[Run]) -> str:
    rows = []
    for run in runs:
        attempts = run.attempts_per_commit
        rows.append(
            (
                run.place,
                str(run.processes),
                run.way,
                f"{run.rate:,.0f}",
                "" if attempts is None else f"{attempts:.2f}",
                f"{run.wait(0.5) * 1e3:,.1f}",
                f"{run.wait(0.99) * 1e3:,.0f}",
                f"{run.longest * 1e3:,.0f}",
                f"{run.fairness:.2f}",
                f"{run.cpu_per_commit * 1e3:.2f}",
                str(run.lost),
            )
        )
    head = (
        "place", "processes", "way", "commits/s", "attempts", "p50 ms", "p99 ms", "longest ms",
        "fairness", "CPU ms", "lost",
    )  # fmt: skip
    seconds = runs[0].seconds
    return (
        f"## Several processes, one document\n\nEach commits without pause, {seconds:g} s in all, "
        f"{runs[0].window_seconds:g} s at a time.  *original way*: O_EXCL and YAML in pure Python, "
        "as the original Tapfile protocol has it. "
        "*attempts*: writes, or tries to get the lock, per commit.  *p50, p99, longest*: how long "
        "a commit took with all its waiting; whoever still waited at the end is included.  "
        "*fairness*: Jain's index of the workers' commits, 1 if all got the same, 1/processes if "
        "one got all.  *CPU*: of all processes, per commit.  *lost*: acknowledged, but not there "
        "once, by id.\n\n" + _table(head, rows)
    )


def _far(far: list[Far]) -> str:
    rows = []
    for one in far:
        against = remote.ratios(far, one)
        rows.append(
            (
                one.server,
                str(one.round_trip_ms),
                one.name,
                _milliseconds(one.seconds),
                "" if one.requests is None else f"{one.requests:.1f}",
                "" if against is None else f"{_times(against)} {remote.FLOORS[one.name]}",
            )
        )
    head = ("server", "round trip ms", "what", "ms", "requests", "against")
    return (
        "## One agent, and a server far away\n\nMilliseconds a call, median and quartiles of the "
        f"means of blocks of {remote.BLOCK}, over a link whose round trip takes so long.  "
        "*requests*: per call, as the server sees them, with the log that follows behind.  moto "
        "measures itself and the client more than a store.\n\n" + _table(head, rows)
    )


def _handoffs(rates: list[Rate]) -> str:
    ours = {(rate.place, rate.name): rate for rate in rates if rate.queue == OUR_QUEUE}
    rows = []
    for rate in rates:
        against = ""
        mine = ours[rate.place, rate.name]
        if rate is not mine:
            pairs = zip(mine.block_seconds, rate.block_seconds, strict=True)
            against = _times(spread([us / them for us, them in pairs]))
        rows.append(
            (
                rate.place,
                rate.name,
                rate.queue,
                _milliseconds(rate.seconds),
                f"{1 / rate.seconds.median:,.0f}",
                against,
            )
        )
    head = ("place", "what", "queue", "ms", "a second", "tapstore × it")
    return (
        "## Hand-offs, one process\n\nMilliseconds a message, median and quartiles of the means of "
        f"blocks of {HANDOFF_BLOCK}; far away, of single ones.  *original way*: what the original "
        "scripts and their daemon do with files and renames, in Python; it neither survives a "
        "crash between two steps nor several agents of a role.  *SQLite*: a table, which one host "
        "can use.\n\n" + _table(head, rows)
    )


def _depths(depths: list[Depth]) -> str:
    rows = [
        (
            depth.place,
            depth.queue,
            f"{depth.waiting:,}",
            _milliseconds(depth.seconds),
            "" if depth.requests is None else f"{depth.requests:.1f}",
        )
        for depth in depths
    ]
    return (
        "## The next of many hand-offs\n\nMilliseconds of one `next`, median and quartiles, while "
        "so many wait, of three priorities, and as many are completed.\n\n"
        + _table(("place", "queue", "waiting", "ms", "requests"), rows)
    )


def _coldstart(results: Results) -> str:
    rows = [
        (f"`{start.command}`", _milliseconds(spread(start.seconds))) for start in results.starts
    ]
    return (
        "## Cold start\n\nWhole processes, files in the cache, from an environment with a copy of "
        "tapstore; milliseconds, median and quartiles.\n\n"
        + _table(("command", "ms"), rows)
        + f"\n\n`tapstore status` takes {_times(ratio(results.starts))} × `import yaml`."
    )


def _calls(alone: list[Timing]) -> str:
    """The system calls that the first place was measured with."""
    lists = []
    for timing in alone:
        if timing.calls and timing.place == alone[0].place:
            lines = "\n".join(timing.calls)
            lists.append(f"{timing.name}, {timing.number_of_calls}:\n\n```text\n{lines}\n```")
    return (
        "## The system calls\n\nRecorded from one commit each, in order; what `× its calls` is "
        f"measured against.  `*` is random.  Once in {INTERVAL} commits, contents older than the "
        f"newest {KEEP} are removed: scandir, and {INTERVAL} × unlink.\n\n" + "\n\n".join(lists)
    )


def _milliseconds(seconds: Spread) -> str:
    return f"{seconds.median * 1e3:.2f} ({seconds.low * 1e3:.2f} to {seconds.high * 1e3:.2f})"


def _times(times: Spread) -> str:
    return f"{times.median:.2f} ({times.low:.2f} to {times.high:.2f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
