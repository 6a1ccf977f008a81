"""Builds the project's distributions and installs them into environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
BACKENDS = {"tapstore-s3": ROOT / "backends" / "s3", "tapstore-redis": ROOT / "backends" / "redis"}


def clean_environment() -> dict[str, str]:
    """Neither the tree nor the environment of these tests may leak into what is called."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "VIRTUAL_ENV"
    }
    # No virtual environment, this one or one that somebody activated: each has programs, too.
    kept["PATH"] = os.pathsep.join(
        each
        for each in os.environ["PATH"].split(os.pathsep)
        if not (Path(each).parent / "pyvenv.cfg").exists()
    )
    return kept


def call(*command: str | Path, cwd: Path) -> str:
    """The output of a command that has to succeed."""
    result = subprocess.run(
        list(map(str, command)),
        cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = result.stdout + result.stderr
    assert result.returncode == 0, f"{command} exited with {result.returncode}:\n{output}"
    return result.stdout


def copy_source(source: Path, names: Iterable[str], target: Path) -> Path:
    """Copy what a build needs.

    It works on a copy: setuptools leaves a `build/` folder, and what is left there by an earlier
    build gets into the next wheel.
    """
    target.mkdir(parents=True)
    for name in names:
        if (source / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, target / name, ignore=ignore)
        else:
            shutil.copy(source / name, target)
    return target


def build(source: Path, folder: Path, *options: str) -> None:
    """Build the distribution in `source` into `folder`; it may leave something in `source`."""
    # Not isolated: the build uses the setuptools that constraints.txt pins, not the newest one.
    call(
        sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", folder, source,
        cwd=source,
    )  # fmt: skip


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """The `bin` folder of a new environment that has these, what they declare, and no more."""
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    install(folder, "-c", CONSTRAINTS, *requirements)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def install(environment: Path, *arguments: str | Path) -> None:
    """Have this Python's pip install into another environment."""
    call(
        sys.executable, "-m", "pip", "--python", environment, "install", "--quiet",
        "--disable-pip-version-check", *arguments,
        cwd=environment,
    )  # fmt: skip
