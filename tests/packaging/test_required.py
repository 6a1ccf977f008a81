"""In CI nothing is skipped silently (tests/conftest.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

SKIPPED_TEST = "import pytest\ndef test_it():\n    pytest.skip('no server here')\n"
SKIPPED_MODULE = "import pytest\npytest.skip('no server here', allow_module_level=True)\n"
SKIPPED_BY_MARK = (
    "import pytest\n@pytest.mark.skipif(True, reason='no server here')\ndef test_it(): ...\n"
)
EXPECTED_FAILURE = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"


def outcome(folder: Path, source: str, *, required: bool) -> tuple[int, str]:
    shutil.copy(CONFTEST, folder)
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, "TAPSTORE_REQUIRE_ALL": "1" if required else ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize("source", [SKIPPED_TEST, SKIPPED_MODULE, SKIPPED_BY_MARK])
def test_a_skip_fails_where_all_is_required(tmp_path, source):
    status, output = outcome(tmp_path, source, required=True)
    assert status in (1, 2)
    assert "it would be skipped: Skipped: no server here" in output


def test_a_skip_stays_a_skip_elsewhere(tmp_path):
    status, output = outcome(tmp_path, SKIPPED_TEST, required=False)
    assert (status, "1 skipped" in output) == (0, True)


def test_an_expected_failure_is_no_skip(tmp_path):
    status, output = outcome(tmp_path, EXPECTED_FAILURE, required=True)
    assert (status, "1 xfailed" in output) == (0, True)
