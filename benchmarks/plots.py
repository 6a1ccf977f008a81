"""Pictures of what a run of the benchmarks found, readable without the report.

The only module that imports matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.cases import FILELOCK, ORIGINAL_10, ORIGINAL_100, WITH_LOCK, WITHOUT_LOCK
from benchmarks.coldstart import STATUS, Start
from benchmarks.contended import Run, pooled
from benchmarks.machine import Machine
from benchmarks.results import Results
from benchmarks.stats import spread
from benchmarks.uncontended import Timing, ratios

_COLOURS = {
    WITH_LOCK: "#0b5fa5",
    WITHOUT_LOCK: "#5aa9e6",
    ORIGINAL_10: "#d1495b",
    ORIGINAL_100: "#edae49",
    FILELOCK: "#8d99ae",
}
_MARKERS = {WITH_LOCK: "o", WITHOUT_LOCK: "D", ORIGINAL_10: "s", ORIGINAL_100: "^", FILELOCK: "v"}
_FLOOR = "#b8c4d0"
_OURS = "#0b5fa5"
_OTHERS = "#d1495b"


def draw(results: Results, folder: Path) -> list[str]:
    """Draw what there is; returns the names of the files."""
    names = []
    if results.alone:
        names.append(_save(_commit(results.alone), folder / "commit.png", results.machine))
    if results.runs:
        runs = pooled(results.runs)
        names.append(_save(_throughput(runs), folder / "throughput.png", results.machine))
        names.append(_save(_waits(runs), folder / "waits.png", results.machine))
    if results.starts:
        names.append(_save(_coldstart(results.starts), folder / "coldstart.png", results.machine))
    return names


def _save(figure: Figure, path: Path, machine: Machine) -> str:
    note = f"{machine.processor}, {machine.cores} cores; {machine.python}; commit {machine.commit}"
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0.2 / figure.get_figheight(), 1, 1 - 0.2 / figure.get_figheight()))
    figure.text(0.995, 0.005, note, ha="right", va="bottom", fontsize=7, color="#666666")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path.name


def _panels(
    places: Sequence[str], width: float, height: float, *, same_height: bool = False
) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1,
        len(places),
        figsize=(width * len(places), height),
        squeeze=False,
        sharey=same_height,
        layout="constrained",
    )
    for axis, place in zip(axes[0], places, strict=True):
        axis.set_title(place)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _places(things: Sequence[Timing] | Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(thing.place for thing in things))


def _plain(value: float, _: object) -> str:
    return f"{value:,.6g}"


def _commit(alone: list[Timing]) -> Figure:
    names = [timing.name for timing in alone if timing.floor is not None]
    names = list(dict.fromkeys(names))
    others = [timing.name for timing in alone if timing.floor is None and not timing.calls]
    others = list(dict.fromkeys(others))
    places = _places(alone)
    figure, axes = _panels(places, 4.6, 5.2)
    figure.suptitle("One commit of 2 kB, nobody else at work (shorter is better)")
    rows = [*names, *others]
    for axis, place in zip(axes, places, strict=True):
        here = {timing.name: timing for timing in alone if timing.place == place}
        for row, name in enumerate(rows):
            timing = here[name]
            value = timing.seconds.median * 1e3
            axis.barh(row, value, height=0.7, color=_OURS if timing.floor else _OTHERS)
            note = f" {value:.2g} ms"
            if timing.floor is not None:
                floor = here[timing.floor]
                axis.barh(row, floor.seconds.median * 1e3, height=0.7, color=_FLOOR)
                note += f", {ratios(timing, floor).median:.2f}×"
            axis.text(value, row, note, va="center", fontsize=8)
        axis.set_yticks(range(len(rows)), rows if place == places[0] else [""] * len(rows))
        axis.invert_yaxis()
        axis.set_xlim(0, 1.45 * max(here[name].seconds.median for name in rows) * 1e3)
        axis.set_xlabel("milliseconds")
    handles = [Rectangle((0, 0), 1, 1, color=colour) for colour in (_FLOOR, _OURS, _OTHERS)]
    labels = [
        "tapstore: the system calls alone",
        "tapstore: all the rest (× = all of it, in units of the calls)",
        "without tapstore",
    ]
    figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    return figure


def _throughput(runs: list[Run]) -> Figure:
    places = _places(runs)
    figure, axes = _panels(places, 4.2, 4.6, same_height=True)
    figure.suptitle("Commits to one document by several processes (higher is better)")
    for axis, place in zip(axes, places, strict=True):
        for way, colour in _COLOURS.items():
            here = [run for run in runs if run.place == place and run.way == way]
            axis.plot(
                [run.processes for run in here],
                [run.rate for run in here],
                color=colour,
                marker=_MARKERS[way],
                linewidth=2,
                label=way,
            )
        _process_axis(axis, runs)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(_plain))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.grid(axis="y", color="#e5e5e5")
    axes[0].set_ylabel("commits per second, all processes")
    _legend(figure, axes[0])
    return figure


def _waits(runs: list[Run]) -> Figure:
    places = _places(runs)
    figure, axes = _panels(places, 4.6, 5.2)
    figure.suptitle(
        "How long a commit takes with all its waiting (shorter is better): "
        "line from the median to the longest, mark at the 99th percentile"
    )
    counts = list(dict.fromkeys(run.processes for run in runs))
    ways = list(_COLOURS)
    for axis, place in zip(axes, places, strict=True):
        ticks, labels = [], []
        for group, count in enumerate(counts):
            for index, way in enumerate(ways):
                run = next(r for r in runs if (r.place, r.processes, r.way) == (place, count, way))
                row = group * (len(ways) + 1.5) + index
                span = (run.wait(0.5) * 1e3, run.longest * 1e3)
                axis.plot(span, (row, row), color=_COLOURS[way], linewidth=4, alpha=0.55)
                axis.plot(
                    run.wait(0.99) * 1e3, row, color=_COLOURS[way], marker=_MARKERS[way], label=way
                )
                axis.text(span[1] * 1.15, row, f"{_short(run.longest)}", va="center", fontsize=8)
            ticks.append(group * (len(ways) + 1.5) + (len(ways) - 1) / 2)
            labels.append(f"{count} processes")
        axis.set_yticks(ticks, labels if place == places[0] else [""] * len(ticks))
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(_plain))
        axis.set_xlim(right=axis.get_xlim()[1] * 3)
        axis.grid(axis="x", color="#e5e5e5")
        axis.set_xlabel("milliseconds")
    _legend(figure, axes[0])
    return figure


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _process_axis(axis: Axes, runs: list[Run]) -> None:
    counts = list(dict.fromkeys(run.processes for run in runs))
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.minorticks_off()
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.set_xlabel("processes")


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique.keys(), loc="outside lower left", ncols=5, fontsize=8, frameon=False
    )


def _coldstart(starts: list[Start]) -> Figure:
    figure, (axis,) = _panels(["Whole processes, files in the cache (shorter is better)"], 7, 2.6)
    for row, start in enumerate(starts):
        times = spread(start.seconds)
        colour = _OURS if start.command == STATUS else _FLOOR
        axis.barh(row, times.median * 1e3, height=0.6, color=colour)
        axis.text(times.median * 1e3, row, f" {times.median * 1e3:.0f} ms", va="center", fontsize=8)
    axis.set_yticks(range(len(starts)), [start.command for start in starts])
    axis.invert_yaxis()
    axis.set_xlim(right=1.15 * axis.get_xlim()[1])
    axis.set_xlabel("milliseconds")
    return figure
