"""The test kit from the built wheels: there by itself, costs nothing, does what it shows."""

import json

import pytest

from tests.docs.console import run
from tests.docs.documents import ROOT, examples
from tests.packaging.building import call, clean_environment

pytestmark = pytest.mark.timeout(900)  # installs, and runs a test suite

HOW_TO = ROOT / "docs" / "how-to" / "test-your-agents.md"

LOADED = """
import json, sys
def test_it():
    with open("loaded.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""

OF_THE_PLUGIN = {"tapstore", "tapstore.errors", "tapstore.testing", "tapstore.testing.plugin"}


def pytest_run(kit_bin, folder, *options):
    return call(kit_bin / "python", "-m", "pytest", "-p", "no:cacheprovider", *options, cwd=folder)


def test_the_how_to_does_what_it_shows_with_nothing_but_the_wheels(kit_bin, tmp_path):
    script = examples(HOW_TO)
    assert len(script) > 5
    environment = clean_environment()
    assert run(script, tmp_path, bin_folder=kit_bin, environment=environment, timeout=300) == []


def test_what_is_not_installed_skips_the_test_and_says_how_to_get_it(kit_bin, tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(tapstore_seaweedfs): ...\n")
    report = pytest_run(kit_bin, tmp_path, "-rs")
    assert "1 skipped" in report
    assert 'weed is not installed: pip install "tapstore[testing-servers]"' in report


def test_a_run_that_asks_for_no_fixture_loads_next_to_nothing(kit_bin, tmp_path):
    (tmp_path / "test_it.py").write_text(LOADED)
    loaded = []
    for options in [("-p", "no:tapstore"), ()]:
        pytest_run(kit_bin, tmp_path, "-W", "error", *options)
        loaded.append(set(json.loads((tmp_path / "loaded.json").read_text())))
    without, with_plugin = loaded
    assert {name for name in with_plugin - without if "tapstore" in name} == OF_THE_PLUGIN
    # Of the standard library, too, only what these four need.
    assert {name.partition(".")[0] for name in with_plugin - without} <= {"tapstore"}


def test_the_fixtures_in_memory_need_nothing_but_tapstore_and_pytest(kit_bin, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "for name in ('hypothesis', 'moto', 'boto3', 'flask', 'tapstore_s3', 'tapstore_redis'):\n"
        "    sys.modules[name] = None\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it(tapstore_memory):\n    tapstore_memory.create(roles=['coder'])\n"
        "def test_moto(tapstore_moto): ...\n"
    )
    report = pytest_run(kit_bin, tmp_path, "-rs", "-W", "error", "-p", "no:hypothesispytest")
    assert "1 passed, 1 skipped" in report
    assert 'moto, flask, tapstore_s3 not installed: pip install "tapstore[testing]"' in report


def test_a_program_that_has_imported_tapstore_can_run_pytest(kit_bin, tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(): ...\n")
    program = "import tapstore, pytest, sys; sys.exit(pytest.main(['-W', 'error']))"
    assert "1 passed" in call(kit_bin / "python", "-c", program, cwd=tmp_path)


def test_its_fixtures_are_listed_with_what_they_are(kit_bin, tmp_path):
    listed = pytest_run(kit_bin, tmp_path, "--fixtures", "-q")
    assert "tapstore_moto " in listed.replace(" --", " ").replace("\n", " \n")
    assert "A place for sessions in a new bucket of moto." in listed
