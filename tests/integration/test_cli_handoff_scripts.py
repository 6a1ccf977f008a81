"""Agents that know nothing but the original scripts' names pass work along a chain."""

import os
import signal
import stat
import subprocess
import time

import pytest

from tests.integration import swarm_chain
from tests.integration.cli_calls import call, ok
from tests.integration.swarm_chain import run_script


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    ok("handoff", "install-scripts", str(folder))
    return folder


@pytest.fixture
def swarm(tmp_path):
    return swarm_chain.make(tmp_path / "project")


class Agent:
    """One role, which only has the scripts."""

    def __init__(self, swarm, scripts, role):
        self.folder = swarm.worktree(role)
        self._scripts = scripts
        self._role = role

    def run(self, script, *arguments):
        return run_script(
            self._scripts / script, *arguments, folder=self.folder, SWARMFORGE_ROLE=self._role
        )

    def send(self, **headers):
        draft = self.folder / "draft.txt"
        draft.write_text("".join(f"{name}: {value}\n" for name, value in headers.items()))
        return self.run("swarm_handoff.sh", "draft.txt")


@pytest.fixture
def agents(swarm, scripts):
    return {role: Agent(swarm, scripts, role) for role in swarm.roles}


def test_the_whole_loop_of_a_chain_of_four_roles(swarm, agents):
    specifier, coder, refactorer, architect = agents.values()

    # The specifier sends two pieces of work, the second one more urgent.
    for task, priority in (("cave", "50"), ("bats", "10")):
        commit = swarm.commit("specifier", task)
        sent = specifier.send(
            type="git_handoff", to="coder", priority=priority, task=task, commit=commit
        )
        assert (sent.status, sent.err) == (0, "")
        assert sent.out.startswith(f"HANDOFF QUEUED: {swarm.handoffs('specifier')}/outbox/")
        assert not (specifier.folder / "draft.txt").exists()

    # The coder gets the urgent one first, gets it again after a restart, and is led to the next.
    taken = coder.run("ready_for_next.sh")
    (name,) = swarm.names("coder", "inbox", "in_process")
    assert taken.lines == [
        f"TASK: {swarm.handoffs('coder')}/inbox/in_process/{name}",
        "FROM: specifier",
        "TYPE: git_handoff",
        "PRIORITY: 10",
        "TASK_NAME: bats",
        "PAYLOAD:",
        "Re-read your role and constitution.",
        "",
        f"merge_and_process specifier {commit}",
    ]
    assert coder.run("ready_for_next.sh").out == taken.out
    for task in ("bats", "cave"):
        coder.send(
            type="git_handoff",
            to="refactorer",
            priority="30",
            task=task,
            commit=swarm.commit("coder", task),
        )
        finished = coder.run("done_with_current.sh")
        assert finished.status == 0
        assert finished.lines[0].startswith(f"COMPLETED: {swarm.handoffs('coder')}/inbox/completed")
    assert finished.lines[1:] == ["NO_TASK"]
    assert len(swarm.names("coder", "inbox", "completed")) == 2

    # The refactorer hands each on; the architect takes all of one priority as a batch.
    assert refactorer.run("ready_for_next_task.sh").lines[4] == "TASK_NAME: bats"
    for task in ("bats", "cave"):
        refactorer.send(
            type="git_handoff",
            to="architect",
            priority="30",
            task=task,
            commit=swarm.commit("refactorer", task),
        )
        refactorer.run("done_with_current_task.sh")
    specifier.send(type="note", to="architect", priority="70", message="mind the bats")

    batch = architect.run("ready_for_next.sh")
    (folder,) = swarm.names("architect", "inbox", "in_process")
    assert folder.startswith("batch_")
    assert batch.lines[:3] == [
        f"BATCH: {swarm.handoffs('architect')}/inbox/in_process/{folder}",
        "COUNT: 2",
        "PRIORITY: 30",
    ]
    assert batch.lines[3:5] == ["", "BATCH_ITEM: 1"]
    assert [line for line in batch.lines if line.startswith("TASK_NAME")] == [
        "TASK_NAME: bats",
        "TASK_NAME: cave",
    ]
    finished = architect.run("done_with_current.sh")
    words = [line.split(":")[0] for line in finished.lines]
    assert words[:3] == ["COMPLETED", "COMPLETED", "COMPLETED_BATCH"]
    assert words[3:6] == ["BATCH", "COUNT", "PRIORITY"]
    assert finished.lines[-1] == "mind the bats"

    # The end of the chain goes to several.
    architect.send(
        type="git_handoff",
        to="specifier,coder,refactorer",
        priority="00",
        task="cave",
        commit=swarm.commit("architect"),
    )
    assert architect.run("done_with_current_batch.sh").lines[-1] == "NO_TASK"
    for agent in (specifier, coder, refactorer):
        assert "TASK_NAME: cave" in agent.run("ready_for_next.sh").lines
        assert agent.run("done_with_current.sh").lines[-1] == "NO_TASK"
    for role in swarm.roles:
        assert swarm.names(role, "inbox", "new") == []
        assert swarm.names(role, "inbox", "in_process") == []


# Exit codes and streams


