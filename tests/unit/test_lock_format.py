"""The format of locks: what version 1 wrote is read for ever, and is what the document shows."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tapstore.errors import FormatError
from tapstore.locks import records
from tapstore.locks.records import Beat, Current, End, Floor, Grant, Names
from tapstore.locks.tapfile_lock import Record
from tapstore.types import Owner

DOCUMENT = Path(__file__).parents[2] / "docs/spec/locks.md"
SHOWN = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
TOKEN = "8f14e45fceea167a5a36dedd4bea2543"  # noqa: S105

GRANT = Grant(
    format=1,
    name="gpu-0",
    generation=17,
    token=TOKEN,
    owner=Owner(agent="coder-01", instance="5f0c7b1e9a3d2468", host="h1", pid=4711),
    ttl_seconds=30.0,
    at="2026-01-02T10:00:00.123Z",
    reason="training",
)
BEAT = Beat(format=1, generation=17, nonce="c9f0f895fb98ab91", at="2026-01-02T10:00:10.125Z")
END = End(
    format=1,
    generation=17,
    how="expired",
    nonce="c9f0f895fb98ab91",
    by=Owner(agent="coder-02", instance="45c48cce2e2d7fbd", host="h2", pid=815),
    at="2026-01-02T10:00:41.700Z",
)
CURRENT = Current(
    format=1,
    name="gpu-0",
    generation=17,
    state="held",
    token=TOKEN,
    nonce="c9f0f895fb98ab91",
    owner=Owner(agent="coder-01", instance="5f0c7b1e9a3d2468", host="h1", pid=4711),
    ttl_seconds=30.0,
    at="2026-01-02T10:00:10.125Z",
    since="2026-01-02T10:00:00.000Z",
    reason="training",
    follows="released",
)
RECORDS = [(0, GRANT), (1, BEAT), (2, END), (4, CURRENT)]
IDS = ["grant", "beat", "end", "current"]


@pytest.mark.parametrize(("shown", "expected"), RECORDS, ids=IDS)
def test_a_record_is_read_as_the_document_says(shown, expected):
    found = records.decode(SHOWN[shown].encode(), type(expected), "here", 17)
    assert found == expected


@pytest.mark.parametrize(("shown", "written"), RECORDS, ids=IDS)
def test_a_record_is_written_as_the_document_says(shown, written):
    assert msgspec.json.decode(records.encode(written)) == msgspec.json.decode(SHOWN[shown])


def test_a_floor_is_what_the_document_says():
    assert msgspec.json.decode(SHOWN[3], type=Floor).below == 100


def test_the_lock_file_is_what_the_document_says():
    record = msgspec.json.decode(SHOWN[5], type=Record)
    assert (record.agent, record.process.pid) == ("coder-01", 4711)
    assert msgspec.json.decode(msgspec.json.encode(record)) == msgspec.json.decode(SHOWN[5])


def test_fields_that_are_not_known_are_ignored():
    data = SHOWN[1].replace("{", '{"later": 1, ').encode()
    assert records.decode(data, Beat, "here", 17) == BEAT


@pytest.mark.parametrize("name", ["gpu-0", "a/b", "..", "CON", "x.LOCK", "tapfile.lock", "ü %"])
def test_the_folder_of_a_name_leads_back_to_it(name):
    child = Names("locks", name).folder.removeprefix("locks/")
    assert records.name_in(child) == name
    assert not child.lower().endswith(".lock/")


@pytest.mark.parametrize("child", ["tapfile.lock", "x.lock/", "%zz/", "a%2Fb", " /", "%67pu/"])
def test_what_is_no_folder_of_a_lease_has_no_name(child):
    assert records.name_in(child) is None


@pytest.mark.parametrize(
    ("head", "below"), [(1, 0), (149, 0), (150, 100), (249, 100), (250, 200), (1050, 1000)]
)
def test_a_block_is_closed_when_the_head_is_far_above_it(head, below):
    assert records.closable_below(head) == below


@pytest.mark.parametrize(("n", "floor"), [(1, 100), (99, 100), (100, 200), (199, 200)])
def test_a_number_has_one_floor(n, floor):
    assert records.floor_of(n) == floor


def test_a_number_with_too_many_digits_has_no_name():
    with pytest.raises(FormatError):
        Names("locks", "x").grant(10**12)
