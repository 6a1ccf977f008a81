"""A run of the benchmarks ends in a report, plots and the raw numbers."""

import msgspec
import pytest

from benchmarks import remote
from benchmarks.__main__ import PARTS, Size, measure, write
from benchmarks.machine import Machine
from benchmarks.report import render
from benchmarks.results import Results, goals

TINY = Size(
    alone_sittings=1, alone_rounds=1, contended_rounds=1, contended_seconds=0.05, start_rounds=1,
    remote_rounds=1, handoff_rounds=1, handoff_depths=(40, 160),
    handoff_calls=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    disk = tmp_path_factory.mktemp("disk")
    return measure(TINY, PARTS, disk=disk, quick=True, processes=(2,), round_trips=(1,))


pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def test_everything_is_written(results, tmp_path):
    write(results, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    plots = {"commit.png", "throughput.png", "waits.png", "coldstart.png"}
    assert names == {"results.json", "report.md"} | plots
    report = (tmp_path / "report.md").read_text()
    assert all(f"({name})" in report for name in plots)
    assert all((tmp_path / name).read_bytes()[:4] == b"\x89PNG" for name in plots)


def test_the_raw_numbers_can_be_read_back(results, tmp_path):
    write(results, tmp_path)
    again = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results)
    assert again == results


def test_nothing_was_lost(results):
    assert [goal.met for goal in goals(results) if goal.what == "commits lost"] == [True]


def test_the_report_lists_the_system_calls(results):
    report = render(results, plots=())
    assert ".tap/session.log: openat, fstat, write, close" in report


def test_the_report_counts_requests_to_servers_far_away(results):
    far = {(one.server, one.name): one for one in results.far}
    assert far["moto", remote.RAW].requests == 2
    assert far["moto", remote.LOOK].requests == 1
    assert "| moto | 1 | tapstore, a look |" in render(results, plots=())


def test_the_report_tells_what_hand_offs_cost_and_how_that_grows(results):
    report = render(results, plots=())
    assert "| tmpfs | send, next, done | tapstore |" in report
    assert "| SeaweedFS, 20 ms | tapstore | 20 |" in report
    requests = {depth.waiting: depth.requests for depth in results.depths if depth.requests}
    assert requests[20] == requests[80]
    measured = [goal for goal in goals(results) if "next" in goal.what]
    assert {goal.where for goal in measured} == {"disk", "tmpfs", "SeaweedFS, 20 ms"}


def test_nothing_of_a_run_stays_on_the_disk(tmp_path):
    measure(TINY, ["coldstart"], disk=tmp_path, quick=True)
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_measured_is_not_reported():
    machine = Machine(
        when="now", commit="c", python="p", packages={}, system="s", processor="p", cores=1,
        memory_gb=1, load=0,
    )  # fmt: skip
    report = render(Results(machine=machine, quick=False), plots=())
    assert "## One process" not in report
    assert "## Several processes" not in report
