"""The daemon of hand-offs as a process: it delivers, wakes, and ends when it is told to."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import tapstore
from tapstore.handoffs.wakeups.daemon import STOP_SECONDS
from tapstore.handoffs.wakeups.notifiers import SENTENCE
from tapstore.sessions import waiting
from tests.integration import swarm_chain
from tests.integration.cli_calls import call, ok
from tests.integration.swarm_chain import git, without_tapstore

TAPSTORE = [sys.executable, "-m", "tapstore"]

RECORD = "import os, sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n')"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    for name in os.environ.keys() - without_tapstore().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def session(tmp_path):
    folder = tmp_path / "session"
    ok("init", "-w", str(folder), "--id", "s", "--role", "coder", "--role", "cleaner")
    return folder


@pytest.fixture
def swarm(tmp_path):
    return swarm_chain.make(tmp_path / "project", {"coder": "task", "cleaner": "task"})


@pytest.fixture
def daemons():
    started = []

    def start(*arguments, folder=None):
        process = subprocess.Popen(
            [*TAPSTORE, "handoff", "deliver", "--watch", *arguments],
            cwd=folder,
            env=without_tapstore(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        # Its first look is over when it says where it delivers.
        assert "delivering in" in process.stderr.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process, number=signal.SIGTERM):
    """What it printed, after a clean end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out, err


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def send(*arguments):
    return ok("handoff", "send", "--role", "coder", "--to", "cleaner", "--message", "x", *arguments)


def recorder(record, *words):
    return f'{sys.executable} -c "{RECORD}" {record} {" ".join(words)}'


def lines(record):
    return record.read_text().splitlines() if record.exists() else []


def in_outbox(swarm, recipient="cleaner", number=1, sender="coder"):
    """Queue a message as the original scripts do, which do not deliver."""
    name = f"50_20260615T140531Z_{number:06}_from_{sender}_to_{recipient}.handoff"
    outbox = swarm.handoffs(sender) / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    (outbox.parent / name).write_text(
        f"id: 20260615T140531Z_{number:06}_from_{sender}\nfrom: {sender}\nto: {recipient}\n"
        "priority: 50\ntype: note\nmessage: x\ncreated_at: 2026-06-15T14:05:31Z\n\nx\n"
    )
    (outbox.parent / name).rename(outbox / name)
    return name


# Waking


def test_mail_that_somebody_else_delivered_wakes_its_recipient(session, daemons, tmp_path):
    record = tmp_path / "record"
    notify = recorder(record, "{role}", "in", "{session}")
    daemon = daemons("-w", str(session), "--notify", notify)
    send("-w", str(session))
    until(lambda: lines(record) == ["cleaner in s"])
    end(daemon)


def test_mail_that_waited_before_the_daemon_began_is_announced(session, daemons, tmp_path):
    record = tmp_path / "record"
    send("-w", str(session))
    end(daemons("-w", str(session), "--notify", recorder(record, "{role}")))
    assert lines(record) in ([], ["cleaner"])
    daemon = daemons("-w", str(session), "--notify", recorder(record, "{role}"))
    until(lambda: "cleaner" in lines(record))
    end(daemon)


def test_mail_that_waits_is_announced_again_until_it_is_taken(session, daemons, tmp_path):
    record = tmp_path / "record"
    daemon = daemons(
        "-w", str(session), "--notify", recorder(record, "{role}"), "--again", "100ms",
        "--interval", "50ms",
    )  # fmt: skip
    send("-w", str(session))
    until(lambda: len(lines(record)) >= 3)
    ok("handoff", "next", "-w", str(session), "--role", "cleaner")
    # It may be on its way; then it is quiet.
    seen = None

    def is_quiet():
        nonlocal seen
        before, seen = seen, len(lines(record))
        time.sleep(0.5)
        return before == seen

    until(is_quiet)
    end(daemon)


