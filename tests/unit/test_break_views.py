"""Views that lag, were tampered with, or are written by two at once."""

import json
from pathlib import Path

import pytest

import tapstore


def lines(session):
    text = Path(session.store.local_path(".tap/session.log")).read_text()
    return [json.loads(line)["rev"] for line in text.splitlines()]


@pytest.fixture
def alone(tmp_path):
    """No lock around publishing."""
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], foreign=False) as session:
        yield session


def test_a_slower_writer_does_not_throw_away_the_log_lines_of_a_faster_one(alone):
    alone.set_phase("slow")
    slow = alone.state.peek()
    with tapstore.open(alone.store.root) as faster:
        for number in range(3):
            faster.set_phase(f"p{number}")
        assert lines(alone) == [1, 2, 3, 4, 5]
        alone.state._view.publish(slow, alone.state.log)
        assert lines(alone) == [1, 2, 3, 4, 5]
        faster.set_phase("last")
    assert lines(alone) == [1, 2, 3, 4, 5, 6]


def test_log_lines_of_another_session_are_replaced(alone):
    path = Path(alone.store.local_path(".tap/session.log"))
    path.write_text('{"rev": 99, "write_id": "of another"}\n')
    alone.set_phase("next")
    assert lines(alone) == [1, 2]
