"""A backend of somebody else is a wheel beside ours, passes the suites, and works by its URL."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.documents import ROOT
from tests.packaging.building import build, call, copy_source, install

pytestmark = pytest.mark.timeout(900)  # installs, and runs a test suite

SOURCE = Path(__file__).with_name("third_party")
HOW_TO = ROOT / "docs" / "how-to" / "write-a-backend.md"


@pytest.fixture(scope="module")
def bin_folder(kit_bin, tmp_path_factory):
    """That of an environment that has our wheels and the backend's."""
    folder = tmp_path_factory.mktemp("third-party")
    source = copy_source(SOURCE, ["pyproject.toml", "tapstore_sqlite"], folder / "source")
    build(source, folder, "--wheel")
    (wheel,) = folder.glob("tapstore_sqlite-*.whl")
    install(kit_bin.parent, "--no-deps", wheel)
    return kit_bin


def test_it_passes_the_conformance_suites(bin_folder, tmp_path):
    shutil.copytree(SOURCE / "tests", tmp_path / "tests")
    report = call(
        bin_folder / "python", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider",
        "tests",
        cwd=tmp_path,
    )  # fmt: skip
    passed = re.search(r"^(\d+) passed in ", report, re.MULTILINE)
    assert passed, report  # nothing was skipped either
    assert int(passed[1]) > 200


def test_the_command_uses_it_by_its_url(bin_folder, tmp_path):
    url, locks = f"sqlite://{tmp_path}/place.db/review", f"sqlite://{tmp_path}/locks.db"
    tapstore = bin_folder / "tapstore"
    call(tapstore, "init", "-w", url, "--role", "coder", "--phase", "one", "--locks", locks,
         cwd=tmp_path)  # fmt: skip
    call(tapstore, "-w", url, "lock", "gpu-0", "--", tapstore, "-w", url, "phase", "two",
         cwd=tmp_path)  # fmt: skip
    assert "phase two" in call(tapstore, "-w", url, "status", cwd=tmp_path)


def test_what_the_how_to_shows_is_what_the_backend_has():
    shown = re.findall(r"^```(?:python|toml)\n(.+?)^```", HOW_TO.read_text(), re.M | re.S)
    files = "\n".join(
        path.read_text() for path in sorted(SOURCE.rglob("*")) if path.suffix in (".py", ".toml")
    )
    assert len(shown) > 3
    assert [block for block in shown if block not in files] == []