def test_what_a_dead_agent_held_is_announced_when_others_may_take_it(session, daemons, tmp_path):
    record = tmp_path / "record"
    ok("handoff", "settings", "-", "-w", str(session), stdin=b"lease_seconds: 1")
    send("-w", str(session))
    ok("handoff", "next", "-w", str(session), "--role", "cleaner")
    notify = recorder(record, "{role}")
    daemon = daemons("-w", str(session), "--notify", notify, "--interval", "50ms")
    until(lambda: lines(record) == ["cleaner"])
    end(daemon)


def test_a_wake_up_that_fails_is_told_and_fails_no_delivery(swarm, daemons):
    failing = f"{sys.executable} -c \"import sys; sys.exit('nobody there')\""
    daemon = daemons("--notify", failing, folder=swarm.project)
    name = in_outbox(swarm)
    until(lambda: (swarm.handoffs("coder") / "sent" / name).exists())
    told = daemon.stderr.readline()
    assert told == (
        f"warning: cleaner was not woken, its mail waits all the same: {sys.executable} exited "
        "with 1: nobody there; tried again in 1 s\n"
    )
    out, _ = end(daemon)
    assert out == f"{name}: delivered to cleaner\n"


def test_without_a_daemon_one_pass_delivers_and_wakes(swarm, tmp_path):
    record = tmp_path / "record"
    names = [in_outbox(swarm, number=number) for number in (1, 2)]
    called = ok(
        "handoff", "deliver", "--swarm", str(swarm.project), "--notify",
        recorder(record, "{role}", "{session}", "{place}"),
    )  # fmt: skip
    assert called.out.splitlines() == [f"{name}: delivered to cleaner" for name in names]
    assert lines(record) == [f"cleaner swarm-cleaner {swarm.project}"]


def test_nobody_is_woken_if_nobody_is_to_be(swarm, tmux):
    in_outbox(swarm)
    ok("handoff", "deliver", "--swarm", str(swarm.project), "--no-notify")
    assert tmux.typed() == ""


@pytest.mark.parametrize("notify", ["", "'", "/nowhere/at/all {role}"])
def test_a_command_that_can_not_be_run_is_refused_before_anything_is_delivered(swarm, notify):
    name = in_outbox(swarm)
    called = call("handoff", "deliver", "--swarm", str(swarm.project), "--notify", notify)
    assert called.status in (2, 127)
    assert (swarm.handoffs("coder") / "outbox" / name).exists()


# tmux


class Tmux:
    def __init__(self, swarm, folder):
        self.folder = folder
        self.command = ["tmux", "-S", str(folder / "s"), "-f", os.devnull]
        subprocess.run(
            [*self.command, "new-session", "-d", "-s", "swarm-cleaner", f"cat > {folder}/typed"],
            check=True,
        )
        (swarm.project / ".swarmforge" / "tmux-socket").write_text(f"{folder}/s\n")
        until((folder / "typed").exists)

    def typed(self):
        return (self.folder / "typed").read_text()


