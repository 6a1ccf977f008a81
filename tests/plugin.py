"""What holds for every test: no leaks from the environment, no silent skips where all is required.

`TAPSTORE_REQUIRE_ALL=1` (set in CI) turns each skip into a failure: a test that cannot run there
is a test that nobody runs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tapstore.testing.sessions import tmpfs_folder

REQUIRE_ALL = os.environ.get("TAPSTORE_REQUIRE_ALL") == "1"

# A developer's own `TAPSTORE_URL` must not become a test's session, nor their keys those of a test.
for _name in [name for name in os.environ if name.startswith(("TAPSTORE_", "AWS_"))]:
    if _name != "TAPSTORE_REQUIRE_ALL":  # the workers of xdist inherit it from here
        del os.environ[_name]
os.environ.update(
    XDG_CONFIG_HOME=os.devnull,
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
)

# A shell that starts the tests in its background has them ignore Ctrl-C, and their children, too.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        default = signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, default)

# Deadlines per example would fail on a busy machine, not on a slow algorithm.  In CI the examples
# are the same each time, so that a change is judged by itself; soak looks for new ones.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", deadline=None, max_examples=5_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev")
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _require(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _require(report)
    return report


def _require(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped, too; it did run.
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"TAPSTORE_REQUIRE_ALL=1, but it would be skipped: {reason}"


@pytest.fixture
def tmpfs_path() -> Iterator[Path]:
    """An empty folder on a tmpfs."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(tmpfs_folder())
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
        yield folder
