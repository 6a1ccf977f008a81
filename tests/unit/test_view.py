"""The Tapfile as a file: what plain programs see, and what becomes of their edits."""

import json
import os
import time
from pathlib import Path

import pytest
import yaml

import tapstore
from tapstore.tapfile import format


@pytest.fixture(params=["yaml", "json"])
def session(request, tmp_path):
    with tapstore.create(
        str(tmp_path), roles=["coder", "reviewer"], phase="start", tapfile_format=request.param,
        fields={"counter": 0, "notes": ["one"]}, session_id="s",
    ) as session:  # fmt: skip
        yield session


def tapfile(session):
    return Path(session.store.local_path(".tap/Tapfile"))


def read(session):
    return yaml.safe_load(tapfile(session).read_bytes())  # JSON is YAML


def write(session, document):
    """In place, as plain programs do."""
    with open(tapfile(session), "w") as file:
        if session.config.tapfile_format == "json":
            json.dump(document, file)
        else:
            yaml.safe_dump(document, file)


def edit(session, change):
    document = read(session)
    change(document)
    write(session, document)


def age(session, seconds=10):
    past = time.time() - seconds
    os.utime(tapfile(session), (past, past))


def parked(session):
    folder = Path(session.store.local_path(".tap/conflicts"))
    return [json.loads(file.read_bytes()) for file in folder.iterdir()]


def test_the_view_shows_the_newest_revision(session):
    session.set_phase("next")
    assert read(session)["current_phase"] == "next"


def test_an_edit_is_imported_by_whoever_looks(session):
    edit(session, lambda d: d.update(current_phase="coding"))
    assert session.phase == "coding"
    assert [entry.operations for entry in session.log()][-1] == ("edit",)


def test_an_edit_and_a_commit_are_both_kept(session):
    edit(session, lambda d: d.update(counter=5))
    session.set_phase("next")
    assert (read(session)["counter"], read(session)["current_phase"]) == (5, "next")


def test_a_plain_round_trip_changes_nothing(session):
    with session.claim("coder", agent="no") as claim:
        rev = session.state.refresh().rev
        edit(session, lambda _: None)
        assert session.state.refresh().rev == rev
        claim.complete()


def test_unknown_fields_of_plain_programs_survive(session):
    edit(session, lambda d: d["participants"][0].update(model="m-1"))
    session.set_phase("next")
    assert read(session)["participants"][0]["model"] == "m-1"


def test_a_missing_view_is_published_and_is_no_deletion(session):
    os.unlink(tapfile(session))
    assert session.phase == "start"
    assert read(session)["session_id"] == "s"


def test_an_edit_of_an_older_view_is_merged(session):
    old = read(session)
    session.edit(lambda d: d["notes"].append("two"))
    old["notes"].append("plain")
    old["counter"] = 7
    write(session, old)
    assert session.tapfile.extra == {"counter": 7, "notes": ["one", "two", "plain"]}


def test_an_edit_of_a_view_whose_content_was_collected_is_merged(tmp_path):
    with tapstore.create(
        str(tmp_path), roles=["coder"], keep_revisions=1, fields={"counter": 0, "other": 0}
    ) as session:
        session.set_phase("two")
        old = read(session)
        for number in range(5):
            session.edit(lambda d, n=number: d.update(other=n + 1))
        old["counter"] = 1
        write(session, old)
        assert session.tapfile.extra == {"counter": 1, "other": 5}


def test_a_conflicting_edit_is_set_aside_whole_and_logged(session):
    old = read(session)
    session.edit(lambda d: d.update(counter=1))
    old.update(counter=9, current_phase="mine")
    write(session, old)
    assert session.tapfile.extra["counter"] == 1
    assert session.phase == "start"
    (file,) = parked(session)
    assert "counter was changed" in file["reason"]
    assert format.parse(file["tapfile"].encode())["counter"] == 9
    assert [entry.operations for entry in session.log()][-1] == ("park",)
    assert read(session)["counter"] == 1


def test_a_zombie_that_completes_after_a_reset_is_not_applied(session):
    def work(document):
        document["participants"][0].update(
            status="working", agent_id="plain", last_activity="2024-04-15T10:30:00Z"
        )

    edit(session, work)
    assert session.tapfile.participants[0].claim.external
    session.reset("coder", reason="test")
    edit(session, lambda d: d["participants"][0].update(status="completed"))
    assert session.tapfile.participants[0].status == "pending"
    assert "nobody holds it" in parked(session)[0]["reason"]


def test_a_plain_agent_that_works_for_long_is_not_reset(session):
    def work(document):
        document["participants"][0].update(
            status="working", agent_id="plain", last_activity="2001-01-01T00:00:00Z"
        )

    edit(session, work)
    assert session.sweep() == []
    assert [j.health.value for j in session.judge()] == ["unjudged"]


