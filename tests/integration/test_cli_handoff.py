"""`tapstore handoff` in a session and in a swarm: what is found, filled in, refused and printed."""

import json
import os
from unittest.mock import Mock

import pytest

from tapstore.handoffs.mailbox import MailboxStateError
from tapstore.handoffs.swarm.mailbox import SwarmMailbox
from tests.integration import swarm_chain
from tests.integration.cli_calls import call, ok
from tests.integration.swarm_chain import git

ROLES = ("coder", "cleaner", "architect")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("TAPSTORE_", "SWARMFORGE_")):
            monkeypatch.delenv(name)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A session in a repository with one commit, which is the present folder."""
    folder = tmp_path / "session"
    ok("init", "-w", str(folder), "--id", "s", *(f"--role={role}" for role in ROLES))
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    git(tmp_path / "repository", "init", "-q")
    git(tmp_path / "repository", "commit", "-q", "--allow-empty", "-m", "one")
    monkeypatch.setenv("TAPSTORE_URL", str(folder))
    return folder


@pytest.fixture
def swarm(tmp_path, monkeypatch):
    made = swarm_chain.make(tmp_path / "project", {"coder": "task", "cleaner": "batch"})
    monkeypatch.chdir(made.worktree("coder"))
    return made


def head(revision="HEAD"):
    return git(os.curdir, "rev-parse", "--short=10", revision)


def handoff(role, *arguments, **options):
    return ok("handoff", *arguments, "--role", role, "--agent", f"{role}-1", **options)


def taken(role):
    """What a role takes next."""
    return handoff(role, "next", "--json").json["items"]


# Sending without a draft


@pytest.mark.usefixtures("session")
def test_a_commit_is_handed_on_with_nothing_but_role_and_task():
    handoff("coder", "send", "--to", "cleaner", "--task", "cave")
    (item,) = taken("cleaner")
    assert item["type"] == "git_handoff"
    assert (item["task"], item["priority"]) == ("cave", 50)
    assert item["headers"]["commit"] == head()
    assert item["body"].endswith(f"merge_and_process coder {head()}\n")


@pytest.mark.usefixtures("session")
def test_the_task_that_the_role_is_working_on_is_filled_in():
    handoff("coder", "send", "--to", "cleaner", "--task", "cave")
    taken("cleaner")
    handoff("cleaner", "send", "--to", "architect")
    assert taken("architect")[0]["task"] == "cave"


@pytest.mark.usefixtures("session")
def test_without_a_task_in_process_the_missing_one_is_named():
    called = call("handoff", "send", "--to", "cleaner", "--role", "coder")
    assert called.status == 2
    assert "Missing required header 'task' for git_handoff." in called.err


@pytest.mark.usefixtures("session")
def test_of_two_tasks_in_process_none_is_filled_in():
    for task in ("cave", "bats"):
        handoff("coder", "send", "--to", "cleaner", "--task", task)
    assert len(handoff("cleaner", "next", "--mode", "batch", "--json").json["items"]) == 2
    called = call("handoff", "send", "--to", "architect", "--role", "cleaner")
    assert "Missing required header 'task'" in called.err


@pytest.mark.usefixtures("session")
def test_any_name_of_a_commit_will_do():
    first = head()
    git(os.curdir, "branch", "old")
    git(os.curdir, "commit", "-q", "--allow-empty", "-m", "two")
    handoff("coder", "send", "--to", "cleaner", "--task", "t", "--commit", "old")
    assert taken("cleaner")[0]["headers"]["commit"] == first != head()


@pytest.mark.usefixtures("session")
def test_a_name_of_no_commit_is_a_malformed_call():
    called = call("handoff", "send", "--to=cleaner", "--task=t", "--commit=nope", "--role=coder")
    assert called.status == 2
    assert "'nope' names no commit" in called.err


@pytest.mark.usefixtures("session")
def test_outside_of_a_repository_it_is_said_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = call("handoff", "send", "--to=cleaner", "--task=t", "--role=coder")
    assert called.status == 9
    assert called.err.startswith(f"error: {tmp_path}: git rev-parse failed: ")
    assert "send a note with --message" in called.err


@pytest.mark.usefixtures("session")
def test_a_message_makes_a_note_for_several():
    handoff("coder", "send", "--to", "cleaner,architect", "--message", "look", "--priority", "07")
    for role in ("cleaner", "architect"):
        (item,) = taken(role)
        assert (item["type"], item["priority"]) == ("note", 7)
        assert item["to"] == ["cleaner", "architect"]


@pytest.mark.usefixtures("session")
def test_to_may_be_given_several_times():
    handoff("coder", "send", "--to", "cleaner", "--to", "architect", "--message", "look")
    assert taken("architect")[0]["to"] == ["cleaner", "architect"]


@pytest.mark.parametrize("value", ["a\npriority: 00", "a\r", "\x1b[2J", "", " "])
@pytest.mark.usefixtures("session")
def test_a_value_can_not_become_a_line_of_its_own(value):
    called = call("handoff", "send", "--to", "cleaner", "--message", value, "--role", "coder")
    assert called.status == 2
    assert taken("cleaner") == []


@pytest.mark.usefixtures("session")
def test_all_faults_of_what_is_given_are_told():
    called = call(
        "handoff", "send", "--to", "cleaner,nobody,cleaner", "--priority", "7", "--message",
        "x" * 81, "--set", "colour=red", "--role", "coder", "--json",
    )  # fmt: skip
    assert called.status == 2
    reasons = [fault["reason"] for fault in called.error["faults"]]
    assert len(reasons) == 5
    assert called.error["keyword"] == "HANDOFF INVALID"


def test_who_sends_is_told_why_a_message_is_not_delivered(half_away):
    told = handoff("coder", "send", "--to", "away,cleaner", "--message", "hello")
    assert told.err.startswith("not delivered yet to away: away: the worktree ")
    assert f"the worktree {half_away.worktree('away')} is not there" in told.err


def test_who_sends_is_told_that_a_message_can_not_be_delivered(swarm):
    tree = swarm.worktree("coder") / ".swarmforge"
    tree.mkdir()
    # The launcher has copied the roles, and the swarm has one role less by now.
    (tree / "roles.tsv").write_bytes((swarm.project / ".swarmforge" / "roles.tsv").read_bytes())
    swarm.write_roles({"coder": "task"})
    os.utime(swarm.project / ".swarmforge" / "roles.tsv", (0, 0))
    told = handoff("coder", "send", "--to", "cleaner", "--message", "hello")
    assert told.err.startswith("failed: unknown recipient 'cleaner'; nobody got it. ")
    assert "`tapstore handoff retry " in told.err


@pytest.mark.usefixtures("session")
def test_an_answer_names_what_the_role_is_working_on():
    sent = handoff("coder", "send", "--to", "cleaner", "--message", "well?", "--json").json
    taken("cleaner")
    handoff("cleaner", "send", "--to", "coder", "--message", "yes", "--reply-to", "current",
            "--correlation-id", "cave-7")  # fmt: skip
    told = handoff("coder", "next").out.splitlines()
    assert f"REPLY_TO: {sent['id']}" in told
    assert "CORRELATION_ID: cave-7" in told


@pytest.mark.usefixtures("session")
def test_an_answer_to_nothing_is_refused():
    called = call("handoff", "send", "--to=coder", "--message=x", "--reply-to=current",
                  "--role=cleaner")  # fmt: skip
    assert called.status == 2
    assert "working on 0 messages" in called.err


@pytest.mark.usefixtures("session")
def test_an_artifact_goes_along_with_its_checksum():
    ok("publish", "-", "--as", "a b.txt", stdin=b"hello")
    (artifact,) = ok("artifacts", "--json").json["artifacts"]
    handoff("coder", "send", "--to", "cleaner", "--message", "see", "--artifact", "a b.txt")
    told = handoff("cleaner", "next").out.splitlines()
    assert f"ARTIFACTS: a%20b.txt@{artifact['checksum']}" in told


@pytest.mark.usefixtures("session")
def test_an_artifact_that_is_not_there_is_not_sent():
    called = call("handoff", "send", "--to=cleaner", "--message=x", "--artifact=no", "--role=coder")
    assert called.status == 6
    assert taken("cleaner") == []


@pytest.mark.usefixtures("session")
def test_headers_of_declared_types_are_set():
    review = {
        "name": "review",
        "headers": {"decision": {"enum": ["yes", "no"]}},
        "required": ["decision"],
        "body": "{from} says {decision}",
    }
    ok("handoff", "settings", "-", stdin=json.dumps({"types": [review]}).encode())
    handoff("coder", "send", "--to", "cleaner", "--type", "review", "--set", "decision=yes")
    (item,) = taken("cleaner")
    assert (item["type"], item["body"]) == ("review", "coder says yes\n")


@pytest.mark.usefixtures("session")
def test_nothing_to_send_shows_how():
    called = call("handoff", "send", "--role", "coder")
    assert called.status == 2
    assert "--to ROLE --message TEXT" in called.err


# Drafts

DRAFT = "type: note\nto: cleaner\npriority: 10\nmessage: look\n"


@pytest.mark.usefixtures("session")
def test_a_draft_is_removed_when_it_is_queued(tmp_path):
    draft = tmp_path / "draft"
    draft.write_text(DRAFT)
    assert handoff("coder", "send", str(draft)).out.startswith("HANDOFF QUEUED: ")
    assert not draft.exists()
    assert taken("cleaner")[0]["body"].endswith("look\n")


@pytest.mark.usefixtures("session")
def test_a_refused_draft_stays(tmp_path):
    draft = tmp_path / "draft"
    draft.write_text(DRAFT + "colour: red\n")
    called = call("handoff", "send", str(draft), "--role", "coder")
    assert called.status == 2
    first, *_ = called.err.splitlines()
    assert first == f"HANDOFF INVALID: {draft}"
    assert "- Line 5: unknown header 'colour'" in called.err
    assert draft.read_text() == DRAFT + "colour: red\n"
    assert taken("cleaner") == []


@pytest.mark.usefixtures("session")
def test_a_draft_comes_from_standard_input():
    handoff("coder", "send", "-", stdin=DRAFT.encode())
    assert len(taken("cleaner")) == 1


@pytest.mark.usefixtures("session")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a file in /proc")
def test_a_draft_that_can_not_be_removed_is_sent_all_the_same(tmp_path):
    (tmp_path / "draft").write_text(DRAFT)
    with (tmp_path / "draft").open() as stream:
        called = handoff("coder", "send", f"/proc/self/fd/{stream.fileno()}")
    assert "the message is queued, but" in called.err
    assert len(taken("cleaner")) == 1


@pytest.mark.usefixtures("session")
def test_a_pipe_is_no_draft_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    called = call("handoff", "send", str(tmp_path / "pipe"), "--role", "coder")
    assert called.status == 1
    assert "no regular file" in called.err


@pytest.mark.usefixtures("session")
def test_a_huge_draft_is_refused_without_being_read_whole(tmp_path):
    draft = tmp_path / "draft"
    with draft.open("wb") as stream:
        stream.truncate(1 << 40)
    assert call("handoff", "send", str(draft), "--role", "coder").status == 2


@pytest.mark.usefixtures("session")
def test_a_draft_and_options_exclude_each_other(tmp_path):
    draft = tmp_path / "draft"
    draft.write_text(DRAFT)
    called = call("handoff", "send", str(draft), "--priority", "00", "--role", "coder")
    assert called.status == 2
    assert draft.exists()


# Taking and completing


@pytest.mark.usefixtures("session")
def test_next_and_done_need_no_options_where_the_environment_names_the_role():
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    environment = {"TAPSTORE_ROLE": "cleaner", "TAPSTORE_AGENT": "c1"}
    first = ok("handoff", "next", env=environment)
    assert first.out.startswith("TASK: ")
    assert ok("handoff", "next", env=environment).out == first.out
    assert ok("handoff", "done", env=environment).out.splitlines()[1:] == ["NO_TASK"]


@pytest.mark.usefixtures("session")
def test_the_role_of_tapstore_comes_before_that_of_the_scripts():
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    environment = {"TAPSTORE_ROLE": "cleaner", "SWARMFORGE_ROLE": "architect"}
    assert ok("handoff", "next", env=environment).out.startswith("TASK: ")
    assert ok("handoff", "next", env={"SWARMFORGE_ROLE": "architect"}).out == "NO_TASK\n"


@pytest.mark.usefixtures("session")
def test_done_leads_to_the_next():
    for message in ("one", "two"):
        handoff("coder", "send", "--to", "cleaner", "--message", message)
    taken("cleaner")
    done = handoff("cleaner", "done", "--json").json
    assert [item["attempt"] for item in done["completed"]["items"]] == [1]
    assert done["next"]["items"][0]["headers"]["message"] == "two"


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_what_was_completed_is_told_even_if_what_comes_next_is_refused(swarm, monkeypatch, how):
    ok("handoff", "send", "--to", "coder", "--message", "one", "--role", "coder")
    ok("handoff", "next", "--role", "coder")
    error = MailboxStateError("AMBIGUOUS_TASK_STATE", "two are in process", places=["a", "b"])
    monkeypatch.setattr(SwarmMailbox, "next", Mock(side_effect=error))
    called = call("handoff", "done", "--role", "coder", *how)
    (name,) = swarm.names("coder", "inbox", "completed")
    assert called.status == 2
    if how:
        assert called.json["next"] is None
        assert called.json["completed"]["items"][0]["place"].endswith(name)
        assert called.error["places"] == ["a", "b"]
    else:
        assert called.out.startswith("COMPLETED: ")
        assert called.err == "AMBIGUOUS_TASK_STATE: two are in process\n- a\n- b\n"


@pytest.mark.usefixtures("session")
def test_a_lease_that_has_passed_is_told_to_who_comes_late():
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    ok("handoff", "next", "--role=cleaner", "--agent=slow", "--lease=1s")
    second = ok("handoff", "next", "--role=cleaner", "--agent=fast", "--wait=20s", "--json").json[
        "items"
    ]
    assert [item["attempt"] for item in second] == [2]
    ok("handoff", "done", "--role=cleaner", "--agent=fast")
    late = call("handoff", "done", "--role=cleaner", "--agent=slow")
    assert late.status in (1, 5)
    assert late.out == ""


@pytest.mark.usefixtures("swarm")
def test_a_lease_is_for_sessions_alone():
    called = call("handoff", "next", "--role", "coder", "--lease", "5m")
    assert called.status == 2
    assert "has no lease" in called.err


@pytest.mark.parametrize("command", ["renew", "release"])
@pytest.mark.usefixtures("swarm")
def test_giving_back_and_renewing_are_for_sessions_alone(command):
    called = call("handoff", command, "--role", "coder")
    assert called.status == 2
    assert "for sessions" in called.err


@pytest.mark.usefixtures("session")
def test_what_was_given_back_is_taken_by_another_who_sees_why():
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    taken("cleaner")
    released = handoff("cleaner", "release", "--reason", "no idea")
    assert released.out.startswith("RELEASED: ")
    assert "no idea" in handoff("cleaner", "list").out
    other = ok("handoff", "next", "--role=cleaner", "--agent=other", "--wait=20s").out
    assert "ATTEMPT: 2" in other.splitlines()


@pytest.mark.usefixtures("session")
def test_waiting_in_vain_ends_with_no_task():
    assert handoff("cleaner", "next", "--wait", "50ms").out == "NO_TASK\n"


# Which hand-offs


def test_in_a_swarm_the_swarm_is_meant(swarm):
    ok("handoff", "send", "--to", "coder", "--message", "x", "--role", "coder")
    assert len(swarm.names("coder", "inbox", "new")) == 1


def test_a_session_that_is_named_comes_before_the_swarm_around(swarm, tmp_path):
    ok("init", "-w", str(tmp_path / "session"), "--role", "coder")
    send = ["handoff", "send", "--to", "coder", "--message", "x", "--role", "coder"]
    ok(*send, "-w", str(tmp_path / "session"))
    ok(*send, env={"TAPSTORE_URL": str(tmp_path / "session")})
    assert (
        len(ok("handoff", "list", "-w", str(tmp_path / "session"), "--json").json["entries"]) == 2
    )
    assert not swarm.handoffs("coder").exists()


def test_a_swarm_that_is_named_comes_before_a_session_of_the_environment(swarm, tmp_path):
    ok("init", "-w", str(tmp_path / "session"), "--role", "coder")
    called = ok(
        "handoff", "send", "--to", "coder", "--message", "x", "--role", "coder",
        "--swarm", str(swarm.project), env={"TAPSTORE_URL": str(tmp_path / "session")},
    )  # fmt: skip
    assert str(swarm.project) in called.out


@pytest.mark.usefixtures("swarm")
def test_a_swarm_and_a_session_can_not_both_be_named(tmp_path):
    assert call("handoff", "list", "--swarm", ".", "-w", str(tmp_path)).status == 2


def test_a_folder_without_a_swarm_is_named(tmp_path):
    called = call("handoff", "list", "--swarm", str(tmp_path))
    assert called.status == 6
    assert str(tmp_path) in called.err


def test_with_neither_swarm_nor_session_it_is_said_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = call("handoff", "list")
    assert called.status == 6
    assert "TAPSTORE_URL" in called.err


@pytest.mark.usefixtures("session")
def test_without_a_role_the_roles_are_named():
    called = call("handoff", "next")
    assert called.status == 2
    assert all(role in called.err for role in ROLES)


@pytest.mark.usefixtures("swarm")
def test_without_a_role_in_a_swarm_the_variable_of_the_scripts_is_named():
    called = call("handoff", "next")
    assert called.status == 1
    assert "Set SWARMFORGE_ROLE" in called.err
    assert "cleaner, coder" in called.err


# Looking


@pytest.mark.usefixtures("session")
def test_the_list_is_of_all_roles_or_of_one():
    handoff("coder", "send", "--to", "cleaner,architect", "--message", "look")
    assert len(ok("handoff", "list", "--json").json["entries"]) == 2
    (entry,) = handoff("cleaner", "list", "--json").json["entries"]
    assert (entry["role"], entry["standing"]) == ("cleaner", "delivered")


@pytest.mark.usefixtures("session")
def test_the_list_can_be_of_one_standing():
    for message in ("one", "two"):
        handoff("coder", "send", "--to", "cleaner", "--message", message)
    taken("cleaner")
    (entry,) = ok("handoff", "list", "--standing", "accepted", "--json").json["entries"]
    assert entry["agent"] == "cleaner-1"
    assert ok("handoff", "list", "--standing", "dead").out == "no hand-offs\n"


@pytest.mark.parametrize("where", ["session", "swarm"])
def test_a_message_is_shown_with_what_became_of_each_copy(where, request):
    request.getfixturevalue(where)
    sent = ok("handoff", "send", "--to=coder,cleaner", "--message=x", "--role=coder", "--json").json
    ok("handoff", "next", "--role", "cleaner")
    for wanted in (sent["id"], sent["name"]):
        for whose in (["--role", "coder"], ["--role", "cleaner"], []):
            shown = ok("handoff", "show", wanted, *whose, "--json").json
            assert shown["id"] == sent["id"]
            standings = {r["recipient"]: r["standing"] for r in shown["receipts"]}
            assert standings == {"coder": "delivered", "cleaner": "accepted"}


@pytest.fixture
def half_away(swarm):
    """A swarm with a role that takes batches, whose worktree is not there."""
    swarm.write_roles({"coder": "task", "away": "batch", "cleaner": "batch"})
    return swarm


@pytest.mark.parametrize("command", [("list",), ("prune", "--older-than", "0", "--dry-run")])
@pytest.mark.usefixtures("half_away")
def test_a_role_whose_worktree_is_away_does_not_hide_the_others(command):
    handoff("coder", "send", "--to", "coder,cleaner", "--message", "hello")
    handoff("coder", "next")
    handoff("coder", "done")
    told = ok("handoff", *command)
    assert "_from_coder_to_coder_cleaner.handoff" in told.out
    assert told.err.startswith("warning: away is left out: the worktree of away, ")
    alone = call("handoff", *command, "--role", "away")
    assert alone.status == 6
    assert alone.err.startswith("error: the worktree of away, ")


def test_of_a_swarm_in_which_nobody_can_be_asked_nothing_is_listed(half_away):
    half_away.write_roles({"away": "task"})
    assert call("handoff", "list").status == 6


def test_a_message_is_shown_though_the_worktree_of_a_recipient_is_away(half_away):
    sent = handoff("coder", "send", "--to", "away,cleaner", "--message", "hello", "--json").json
    away, cleaner = ok("handoff", "show", sent["id"], "--json").json["receipts"]
    assert (away["standing"], cleaner["standing"]) == ("queued", "delivered")
    assert f"the worktree {half_away.worktree('away')} is not there" in away["reason"]


def test_a_message_is_shown_though_the_worktree_of_its_sender_is_away(half_away):
    sent = handoff("coder", "send", "--to", "cleaner", "--message", "hello", "--json").json
    half_away.worktree("coder").rename(half_away.project / "moved")
    os.chdir(half_away.project)
    shown = ok("handoff", "show", sent["id"], "--json").json
    assert (shown["headers"]["message"], shown["receipts"]) == ("hello", [])


@pytest.mark.usefixtures("session")
def test_a_shown_message_can_not_steer_the_terminal():
    handoff("coder", "send", "--to", "cleaner", "--message", "a\u202eb\tc")
    told = handoff("cleaner", "next").out
    assert "a\\u202eb\tc" in told


@pytest.mark.parametrize("wanted", ["20260615T140531Z_000042_from_coder", "nothing"])
@pytest.mark.usefixtures("session")
def test_what_is_not_there_can_not_be_shown(wanted):
    assert call("handoff", "show", wanted).status in (2, 6)


def test_what_was_completed_long_ago_is_pruned_and_first_only_named(swarm):
    ok("handoff", "send", "--to", "coder", "--message", "look", "--role", "coder")
    ok("handoff", "next", "--role", "coder")
    ok("handoff", "done", "--role", "coder")
    (name,) = swarm.names("coder", "inbox", "completed")
    prune = ["handoff", "prune", "--older-than"]
    assert ok(*prune, "1d", "--json").json == {"dry_run": False, "removed": []}
    named = ok(*prune, "0", "--dry-run")
    assert f"would remove {swarm.handoffs('coder')}/inbox/completed/{name}\n" in named.out
    assert swarm.names("coder", "inbox", "completed") == [name]
    assert ok(*prune, "0").out == named.out.replace("would remove", "removed")
    assert swarm.names("coder", "inbox", "completed") == []


@pytest.mark.usefixtures("session")
def test_what_a_stopped_worker_might_complete_again_is_not_pruned():
    assert call("handoff", "prune", "--older-than", "1s").status == 3


def test_what_failed_is_queued_again(swarm):
    ok("handoff", "send", "--to", "cleaner", "--message", "x", "--role", "coder")
    # What was written just now may be half of it: a role may still come.
    os.utime(swarm.project / ".swarmforge" / "roles.tsv", (0, 0))
    outbox = swarm.handoffs("coder") / "outbox"
    name = "50_20260615T140531Z_000001_from_coder_to_stranger.handoff"
    (outbox / name).write_text(
        "id: 20260615T140531Z_000001_from_coder\nfrom: coder\nto: stranger\npriority: 50\n"
        "type: note\nmessage: x\ncreated_at: 2026-06-15T14:05:31Z\n\nx\n"
    )
    (told,) = ok("handoff", "deliver", "--json").jsons
    assert "stranger" in told["failed"]
    (entry,) = ok("handoff", "list", "--standing", "failed", "--json").json["entries"]
    assert (entry["name"], entry["role"]) == (name, "coder")
    swarm.write_roles({**swarm.roles, "stranger": "task"})
    git(swarm.project, "worktree", "add", "-q", "-b", "x", str(swarm.worktree("stranger")))
    ok("handoff", "retry", name, "--role", "coder")
    assert swarm.names("stranger", "inbox", "new") == [name]


@pytest.mark.usefixtures("session")
def test_a_dead_letter_is_listed_with_the_reason_and_sent_anew():
    ok("handoff", "settings", "-", stdin=b"lease_seconds: 1\nmax_attempts: 1")
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    taken("cleaner")
    assert ok(
        "handoff", "next", "--role=cleaner", "--agent=other", "--wait=2s"
    ).out == "NO_TASK\n"  # fmt: skip
    (entry,) = ok("handoff", "list", "--standing", "dead", "--json").json["entries"]
    assert entry["role"] == "cleaner"
    assert entry["reason"]
    handoff("cleaner", "retry", entry["name"])
    (item,) = taken("cleaner")
    assert item["headers"]["message"] == "look"


# Settings


@pytest.mark.usefixtures("session")
def test_settings_hold_for_the_next_command():
    ok("handoff", "settings", "-", stdin=b"receive: {cleaner: batch}\nmax_waiting: 1\n")
    shown = ok("handoff", "settings", "--json").json
    assert (shown["receive"], shown["max_waiting"]) == ({"cleaner": "batch"}, 1)
    handoff("coder", "send", "--to", "cleaner", "--message", "look")
    assert handoff("cleaner", "next").out.startswith("BATCH: ")


@pytest.mark.usefixtures("session")
def test_wrong_settings_change_nothing():
    called = call("handoff", "settings", "-", stdin=b"recieve: {cleaner: batch}\n")
    assert called.status == 7
    assert ok("handoff", "settings", "--json").json["receive"] == {}
