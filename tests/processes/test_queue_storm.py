"""Hand-offs of a session while senders and workers are killed and stopped: each ends once.

A message is completed once for each of its recipients, or it is dead with its history.
"""

import random
import secrets

import pytest

from tests.processes.queue_storm import Storm

FEW, MANY = 300, 5_000


def run(url, folder, count, *, options=None, blows=1.0, pause=0.25, seconds=170):
    storm = Storm(url, folder, count, random.Random(), options or {}, blows, pause)
    storm.run(seconds if count < MANY else 7000)
    assert {kind.split()[0] for kind in storm.kinds} == {"kill", "stop"}, storm.kinds
    storm.judge()


@pytest.mark.parametrize("place", ["disk", "tmpfs"])
def test_five_thousand_messages_end_once_in_a_folder(place, tmp_path, tmpfs_path):
    folder = tmpfs_path if place == "tmpfs" else tmp_path / "place"
    said = tmp_path / "said"
    said.mkdir()
    run(str(folder / "s"), said, MANY, blows=0.5, pause=0.02)


LONG = [pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=LONG)])
@pytest.mark.parametrize("server", ["moto_s3", "seaweedfs", "radosgw"])
def test_messages_end_once_in_a_bucket(request, server, tmp_path, count):
    running = request.getfixturevalue(server)
    url = f"s3://{running.new_bucket()}/team/storm"
    run(url, tmp_path, count, options=running.storage_options)


@pytest.mark.parametrize(
    ("server", "count"),
    [
        ("sftp_server", FEW),
        pytest.param("sftp_server", MANY, marks=LONG),
        pytest.param("smb_server", FEW, marks=LONG),
        pytest.param("smb_server", MANY, marks=LONG),
    ],
)
def test_messages_end_once_on_a_file_server(request, server, tmp_path, count):
    running = request.getfixturevalue(server)
    url = running.url(secrets.token_hex(8))
    run(url, tmp_path, count, options=running.storage_options)