def test_with_nothing_to_do_ready_says_so_and_succeeds(agents):
    ran = agents["coder"].run("ready_for_next.sh")
    assert (ran.status, ran.out, ran.err) == (0, "NO_TASK\n", "")


@pytest.mark.parametrize(
    ("role", "script", "keyword"),
    [
        ("coder", "done_with_current.sh", "NO_CURRENT_TASK"),
        ("architect", "done_with_current.sh", "NO_CURRENT_BATCH"),
        ("architect", "done_with_current_task.sh", "NO_CURRENT_TASK"),
        ("coder", "done_with_current_batch.sh", "NO_CURRENT_BATCH"),
    ],
)
def test_with_nothing_in_process_done_exits_with_1(agents, role, script, keyword):
    ran = agents[role].run(script)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(keyword)


@pytest.mark.parametrize(
    ("held_as", "script", "keyword"),
    [
        ("batch", "ready_for_next_task.sh", "TASK_IN_PROCESS_IS_BATCH: "),
        ("batch", "done_with_current_task.sh", "CURRENT_WORK_IS_BATCH: "),
        ("task", "ready_for_next_batch.sh", "TASK_IN_PROCESS_IS_SINGLE: "),
        ("task", "done_with_current_batch.sh", "CURRENT_WORK_IS_SINGLE_TASK: "),
    ],
)
def test_work_of_the_other_shape_exits_with_2_and_names_it(swarm, agents, held_as, script, keyword):
    agents["specifier"].send(type="note", to="coder", priority="50", message="hello")
    agents["coder"].run(f"ready_for_next_{held_as}.sh")
    (held,) = swarm.names("coder", "inbox", "in_process")
    ran = agents["coder"].run(script)
    assert (ran.status, ran.out) == (2, "")
    keyword_line, *places = ran.err.splitlines()
    assert keyword_line.startswith(keyword)
    assert f"- {swarm.handoffs('coder')}/inbox/in_process/{held}" in places
    # What it says to do is the way out.
    assert f"`tapstore handoff done --mode {held_as}`" in keyword_line
    assert f"done_with_current_{held_as}.sh" in keyword_line
    assert agents["coder"].run(f"done_with_current_{held_as}.sh").status == 0


def test_a_mode_that_is_none_exits_with_2(swarm, agents):
    swarm.write_roles({**swarm.roles, "coder": "sometimes"})
    ran = agents["coder"].run("ready_for_next.sh")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("INVALID_RECEIVE_MODE: ")


def test_an_invalid_draft_exits_with_2_keeps_the_file_and_lists_all_faults(swarm, agents):
    ran = agents["coder"].send(type="note", to="nobody", priority="urgent", body="x")
    assert (ran.status, ran.out) == (2, "")
    heading, empty, errors, *rest = ran.err.splitlines()
    assert (heading, empty, errors) == ("HANDOFF INVALID: draft.txt", "", "Errors:")
    assert len([line for line in rest if line.startswith("- ")]) == 4
    assert "message: <one line, max 80 chars>" in rest
    assert (agents["coder"].folder / "draft.txt").exists()
    assert not swarm.handoffs("coder").exists()


def test_without_a_draft_the_forms_of_drafts_are_shown(swarm, scripts):
    """Agents that have forgotten them look here; no role is needed for that."""
    ran = run_script(scripts / "swarm_handoff.sh", folder=swarm.worktree("coder"))
    assert (ran.status, ran.out) == (1, "")
    usage, empty, heading, *_ = lines = ran.err.splitlines()
    assert usage == "Usage: swarm_handoff.sh <draft-file>"
    assert (empty, heading) == ("", "Draft formats:")
    for line in (
        "type: git_handoff",
        "task: <short-stable-task-name>",
        "commit: <10-char-commit-abbrev>",
        "type: note",
        "message: <one line, max 80 chars>",
    ):
        assert line in lines


@pytest.mark.parametrize("script", ["handoffd", "handoffd.bb", "stop_handoff_daemon.sh"])
def test_a_daemon_is_told_its_project(swarm, scripts, script):
    ran = run_script(scripts / script, folder=swarm.project)
    assert (ran.status, ran.out, ran.err) == (1, "", f"Usage: {script} <project-root>\n")


