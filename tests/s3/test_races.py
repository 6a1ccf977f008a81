"""Many clients, real processes and real servers: one wins, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tapstore
from tapstore.sessions import history

WORKER = Path(__file__).parent / "race_worker.py"


def run(server, workers):
    """Run the worker once for each list of arguments, at the same time; returns their lines."""
    environment = os.environ | {"STORAGE_OPTIONS": json.dumps(server.storage_options)}
    running = [
        subprocess.Popen(
            [sys.executable, WORKER, *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )
        for arguments in workers
    ]
    lines = []
    for process in running:
        out, _ = process.communicate(timeout=900)
        assert process.returncode == 0
        lines += out.splitlines()
    return lines


def race_for_keys(server, rounds):
    url = f"s3://{server.new_bucket()}/race"
    lines = run(server, [["create", url, f"p{n}", "4", str(rounds)] for n in range(4)])
    won = Counter(line.split()[0] for line in lines)
    assert won == {str(key): 1 for key in range(rounds)}


def test_of_sixteen_clients_exactly_one_creates_each_key(s3_server):
    race_for_keys(s3_server, 20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_same_with_two_hundred_keys(s3_server):
    race_for_keys(s3_server, 200)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fmt", ["json"])
def test_eight_clients_that_count_to_a_hundred_each_make_eight_hundred(s3_server, fmt):
    url = f"s3://{s3_server.new_bucket()}/count"
    options = s3_server.storage_options
    tapstore.create(
        url, roles=["r"], fields={"count": 0}, tapfile_format=fmt, storage_options=options
    ).close()
    acknowledged = run(s3_server, [["count", url, f"c{n}", "100"] for n in range(8)])
    with tapstore.open(url, storage_options=options) as session:
        assert session.tapfile.extra["count"] == 800
        landed = Counter(entry.reason for entry in session.log(after=1))
        assert landed == Counter(acknowledged)
        assert set(landed.values()) == {1}
        assert list(history.verify(session.state.log)) == []
