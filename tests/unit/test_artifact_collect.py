from datetime import timedelta

import msgspec
import pytest

from tapstore.artifacts.collect import MIN_AGE, orphans, remove
from tapstore.artifacts.fetch import fetch_to
from tapstore.artifacts.manifest import object_key
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import COLLECTED
from tapstore.artifacts.place import COMMIT_SECONDS, REUSE_SECONDS
from tapstore.artifacts.publish import stage
from tapstore.errors import ArtifactNotFoundError, NotAllowedError
from tapstore.types import OVERWRITE
from tests.unit.artifact_places import make_place, sha256

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "local"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"one")
    (tmp_path / "tree/b").write_bytes(b"two")
    return tmp_path / "tree"


def publish(place, source=b"data", **options):
    options = {"name": "x.py", "phase": "p", "suffix": "c1"} | options
    return stage(place.store, source, **options)


def find(place, live=(), *, older_than=HOUR, **options):
    return orphans(place.store, live, older_than=older_than, now=place.store.now(), **options)


def names(found):
    return [info.key for info in found]


# What is found


def test_what_nobody_registered_is_found_when_it_is_old(place):
    artifact = publish(place)
    place.grow_old(3601)
    assert names(find(place)) == [artifact.path]


def test_what_was_just_stored_is_spared(place):
    publish(place)
    place.grow_old(3500)
    assert find(place) == []


def test_what_is_registered_is_spared(place):
    artifact = publish(place)
    place.grow_old(3601)
    assert find(place, [artifact]) == []


def test_only_artifacts_are_looked_at(place):
    for key in ("inbox/coder/task.json", ".tap/Tapfile", "logs/a.log", "out/report.md"):
        place.store.put(key, b"x")
    place.grow_old(3601)
    assert find(place) == []


def test_the_shortest_age_covers_reuse_and_registration():
    assert MIN_AGE.total_seconds() >= REUSE_SECONDS + COMMIT_SECONDS


def test_an_age_that_could_take_what_is_about_to_be_registered_is_refused(place):
    with pytest.raises(NotAllowedError, match=r"0:15:00"):
        find(place, older_than=timedelta(minutes=14))


def test_what_was_stored_under_a_claim_that_lives_is_spared_at_any_age(place):
    claimed = place.store.now()
    publish(place)
    place.grow_old(3601)
    # On disk only the files grow older, and in memory only the clock moves on.
    aged = place.store.now() - claimed < 3600
    assert find(place, claimed_since=claimed - 3601 * aged) == []


def test_what_a_claim_may_have_found_and_reused_is_spared_too(place):
    publish(place)
    place.grow_old(7200)
    assert find(place, claimed_since=place.store.now() - 7200 + REUSE_SECONDS) == []


def test_what_is_older_than_all_claims_is_found(place):
    publish(place)
    place.grow_old(7200)
    assert len(find(place, claimed_since=place.store.now() - 3600)) == 1


def test_the_files_of_a_registered_directory_are_spared(place, tree):
    artifact = publish(place, tree)
    place.grow_old(3601)
    assert find(place, [artifact]) == []


def test_all_names_of_a_needed_file_are_spared(place, tree):
    publish(place, tree)
    place.grow_old(REUSE_SECONDS + 1)
    artifact = publish(place, tree, name="again")
    place.grow_old(3601)
    assert names(find(place, [artifact])) == ["artifacts/p/x.py"]


def test_only_the_files_that_no_directory_needs_are_found(place, tree):
    first = publish(place, tree)
    (tree / "b").write_bytes(b"new")
    second = publish(place, tree, suffix="c2")
    place.grow_old(3601)
    assert names(find(place, [second])) == [object_key(sha256(b"two")[7:]), first.path]


def test_a_directory_that_cannot_be_read_stops_the_collection(place, tree):
    artifact = publish(place, tree)
    place.store.delete(artifact.path)
    place.grow_old(3601)
    with pytest.raises(ArtifactNotFoundError, match=r"x\.py"):
        find(place, [artifact])


def test_bytes_elsewhere_need_nothing_here(place):
    elsewhere = Artifact(name="m", path="s3://bucket/m", manifest=True)
    assert find(place, [elsewhere]) == []


# What is removed


def test_what_was_found_is_removed(place):
    publish(place)
    place.grow_old(3601)
    removed = remove(place.store, find(place), live=list)
    assert names(removed) == ["artifacts/p/x.py"]
    assert [key for key in place.everything() if not key.startswith(COLLECTED)] == []


def test_what_was_registered_since_it_was_found_is_spared(place):
    artifact = publish(place)
    place.grow_old(3601)
    assert remove(place.store, find(place), live=lambda: [artifact]) == []
    assert place.get(artifact) == b"data"


def test_what_was_written_again_since_it_was_found_is_spared(place):
    artifact = publish(place)
    place.grow_old(3601)
    found = find(place)
    place.store.put(artifact.path, b"by hand", OVERWRITE)
    assert remove(place.store, found, live=list) == []
    assert place.get(artifact) == b"by hand"


def test_what_somebody_else_removed_is_not_counted(place):
    publish(place)
    place.grow_old(3601)
    found = find(place)
    remove(place.store, found, live=list)
    assert remove(place.store, found, live=list) == []


def test_a_collector_that_was_stopped_cannot_delete_what_came_after(place):
    publish(place)
    place.grow_old(3601)
    found = find(place)
    remove(place.store, found, live=list)
    after = publish(place, b"data", suffix="c2")

    # The same deletion once more, as if its first attempt had slept since before the other.
    for info in found:
        place.store.delete(info.key)
    assert place.get(after) == b"data"


def test_a_publisher_that_meets_a_collection_keeps_its_bytes(place):
    """Between the collector's record and its deletion, somebody publishes the same bytes."""
    publish(place)
    place.grow_old(3601)
    published = []

    def live():
        published.append(publish(place, suffix="c2"))
        return []

    remove(place.store, find(place), live=live)
    assert place.get(published[0]) == b"data"


def test_a_directory_whose_files_are_being_collected_keeps_them(place, tree, tmp_path):
    publish(place, tree)
    place.grow_old(3601)
    published = []

    def live():
        published.append(publish(place, tree, name="again"))
        return []

    assert len(remove(place.store, find(place), live=live)) == 3
    fetch_to(place.store, published[0], tmp_path / "copy")
    assert (tmp_path / "copy/a").read_bytes() == b"one"


def test_records_of_what_was_collected_are_never_found(place):
    publish(place)
    place.grow_old(3601)
    remove(place.store, find(place), live=list)
    place.grow_old(3601)
    assert find(place) == []


def test_a_moved_registration_frees_the_old_bytes_only(place):
    old = publish(place)
    new = publish(place, b"newer", suffix="c2")
    place.grow_old(3601)
    remove(place.store, find(place, [new]), live=lambda: [new])
    assert place.get(new) == b"newer"
    assert old.path not in place.everything()


def test_a_hostile_path_among_the_registered_hinders_nothing(place):
    publish(place)
    place.grow_old(3601)
    hostile = msgspec.structs.replace(publish(place), path="../../etc/passwd")
    assert names(find(place, [hostile])) == ["artifacts/p/x.py"]
