"""A stream larger than the memory that may be used for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("artifact_worker.py")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status tells the peak of memory")
def test_a_stream_of_200_mb_is_published_and_fetched_in_a_tenth_of_its_size(tmp_path):
    done = subprocess.run(
        [sys.executable, WORKER, "stream", tmp_path, str(200_000_000)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["size"] == 200_000_000
    assert told["peak"] < 20_000_000
