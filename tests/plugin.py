"""What holds for every test: no leaks from the environment, no hang, no silent skips in CI.

`TAPSTORE_REQUIRE_ALL=1` (set in CI) turns each skip into a failure: a test that cannot run there
is a test that nobody runs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
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


# The time-out of a test is an exception in its main thread.  That does not end a test that waits
# on while it cleans up (for a child, for a thread), nor one that waits in C.
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())  # captured from the first test on


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process, with all its stacks, once a test's time-out had no effect for a minute."""
    marker = item.get_closest_marker("timeout")
    config = item.config
    seconds = marker.args[0] if marker else config.getvalue("timeout") or config.getini("timeout")
    if seconds:
        faulthandler.dump_traceback_later(
            float(seconds) + 60, exit=True, file=config.stash[_STDERR]
        )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave `--last-failed` nothing to repeat of a run that did not get to its end."""
    if REQUIRE_ALL and exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.config.cache.set("cache/lastfailed", {})


def pytest_unconfigure(config: pytest.Config) -> None:
    """The same for threads that keep a process from ending."""
    faulthandler.dump_traceback_later(60, exit=True, file=config.stash[_STDERR])


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
