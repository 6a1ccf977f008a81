"""What is built from this tree can be installed and used, without the tree."""

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.building import BACKENDS, ROOT, call


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


@pytest.mark.parametrize("name", BACKENDS)
def test_the_wheel_of_a_backend_has_its_package_and_every_file_of_it(backend_wheels, name):
    source, package = BACKENDS[name], name.replace("-", "_")
    files = {
        str(path.relative_to(source))
        for pattern in ("*.py", "*.lua", "py.typed")
        for path in (source / package).rglob(pattern)
    }
    found = names(backend_wheels[name])
    assert f"{package}/py.typed" in files
    assert files - found == set()
    tops = {each.split("/")[0] for each in found}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package}


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
