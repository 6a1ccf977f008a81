import math

import click
import pytest

from tapstore.cli import params


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("1.5", 1.5), ("500ms", 0.5), ("2s", 2), ("5m", 300), ("5min", 300), ("1h", 3600),
     ("2 d", 172_800)],
)  # fmt: skip
def test_durations_have_units(text, seconds):
    assert params.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "1w", "forever", "nan", "1e3"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(click.BadParameter, match="500ms"):
        params.duration(text)


def test_forever_is_no_limit():
    assert params.or_none(params.duration_or_forever("forever")) is None


def test_a_limit_stays_one():
    assert params.or_none(params.duration_or_forever("3")) == 3


def test_infinity_cannot_be_written_otherwise():
    with pytest.raises(click.BadParameter):
        params.duration_or_forever(str(math.inf))


def test_an_assignment_ends_at_the_first_equals_sign():
    assert params.assignment("query=a=b") == ("query", "a=b")


@pytest.mark.parametrize("text", ["name", "=value", ""])
def test_what_assigns_nothing_is_refused(text):
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        params.assignment(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("true", True), ('{"a": [1]}', {"a": [1]}), ('"5"', "5"), ("plain", "plain"),
     ("{broken", "{broken"), ("", "")],
)  # fmt: skip
def test_a_value_is_json_or_else_text(text, value):
    assert params.json_or_text(text) == value


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a:b.py"
    path.write_text("x")
    return str(path)


def test_a_file_without_options_has_its_own_name(file):
    assert params.file_to_publish(file) == (file, {"name": "a:b.py", "consumers": []})


def test_options_follow_the_last_colon(file):
    path, options = params.file_to_publish(f"{file}:name=c.py,type=code,consumer=x,consumer=y")
    assert (path, options) == (file, {"name": "c.py", "type": "code", "consumers": ["x", "y"]})


def test_an_unknown_option_is_refused_with_the_list(file):
    with pytest.raises(click.BadParameter, match="'kind'; there are name, type, consumer"):
        params.file_to_publish(f"{file}:kind=code")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(click.BadParameter, match="there is no file"):
        params.file_to_publish(str(tmp_path / "missing"))
