"""In CI nothing is skipped silently (tests/plugin.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "plugin.py"

SUITE = {
    "test_in_test.py": "import pytest\ndef test_it():\n    pytest.skip('no server')\n",
    "test_by_mark.py": "import pytest\n@pytest.mark.skipif(True, reason='no server')\n"
    "def test_it(): ...\n",
    "test_module.py": "import pytest\npytest.skip('no server', allow_module_level=True)\n",
    "test_expected.py": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
}


def run_suite(folder: Path, required: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(PLUGIN, folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, source in SUITE.items():
        (folder / name).write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider",
         "--continue-on-collection-errors"],
        cwd=folder,
        env={**os.environ, "TAPSTORE_REQUIRE_ALL": required, "COLUMNS": "200"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints about the suite where all is required."""
    return run_suite(tmp_path_factory.mktemp("required"), "1").stdout


@pytest.mark.parametrize(
    "line",
    ["FAILED test_in_test.py::test_it", "ERROR test_by_mark.py::test_it", "ERROR test_module.py"],
)
def test_a_skip_fails_where_all_is_required(report, line):
    assert f"{line} - TAPSTORE_REQUIRE_ALL=1, but it would be skipped: Skipped: no server" in report


def test_an_expected_failure_is_no_skip(report):
    assert "XFAIL test_expected.py::test_it" in report


def test_a_skip_stays_a_skip_elsewhere(tmp_path):
    result = run_suite(tmp_path, "")
    assert (result.returncode, "3 skipped, 1 xfailed" in result.stdout) == (0, True)
