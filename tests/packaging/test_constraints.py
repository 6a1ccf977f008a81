"""constraints.txt says exactly what gets installed."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = sorted(ROOT.glob("backends/*/pyproject.toml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lines() -> list[str]:
    text = (ROOT / "constraints.txt").read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def group(name: str) -> Iterator[Requirement]:
    for entry in PROJECT["dependency-groups"][name]:
        if isinstance(entry, dict):
            yield from group(entry["include-group"])
        else:
            yield Requirement(entry)


def everything_needed() -> set[str]:
    ours = [PROJECT, *(tomllib.loads(path.read_text()) for path in BACKENDS)]
    names = {canonicalize_name(each["project"]["name"]) for each in ours}
    todo = [*group("dev"), Requirement("pip")]
    for each in ours:
        todo += map(Requirement, each["project"]["dependencies"])
    found: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if name in names or (name, extra) in found:
                continue
            found.add((name, extra))
            todo += [
                needed
                for needed in map(Requirement, distribution(name).requires or ())
                if needed.marker is None or needed.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found}


def test_each_line_pins_one_version_and_nothing_else():
    assert [
        line for line in lines() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line)
    ] == []


def test_everything_that_an_install_brings_is_pinned():
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines()}
    assert everything_needed() - pinned == set()


def test_nothing_is_pinned_that_no_install_brings():
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines()}
    assert pinned - everything_needed() == set()


def test_the_pins_satisfy_what_the_project_declares():
    pins = dict(line.split("==") for line in lines())
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    declared = [*group("dev"), *map(Requirement, PROJECT["project"]["dependencies"])]
    assert [
        str(r) for r in declared if versions[canonicalize_name(r.name)] not in r.specifier
    ] == []