@pytest.fixture
def tmux(swarm, tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    (tmp_path / "tmux").mkdir()
    running = Tmux(swarm, tmp_path / "tmux")
    yield running
    subprocess.run([*running.command, "kill-server"], check=False, capture_output=True)


def test_in_a_swarm_with_a_socket_the_daemon_types_into_tmux(swarm, daemons, tmux):
    daemon = daemons(folder=swarm.project)
    in_outbox(swarm)
    until(lambda: tmux.typed() == f"{SENTENCE}\n\n")
    end(daemon)


def test_without_a_daemon_the_sender_wakes_the_recipient(swarm, tmux):
    send("--swarm", str(swarm.project))
    until(lambda: tmux.typed() == f"{SENTENCE}\n\n")


def test_beside_a_daemon_the_sender_leaves_waking_to_it(swarm, daemons, tmux):
    daemon = daemons("--no-notify", folder=swarm.project)
    send("--swarm", str(swarm.project))
    # Also from the worktree, into which the launcher may have copied the list of roles.
    for name in ("roles.tsv", "tmux-socket"):
        shutil.copy(
            swarm.project / ".swarmforge" / name, swarm.worktree("coder") / ".swarmforge" / name
        )
    send("--swarm", str(swarm.worktree("coder")))
    assert tmux.typed() == ""
    end(daemon)
    send("--swarm", str(swarm.worktree("coder")))
    until(lambda: SENTENCE in tmux.typed())


# Going on, and ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(session, daemons, number):
    end(daemons("-w", str(session)), number)


def test_a_wake_up_that_hangs_does_not_keep_the_daemon_from_ending(session, daemons, tmp_path):
    pid = tmp_path / "pid"
    hang = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    daemon = daemons("-w", str(session), "--notify", shlex.join([sys.executable, "-c", hang]))
    send("-w", str(session))
    until(lambda: pid.exists() and pid.read_text())
    started = time.monotonic()
    end(daemon)
    # Less than who stops a daemon waits for its end.
    assert time.monotonic() - started < STOP_SECONDS
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_several_daemons_deliver_each_message_once(swarm, daemons):
    running = [daemons("--interval", "10ms", folder=swarm.project) for _ in range(2)]
    names = [in_outbox(swarm, number=number) for number in range(1, 31)]
    until(lambda: len(swarm.names("coder", "sent")) == len(names))
    told = [line for daemon in running for line in end(daemon)[0].splitlines()]
    assert swarm.names("cleaner", "inbox", "new") == names
    assert sorted(line for line in told if "delivered to" in line) == [
        f"{name}: delivered to cleaner" for name in names
    ]


def test_when_the_first_daemon_ends_another_takes_its_place(swarm, daemons):
    pid_file = swarm.project / ".swarmforge" / "daemon" / "handoffd.pid"
    first, second = (daemons("--interval", "50ms", folder=swarm.project) for _ in range(2))
    assert pid_file.read_text() == f"{first.pid}\n"
    end(first)
    until(lambda: pid_file.exists() and pid_file.read_text() == f"{second.pid}\n")
    end(second)
    assert not pid_file.exists()


def test_a_role_that_comes_later_gets_its_mail(swarm, daemons):
    daemon = daemons("--interval", "50ms", folder=swarm.project)
    git(swarm.project, "worktree", "add", "-q", "-b", "late", str(swarm.worktree("late")))
    swarm.write_roles({**swarm.roles, "late": "task"})
    name = in_outbox(swarm, "late")
    until(lambda: (swarm.handoffs("late") / "inbox" / "new" / name).exists())
    end(daemon)


def test_a_list_of_roles_that_is_wrong_for_a_moment_is_complained_about(swarm, daemons):
    daemon = daemons("--interval", "50ms", folder=swarm.project)
    roles = swarm.project / ".swarmforge" / "roles.tsv"
    good = roles.read_text()
    roles.write_text("coder\n")
    assert "roles.tsv, line 1" in daemon.stderr.readline()
    roles.write_text(good)
    name = in_outbox(swarm)
    until(lambda: (swarm.handoffs("cleaner") / "inbox" / "new" / name).exists())
    end(daemon)


def test_a_role_whose_worktree_is_away_does_not_hold_up_the_others(swarm, daemons, tmp_path):
    record = tmp_path / "record"
    notify = recorder(record, "{role}")
    daemon = daemons("--interval", "50ms", "--notify", notify, folder=swarm.project)
    swarm.write_roles({"away": "task", **swarm.roles})
    for number in range(1, 4):
        in_outbox(swarm, number=number)
        until(lambda number=number: len(swarm.names("cleaner", "inbox", "new")) == number)
    until(lambda: "cleaner" in lines(record))
    _, err = end(daemon)
    assert err.count("warning: away: ") == 1


def test_one_pass_goes_past_a_role_whose_worktree_is_away(swarm):
    swarm.write_roles({"away": "task", **swarm.roles})
    name = in_outbox(swarm)
    called = ok("handoff", "deliver", "--swarm", str(swarm.project))
    assert called.out == f"{name}: delivered to cleaner\n"


def test_it_is_the_project_that_says_where_roles_work_and_no_old_copy_of_its_roles(
    swarm, monkeypatch
):
    roles = swarm.project / ".swarmforge" / "roles.tsv"
    old = swarm.worktree("cleaner") / ".swarmforge" / "roles.tsv"
    old.parent.mkdir()
    # The launcher copies it into each worktree; then the coder moved, and a role came.
    old.write_bytes(roles.read_bytes())
    os.utime(old, (0, 0))
    moved = swarm.project / "moved"
    late = swarm.project / "late"
    for folder in (moved, late):
        folder.mkdir()
    text = roles.read_text().replace(str(swarm.worktree("coder")), str(moved))
    roles.write_text(f"{text}late\tlate\t{late}\n")

    names = [in_outbox(swarm, "coder", 1, "cleaner"), in_outbox(swarm, "late", 2, "cleaner")]
    monkeypatch.chdir(swarm.worktree("cleaner"))
    ok("handoff", "next", "--role", "cleaner")
    assert swarm.names("cleaner", "failed") == []
    for folder, name in zip((moved, late), names, strict=True):
        assert (folder / ".swarmforge" / "handoffs" / "inbox" / "new" / name).exists()


def test_a_session_that_is_gone_ends_it(session, daemons):
    daemon = daemons("-w", str(session), "--interval", "50ms", "--notify", "true")
    shutil.rmtree(session)
    _, err = daemon.communicate(timeout=30)
    assert daemon.returncode == 6, err


# Who waits in `next --wait`


def wait_in_process(session):
    return subprocess.Popen(
        [*TAPSTORE, "handoff", "next", "-w", str(session), "--role", "cleaner", "--wait", "60s"],
        env=without_tapstore(),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_who_waits_gets_what_is_sent(session):
    with wait_in_process(session) as process:
        send("-w", str(session))
        out, _ = process.communicate(timeout=60)
    assert out.startswith("TASK: ")


def test_who_waits_in_a_swarm_gets_what_an_original_script_queued(swarm):
    ok("handoff", "list", "--swarm", str(swarm.project))
    with subprocess.Popen(
        [*TAPSTORE, "handoff", "next", "--role", "cleaner", "--wait", "60s"],
        cwd=swarm.worktree("cleaner"),
        env=without_tapstore(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        in_outbox(swarm)
        out, _ = process.communicate(timeout=60)
    assert out.startswith("TASK: ")


def subscribers(server):
    with server.client() as client:
        return sum(number for _, number in client.pubsub_numsub(*client.pubsub_channels()))


def test_a_sender_elsewhere_wakes_who_waits_through_redis(tmp_path, redis_like, monkeypatch):
    # Nobody looks by himself for a minute.
    monkeypatch.setattr(waiting, "MAX_INTERVAL_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "MIN_INTERVAL_SECONDS", 60.0)
    place = str(tmp_path / "session")
    tapstore.create(place, roles=["coder", "cleaner"], locks=redis_like.url).close()

    def send_when_somebody_waits():
        until(lambda: subscribers(redis_like))
        subprocess.run(
            [*TAPSTORE, "handoff", "send", "-w", place, "--role=coder", "--to=cleaner",
             "--message=x"],
            env=without_tapstore(), check=True, capture_output=True,
        )  # fmt: skip

    sender = threading.Thread(target=send_when_somebody_waits)
    sender.start()
    started = time.monotonic()
    called = ok("handoff", "next", "-w", place, "--role", "cleaner", "--wait", "50s")
    sender.join()
    assert called.out.startswith("TASK: ")
    assert time.monotonic() - started < 40
