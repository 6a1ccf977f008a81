"""`tapstore doctor --peers` between two kernels that mount one export."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest


def examine(client, place):
    command = [sys.executable, "-m", "tapstore", "doctor", place, "--peers", "--json"]
    done = client.run([*command, "--wait", "120"], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return {finding["probe"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.timeout(400)
def test_two_hosts_find_each_other_and_that_one_clock_is_an_hour_ahead(nfs, place):
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(examine, nfs.clients, [place] * 2))
    for each in found:
        assert each["peers"]["severity"] == "ok", each["peers"]
        assert each["peers"]["values"]["peers"] == 1
        assert each["peers"]["values"]["creations"] > 0
        assert each["peer-clocks"]["values"]["apart_seconds"] == pytest.approx(3600, abs=30)
    assert found[0]["mount"]["values"]["type"].startswith("nfs")
    assert nfs.clients[0].run(["ls", "-A", place]).stdout == ""
