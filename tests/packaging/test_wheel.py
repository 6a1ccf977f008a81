"""What is built from this tree can be installed and used, without the tree."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "tapstore")
"""All that a build needs.  It works on a copy: setuptools leaves a `build/` folder, and what is
left there by an earlier build gets into the next wheel."""


def call(*command: str | Path, cwd: Path) -> str:
    # Neither the tree nor the environment of these tests may leak into what is called.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command} exited with {result.returncode}:\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source)
    # Not isolated: the build uses the setuptools that constraints.txt pins, not the newest one.
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel, what it declares, and no more."""
    folder = tmp_path_factory.mktemp("clean")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    call(
        sys.executable, "-m", "pip", "--python", folder / "venv", "install", "--quiet",
        "-c", ROOT / "constraints.txt", wheel,
        cwd=folder,
    )  # fmt: skip
    return folder / "venv" / ("Scripts" if os.name == "nt" else "bin")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_one_top_level_package(wheel):
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tapstore"}


def test_the_wheel_has_every_file_of_the_package(wheel):
    files = {
        str(path.relative_to(ROOT))
        for pattern in ("*.py", "*.json", "*.yaml", "py.typed")
        for path in (ROOT / "tapstore").rglob(pattern)
    }
    assert "tapstore/py.typed" in files
    assert files - names(wheel) == set()


def test_the_sdist_has_the_licence(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def test_the_installed_package_is_the_one_that_gets_imported(clean_bin, tmp_path):
    place = call(
        clean_bin / "python", "-c", "import tapstore; print(tapstore.__file__)", cwd=tmp_path
    )
    assert Path(place.strip()).is_relative_to(clean_bin.parent)


def test_every_module_can_be_imported_with_the_declared_dependencies_alone(clean_bin, tmp_path):
    # tapstore.testing has an extra of its own.
    program = """
import importlib, pkgutil, tapstore
for module in pkgutil.walk_packages(tapstore.__path__, "tapstore."):
    if not module.name.startswith("tapstore.testing"):
        importlib.import_module(module.name)
"""
    call(clean_bin / "python", "-c", program, cwd=tmp_path)


def smoke_job(clean_bin: Path, folder: Path) -> None:
    """A session from beginning to end with the installed command, in an empty folder."""
    tapstore = clean_bin / "tapstore"
    call(tapstore, "init", "--role", "coder", "--phase", "coding", cwd=folder)
    call(tapstore, "task", "send", "coder", "two", "--output", "two.py", cwd=folder)
    call(
        tapstore, "agent", "run", "--role", "coder", "--once", "--idle", "60", "--then", "done",
        "--", clean_bin / "python", "-c", "print('print(2)')",
        cwd=folder,
    )  # fmt: skip
    assert call(tapstore, "fetch", "two.py", "-o", "-", cwd=folder) == "print(2)\n"
    assert "phase done" in call(tapstore, "status", cwd=folder)
    call(tapstore, "validate", "--artifacts", cwd=folder)


def test_a_smoke_job_runs_from_the_installed_wheel(clean_bin, tmp_path):
    smoke_job(clean_bin, tmp_path)