def test_half_written_yaml_is_left_alone_until_it_rested(session):
    with open(tapfile(session), "r+") as file:
        text = file.read()
        file.seek(0)
        file.truncate(len(text) // 2)
    before = tapfile(session).read_text()
    session.set_phase("next")
    assert tapfile(session).read_text() == before
    age(session)
    assert session.phase == "next"
    assert len(parked(session)) == 1
    assert read(session)["current_phase"] == "next"


def test_entries_that_disappear_are_left_alone_until_they_rested(session):
    edit(session, lambda d: d["participants"].pop())
    assert len(session.tapfile.participants) == 2
    assert len(read(session)["participants"]) == 1
    age(session)
    assert len(session.tapfile.participants) == 2
    assert "disappeared" in parked(session)[0]["reason"]
    assert len(read(session)["participants"]) == 2


def test_an_edit_without_our_key_is_set_aside(session):
    edit(session, lambda d: d.pop("tapstore") and d.update(current_phase="x"))
    age(session)
    assert session.phase == "start"
    assert "does not name the revision" in parked(session)[0]["reason"]


def test_an_edit_that_breaks_the_schema_says_where(session):
    edit(session, lambda d: d["participants"][0].update(status="sleeping"))
    age(session)
    assert session.tapfile.participants[0].status == "pending"
    assert "participants[0].status" in parked(session)[0]["reason"]


def test_an_import_that_died_before_publishing_is_not_imported_twice(session):
    edit(session, lambda d: d["notes"].append("plain"))
    edited = tapfile(session).read_bytes()
    assert session.tapfile.extra["notes"] == ["one", "plain"]
    tapfile(session).write_bytes(edited)
    assert session.tapfile.extra["notes"] == ["one", "plain"]
    assert read(session)["notes"] == ["one", "plain"]


def test_an_edit_on_top_of_one_whose_importer_died_is_merged(session):
    edit(session, lambda d: d["notes"].append("first") or d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.extra["counter"] == 1
    tapfile(session).write_bytes(first)  # the importer died before it published
    edit(session, lambda d: d["notes"].append("second") or d.update(counter=2))
    second = tapfile(session).read_bytes()
    assert session.tapfile.extra == {"counter": 2, "notes": ["one", "first", "second"]}
    tapfile(session).write_bytes(second)  # and so did this one
    edit(session, lambda d: d["notes"].append("third") or d.update(counter=3))
    assert session.tapfile.extra == {"counter": 3, "notes": ["one", "first", "second", "third"]}


def test_an_operation_of_a_later_version_does_not_stop_imports(session):
    head = session.state.log.head()
    stamp = {**session.state.peek().document["tapstore"], "rev": head.n + 1, "write_id": "later"}
    content = format.render({**session.state.peek().document, "tapstore": stamp}, fmt="json")
    later = {"op": "teleport", "id": "t1", "where": "elsewhere"}
    before = read(session)
    session.state.log.commit(
        head, "later", content, {"at": stamp["at"], "operations": [later], "effects": []}
    )
    before["counter"] = 5
    write(session, before)
    assert session.tapfile.extra["counter"] == 5


def test_an_old_copy_does_not_undo_an_edit_whose_importer_died(session):
    old = read(session)
    edit(session, lambda d: d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.extra["counter"] == 1
    tapfile(session).write_bytes(first)
    old["notes"].append("late")
    write(session, old)
    assert session.tapfile.extra == {"counter": 1, "notes": ["one", "late"]}


def test_an_edit_on_top_of_an_old_copy_whose_importer_died_is_applied_once(session):
    old = read(session)
    edit(session, lambda d: d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.extra["counter"] == 1
    tapfile(session).write_bytes(first)
    old["notes"].append("late")
    write(session, old)
    late = tapfile(session).read_bytes()
    assert session.tapfile.extra["notes"] == ["one", "late"]
    tapfile(session).write_bytes(late)
    edit(session, lambda d: d["notes"].append("later"))
    assert session.tapfile.extra == {"counter": 1, "notes": ["one", "late", "later"]}


def test_an_old_copy_is_merged_although_others_changed_what_it_never_had(session):
    old = read(session)
    third = {"role": "third", "status": "pending"}
    edit(session, lambda d: d["participants"].append(third) or d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.roles() == ("coder", "reviewer", "third")
    tapfile(session).write_bytes(first)
    edit(session, lambda d: d["participants"][2].update(model="m"))
    second = tapfile(session).read_bytes()
    assert session.tapfile.slots("third")[0].extra["model"] == "m"
    tapfile(session).write_bytes(second)
    old["notes"].append("late")
    write(session, old)
    age(session)  # what lacks an entry may be half-written
    assert session.tapfile.extra["notes"] == ["one", "late"]
    assert session.tapfile.roles() == ("coder", "reviewer", "third")


def test_an_old_copy_that_agrees_by_chance_is_a_conflict(session):
    old = read(session)
    edit(session, lambda d: d["notes"].append("first") or d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.extra["counter"] == 1
    tapfile(session).write_bytes(first)
    old["notes"].append("late")
    old["counter"] = 1
    write(session, old)
    age(session)
    assert session.tapfile.extra == {"counter": 1, "notes": ["one", "first"]}
    assert "can't be told" in parked(session)[0]["reason"]


def test_an_edit_that_undoes_half_of_one_whose_importer_died_is_set_aside(session):
    edit(session, lambda d: d["notes"].append("first") or d.update(counter=1))
    first = tapfile(session).read_bytes()
    assert session.tapfile.extra["counter"] == 1
    tapfile(session).write_bytes(first)
    edit(session, lambda d: d.update(counter=0))
    age(session)
    assert session.tapfile.extra == {"counter": 1, "notes": ["one", "first"]}
    assert "can't be told" in parked(session)[0]["reason"]


def test_a_copy_that_agrees_with_an_edit_of_another_revision_is_not_made_from_that(session):
    one = read(session)
    session.set_phase("two")
    two = read(session)
    one["counter"] = 5
    write(session, one)
    assert session.tapfile.extra["counter"] == 5
    two["counter"] = 5
    two["notes"].append("late")
    write(session, two)
    assert session.tapfile.extra == {"counter": 5, "notes": ["one"]}
    assert "counter was changed" in parked(session)[0]["reason"]


def test_what_is_read_after_the_lock_was_broken_is_left_to_who_has_it(session):
    lock = Path(session.store.local_path(".tap/locks/tapfile.lock"))
    broken = []

    def breaking(key, **options):
        if key == ".tap/Tapfile" and lock.exists() and not broken:
            lock.unlink()  # as if we had been stopped for long here
            lock.touch()
            broken.append(key)
            edit(session, lambda d: d.update(counter=5))  # and it is not done yet
        return get(key, **options)

    store = session.state._view._store
    get, store.get = store.get, breaking
    session.state.publish()
    assert broken
    assert session.state.peek().tapfile.extra["counter"] == 0
    assert read(session)["counter"] == 5
    lock.unlink()
    assert session.tapfile.extra["counter"] == 5


def test_the_view_of_a_ghost_is_published_over_at_once(tmp_path):
    with tapstore.create(str(tmp_path / "old"), roles=["coder"], phase="old") as old:
        old.set_phase("ghost")
        ghost = tapfile(old).read_bytes()
    with tapstore.create(str(tmp_path / "new"), roles=["coder"], phase="new") as new:
        tapfile(new).write_bytes(ghost)
        assert new.phase == "new"
        assert read(new)["current_phase"] == "new"


def test_commits_go_on_while_a_dead_program_holds_the_lock(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"], phase="start") as session:
        lock = tmp_path / ".tap" / "locks" / "tapfile.lock"
        lock.touch()
        before = (tmp_path / ".tap" / "Tapfile").read_bytes()
        session.set_phase("next")
        assert session.phase == "next"
        assert (tmp_path / ".tap" / "Tapfile").read_bytes() == before
        lock.unlink()
        assert session.phase == "next"
        assert read(session)["current_phase"] == "next"


def test_the_session_log_has_each_commit_once_in_order(session):
    for number in range(5):
        session.set_phase(f"p{number}")
    with open(session.store.local_path(".tap/session.log")) as file:
        assert [json.loads(line)["rev"] for line in file] == list(range(1, 7))


def test_a_removed_session_log_is_written_again(session):
    path = session.store.local_path(".tap/session.log")
    session.set_phase("a")
    os.unlink(path)
    session.set_phase("b")
    with open(path) as file:
        assert [json.loads(line)["rev"] for line in file] == [1, 2, 3]


def test_a_torn_line_in_the_session_log_is_survived(session):
    path = session.store.local_path(".tap/session.log")
    with open(path, "a") as file:
        file.write('{"rev":2,"wri')
    session.set_phase("a")
    lines = Path(path).read_text().splitlines()
    assert json.loads(lines[-1])["rev"] == 2


def test_a_committed_session_opens_and_verifies_in_another_clone(session, tmp_path):
    import subprocess

    from tapstore.sessions import history

    session.set_phase("a")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    clone = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "-q", str(tmp_path), str(clone)], check=True)
    with tapstore.open(str(clone)) as other:
        assert other.phase == "a"
        assert list(history.verify(other.state.log)) == []
        other.set_phase("b")
        assert other.phase == "b"
