"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

_PACKAGES = ("msgspec", "PyYAML", "jsonschema_rs", "filelock")


class Machine(msgspec.Struct, kw_only=True):
    """The machine and the versions; `load` is the load average of a minute, before the run."""

    when: str
    commit: str
    python: str
    packages: dict[str, str]
    system: str
    processor: str
    cores: int
    memory_gb: float
    load: float


def look() -> Machine:
    return Machine(
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=_commit(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={name: version(name) for name in _PACKAGES},
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        load=round(os.getloadavg()[0], 1),
    )


def _commit() -> str:
    folder = Path(__file__).parent
    try:
        head = _git("rev-parse", "--short=10", "HEAD", cwd=folder)
        changed = _git("status", "--porcelain", "--", "../tapstore", ".", cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}, with changes" if changed else head


def _git(*arguments: str, cwd: Path) -> str:
    result = subprocess.run(
        ["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