@pytest.mark.parametrize("arguments", [[], ["missing.txt"], ["."]])
def test_no_draft_exits_with_1(agents, arguments):
    ran = agents["coder"].run("swarm_handoff.sh", *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err


@pytest.mark.parametrize(
    "script", ["swarm_handoff.sh", "ready_for_next.sh", "done_with_current.sh"]
)
@pytest.mark.parametrize("role", [None, "stranger"])
def test_no_role_or_an_unknown_one_exits_with_1(swarm, scripts, script, role):
    (swarm.worktree("coder") / "draft.txt").write_text("type: note\n")
    arguments = ["draft.txt"] if script == "swarm_handoff.sh" else []
    environment = {} if role is None else {"SWARMFORGE_ROLE": role}
    ran = run_script(scripts / script, *arguments, folder=swarm.worktree("coder"), **environment)
    assert (ran.status, ran.out) == (1, "")
    assert "coder" in ran.err


def test_scripts_of_a_swarm_use_it_even_where_a_session_is_named(swarm, scripts, tmp_path):
    ok("init", "-w", str(tmp_path / "session"), "-r", "coder")
    ran = run_script(
        scripts / "ready_for_next.sh",
        folder=swarm.worktree("coder"),
        SWARMFORGE_ROLE="coder",
        TAPSTORE_URL=str(tmp_path / "session"),
    )
    assert ran.out == "NO_TASK\n"
    assert (swarm.handoffs("coder") / "inbox" / "new").is_dir()


# The daemon


def test_the_daemon_delivers_what_an_original_script_queued_until_it_is_stopped(swarm, scripts):
    outbox = swarm.handoffs("specifier") / "outbox"
    outbox.mkdir(parents=True)
    name = "50_20260615T140531Z_000001_from_specifier_to_coder.handoff"
    text = (
        "id: 20260615T140531Z_000001_from_specifier\nfrom: specifier\nto: coder\npriority: 50\n"
        "type: note\nmessage: hello\ncreated_at: 2026-06-15T14:05:31Z\n\n"
        "Re-read your role and constitution.\n\nhello\n"
    )
    daemon = subprocess.Popen(
        [scripts / "handoffd.bb", swarm.project],
        env=swarm_chain.without_tapstore(),
        stdout=subprocess.PIPE,
        text=True,
    )
    pid_file = swarm.project / ".swarmforge" / "daemon" / "handoffd.pid"
    try:
        until(pid_file.exists)
        assert pid_file.read_text() == f"{daemon.pid}\n"
        (outbox / name).write_text(text)
        until(lambda: (swarm.handoffs("coder") / "inbox" / "new" / name).exists())
        until(lambda: (swarm.handoffs("specifier") / "sent" / name).exists())
        stopped = run_script(
            scripts / "stop_handoff_daemon.sh", str(swarm.project), folder=swarm.project
        )
        assert (stopped.status, stopped.err) == (0, "")
        out, _ = daemon.communicate(timeout=10)
    finally:
        daemon.kill()
        daemon.wait()
    assert daemon.returncode == 0
    assert out == f"{name}: delivered to coder\n"
    assert not pid_file.exists()
    assert not (pid_file.parent / "stop").exists()


def test_the_daemon_ends_cleanly_on_sigterm(swarm, scripts):
    with subprocess.Popen(
        [scripts / "handoffd", swarm.project], env=swarm_chain.without_tapstore()
    ) as daemon:
        pid_file = swarm.project / ".swarmforge" / "daemon" / "handoffd.pid"
        until(pid_file.exists)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(10) == 0
    assert not pid_file.exists()


def test_without_a_daemon_there_is_nothing_to_stop(swarm, scripts):
    ran = run_script(scripts / "stop_handoff_daemon.sh", str(swarm.project), folder=swarm.project)
    assert (ran.status, ran.out) == (0, "no daemon was running\n")


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Installing


def test_the_scripts_can_be_executed(scripts):
    for path in scripts.iterdir():
        assert path.stat().st_mode & stat.S_IXUSR
        assert path.read_text().startswith("#!/bin/sh\n")


def test_installing_again_replaces_what_was_installed(tmp_path):
    ok("handoff", "install-scripts", str(tmp_path))
    first = sorted(p.name for p in tmp_path.iterdir())
    ok("handoff", "install-scripts", str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == first


@pytest.mark.parametrize("foreign", ["file", "link"])
def test_a_script_of_somebody_else_is_not_replaced(tmp_path, foreign):
    theirs = tmp_path / "ready_for_next.sh"
    if foreign == "file":
        theirs.write_text("#!/bin/sh\necho theirs\n")
    else:
        theirs.symlink_to(tmp_path / "elsewhere")
    called = call("handoff", "install-scripts", str(tmp_path))
    assert called.status == 4
    assert "ready_for_next.sh" in called.err
    assert "--force" in called.err
    assert os.listdir(tmp_path) == ["ready_for_next.sh"]
    ok("handoff", "install-scripts", "--force", str(tmp_path))
    assert "tapstore" in theirs.read_text()
    assert not theirs.is_symlink()


def test_scripts_for_a_session_use_the_one_that_the_environment_names(tmp_path):
    ok("init", "-w", str(tmp_path / "session"), "-r", "coder", "-r", "reviewer")
    folder = tmp_path / "scripts"
    ok("handoff", "install-scripts", "--session", str(folder))
    assert not (folder / "handoffd").exists()
    (tmp_path / "draft").write_text("type: note\nto: reviewer\npriority: 10\nmessage: hello\n")
    environment = {"TAPSTORE_URL": str(tmp_path / "session")}
    sent = run_script(
        folder / "swarm_handoff.sh", "draft", folder=tmp_path, TAPSTORE_ROLE="coder", **environment
    )
    assert sent.out.startswith("HANDOFF QUEUED: handoffs/")
    taken = run_script(
        folder / "ready_for_next.sh", folder=tmp_path, TAPSTORE_ROLE="reviewer", **environment
    )
    assert taken.lines[-1] == "hello"
