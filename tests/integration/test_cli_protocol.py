"""`tapstore protocol`, called as people and programs call it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tapstore.protocols import loader
from tests.integration.cli_calls import call, ok

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "format" / "protocols"
CODE_REVIEW = ROOT / "tapstore" / "protocols" / "library" / "code_review.yaml"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_finding_is_a_line_that_editors_understand(path):
    called = call("protocol", "check", str(path))
    expected = re.findall(r"^# expected: (\d+:\d+ \S+) ([^;\n]+)", path.read_text("utf-8"), re.M)
    lines = [line for line in called.out.splitlines() if not line.startswith("    ")]
    assert len(lines) == len(expected)
    for line, (place, code) in zip(lines, expected, strict=True):
        assert line.startswith(f"{path}:{place.replace(' ', ': ')}: ")
        assert line.endswith(f" [{code}]")
    assert called.status == (7 if any(" error" in place for place, _ in expected) else 0)


def test_a_trace_tells_the_way_there():
    called = call("protocol", "check", str(CASES / "state-dead-end.yaml"))
    assert called.out.splitlines()[1:] == [
        "    after message.Ask: idle -> asked",
        "    after message.Ask: asked -> stuck",
    ]


def test_warnings_count_when_it_is_strict():
    file = str(CASES / "state-without-deadline.yaml")
    assert call("protocol", "check", file).status == 0
    assert call("protocol", "check", "--strict", file).status == 7
    assert call("protocol", "check", "--strict", str(CODE_REVIEW)).status == 0


def test_standard_input_is_read():
    assert "no findings" in ok("protocol", "check", "-", stdin=CODE_REVIEW.read_bytes()).out


def test_one_broken_file_of_several_decides():
    called = call("protocol", "check", "--json", str(CODE_REVIEW), str(CASES / "malformed.yaml"))
    assert called.status == 7
    assert [each["valid"] for each in called.jsons] == [True, False]
    assert [each["protocol_id"] for each in called.jsons] == ["multi_agent_code_review", None]


def test_what_a_file_says_cannot_control_the_terminal(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text('protocol_id: "\\e[2J"\n')
    called = call("protocol", "check", str(file))
    assert called.status == 7
    assert "\x1b" not in called.out


def test_a_folder_and_a_missing_file_are_errors(tmp_path):
    assert call("protocol", "check", str(tmp_path)).status == 9
    assert call("protocol", "check", str(tmp_path / "none.yaml")).status == 6


def test_no_session_is_needed_or_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("protocol", "check", str(CODE_REVIEW))
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_the_one_of_the_loader():
    schema = json.loads(loader.schema_bytes())
    assert json.loads(ok("protocol", "schema").out) == schema
    assert ok("protocol", "schema", "--json").json == schema
