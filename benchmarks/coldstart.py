"""How long a user waits for `tapstore status`: whole processes, files in the cache.

They run from an environment that has tapstore as a wheel would install it, not from the working
tree: the tree's own environment makes each start of Python longer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from pathlib import Path

import msgspec

import tapstore
from benchmarks.ours import Editing
from benchmarks.stats import Spread, spread

YAML = "python -c 'import yaml'"
STATUS = "tapstore status"


class Start(msgspec.Struct, kw_only=True):
    """One command."""

    command: str
    seconds: list[float]


def ratio(starts: list[Start]) -> Spread:
    """`tapstore status` in units of `import yaml`, round by round."""
    seconds = {start.command: start.seconds for start in starts}
    pairs = zip(seconds[STATUS], seconds[YAML], strict=True)
    return spread([status / yaml for status, yaml in pairs])


def measure(folder: Path, *, rounds: int, say: Callable[[str], None]) -> list[Start]:
    """Measure, in a folder on a disk."""
    binaries = _environment(folder / "venv")
    session = folder / "session"
    session.mkdir()
    Editing(fsync=False, format="yaml", foreign=True).create(session)
    commands: dict[str, list[str | Path]] = {
        "python -c pass": [binaries / "python", "-c", "pass"],
        YAML: [binaries / "python", "-c", "import yaml"],
        STATUS: [binaries / "tapstore", "status", "-w", session],
    }
    starts = [Start(command=name, seconds=[]) for name in commands]
    for arguments in commands.values():
        _run(arguments)
    for number in range(rounds):
        say(f"cold start, round {number + 1} of {rounds}")
        for start, arguments in zip(starts, commands.values(), strict=True):
            started = time.perf_counter()
            _run(arguments)
            start.seconds.append(time.perf_counter() - started)
    return starts


def _run(arguments: list[str | Path]) -> None:
    leaking = ("PYTHON", "TAPSTORE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(leaking)}
    subprocess.run(arguments, env=env, check=True, stdout=subprocess.DEVNULL)


def _environment(folder: Path) -> Path:
    """Make an environment with a copy of tapstore; the rest is borrowed.  Returns its `bin`."""
    venv.create(folder)
    base = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=base))
    shutil.copytree(
        Path(tapstore.__file__).parent,
        packages / "tapstore",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    # The path only: what the other environment runs at each start is not run.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    binaries = Path(sysconfig.get_path("scripts", "venv", vars=base))
    script = binaries / "tapstore"
    script.write_text(
        f"#!{binaries / 'python'}\nimport sys\nfrom tapstore.cli import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    subprocess.run([sys.executable, "-m", "compileall", "-q", packages / "tapstore"], check=True)
    return binaries
