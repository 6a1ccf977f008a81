"""Options, the environment and configuration files: what wins, what is refused, what is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest

import tapstore
from tapstore.cli.settings import Settings
from tests.integration.cli_calls import call, ok
from tests.unit import elsewhere

SECRET = "hunter2" * 2


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A new folder, and the present one."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The user's own configuration file; not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "tapstore").mkdir(parents=True)
    return tmp_path / "config" / "tapstore" / "config.toml"


def shown() -> dict:
    return ok("config", "--json").json


# What wins


def test_an_option_wins_over_the_environment_and_that_over_files(here, mine):
    mine.write_text('[tapstore]\nagent = "from-mine"\n')
    assert shown()["agent"] == {"value": "from-mine", "source": str(mine)}
    (here / "tapstore.toml").write_text('[tapstore]\nagent = "from-folder"\n')
    assert shown()["agent"] == {"value": "from-folder", "source": str(here / "tapstore.toml")}
    named = {"TAPSTORE_AGENT": "from-env"}
    found = ok("config", "--json", env=named).json["agent"]
    assert found == {"value": "from-env", "source": "TAPSTORE_AGENT"}
    found = ok("config", "--json", "--agent", "from-option", env=named).json["agent"]
    assert found == {"value": "from-option", "source": "--agent"}


def test_each_value_by_itself_comes_from_the_first_that_has_it(here, mine):
    mine.write_text('[tapstore]\nagent = "from-mine"\nlocks = "o_excl"\n')
    (here / "tapstore.toml").write_text('[tapstore]\nagent = "from-folder"\n')
    assert {name: shown()[name]["source"] for name in ("agent", "locks")} == {
        "agent": str(here / "tapstore.toml"),
        "locks": str(mine),
    }


def test_the_nearest_file_is_read_and_none_above_it(here, monkeypatch):
    (here / "tapstore.toml").write_text('[tapstore]\nagent = "far"\nlocks = "o_excl"\n')
    below = here / "a" / "b"
    below.mkdir(parents=True)
    (here / "a" / "tapstore.toml").write_text('[tapstore]\nagent = "near"\n')
    monkeypatch.chdir(below)
    found = shown()
    assert (found["agent"]["value"], found["locks"]) == ("near", None)
    assert found["files"] == [str(here / "a" / "tapstore.toml")]


def test_a_path_is_relative_to_the_file_that_names_it(here, monkeypatch):
    (here / "tapstore.toml").write_text('[tapstore]\nurl = "sessions/s1"\n')
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    ok("init", "-r", "coder")
    assert (here / "sessions" / "s1" / ".tap" / "Tapfile").is_file()
    assert ok("status", "--json").json["session_id"] == "s1"


def test_a_session_that_is_nearer_than_the_file_is_the_one_that_is_meant(here, monkeypatch):
    (here / "tapstore.toml").write_text('[tapstore]\nurl = "configured"\n')
    ok("init", "-r", "coder")
    ok("init", "-w", "nearer", "-r", "coder")
    assert ok("status", "--json").json["session_id"] == "configured"
    monkeypatch.chdir(here / "nearer")
    assert ok("status", "--json").json["session_id"] == "nearer"


def test_a_session_here_wins_over_the_users_own_configuration(here, mine):
    mine.write_text(f'[tapstore]\nurl = "{here}/elsewhere"\n')
    ok("init", "-r", "coder")
    assert ok("status", "--json").json["session_id"] == "elsewhere"
    ok("init", "-w", str(here), "--id", "here", "-r", "coder")
    assert ok("status", "--json").json["session_id"] == "here"


def test_init_takes_the_lock_service_from_the_first_that_has_one(here):
    (here / "tapstore.toml").write_text('[tapstore]\nlocks = "nothing-like-it"\n')
    assert "nothing-like-it" in call("init", "-r", "coder").err
    ok("init", "-r", "coder", env={"TAPSTORE_LOCKS": "o_excl"})
    assert ok("locks", "--json", env={"TAPSTORE_LOCKS": "o_excl"}).json["service"] == "o_excl"


def test_storage_options_go_to_the_stores_of_their_scheme(here):
    (here / "tapstore.toml").write_text(
        '[tapstore.storage_options.file]\ndurability = "none"\n'
        "[tapstore.storage_options.memory]\nnonsense = 1\n"
    )
    ok("init", "-r", "coder")
    ok("status")
    (here / "tapstore.toml").write_text("[tapstore.storage_options.file]\nnonsense = 1\n")
    called = call("status")
    assert (called.status, f"{here}/tapstore.toml" in called.err) == (7, True)
    assert "['nonsense']" in called.err


def test_storage_options_go_to_roots_too(here):
    (here / "tapstore.toml").write_text("[tapstore.storage_options.file]\nnonsense = 1\n")
    for command in (
        ["task", "send", "coder", "x", "--id", "t", "--root", "root"],
        ["agent", "run", "--role", "coder", "--root", "root", "--idle", "0", "--", "true"],
        ["init", "-r", "coder"],
    ):
        called = call(*command)
        assert (called.status, "['nonsense']" in called.err) == (7, True)


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tapstore]\nurls = "x"\n', "tapstore.urls', only tapstore.url, tapstore.locks, tapstore"
         ".agent, tapstore.storage_options; did you mean tapstore.url?"),
        ('url = "x"\n', "there is no setting 'url', only tapstore"),
        ("[tapstore]\nurl = 7\n", "tapstore.url has to be a text"),
        ('[tapstore]\nagent = ""\n', "tapstore.agent has to be a text"),
        ("tapstore = 1\n", "tapstore has to be a table"),
        ("[tapstore.storage_options]\ns3 = 1\n", "tapstore.storage_options.s3 has to be a table"),
        (f'[tapstore]\nurl = "{SECRET}\n', "is not TOML: see line 2"),
        (f"[tapstore]\nurl = {'[' * 5000}\n", "is not TOML: it is nested too deeply"),
        (f"[tapstore]\nurl = {'9' * 5000}\n", "is not TOML: a number is too long"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say_is_an_error_that_names_file_and_key(here, text, message):
    (here / "tapstore.toml").write_text(text)
    called = call("status")
    assert called.status == 7
    assert f"{here}/tapstore.toml" in called.err
    assert message in called.err
    assert SECRET not in called.err


def test_a_file_that_is_not_utf_8_is_an_error_that_names_it(here):
    (here / "tapstore.toml").write_bytes(b'[tapstore]\nagent = "\xff"\n')
    assert "tapstore.toml is not TOML" in call("status").err


def test_a_pipe_is_not_waited_for(here):
    os.mkfifo(here / "tapstore.toml")
    called = call("status")
    assert (called.status, "is no file" in called.err) == (7, True)


def test_a_file_that_anybody_can_write_is_refused(here):
    (here / "tapstore.toml").write_text('[tapstore]\nagent = "evil"\n')
    (here / "tapstore.toml").chmod(0o666)
    called = call("status")
    assert called.status == 3
    assert f"`chmod o-w {here}/tapstore.toml`" in called.err.replace("then\n  ", "then ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file away")
def test_a_file_of_another_user_is_refused(here):
    (here / "tapstore.toml").write_text('[tapstore]\nagent = "evil"\n')
    os.chown(here / "tapstore.toml", 4711, -1)
    called = call("status")
    assert (called.status, "belongs to user 4711" in called.err) == (3, True)


# What is shown


def test_credentials_are_not_shown(here):
    (here / "tapstore.toml").write_text(
        f'[tapstore]\nurl = "s3://key:{SECRET}@bucket/x"\nlocks = "redis://u:{SECRET}@h/0"\n'
        f'[tapstore.storage_options.s3]\nkey = "k"\nsecret = "{SECRET}"\n'
    )
    for options in ([], ["--json"]):
        called = ok("config", *options)
        assert "s3://***@bucket/x" in called.out
        assert "redis://***@h/0" in called.out
        assert "secret" in called.out
        assert SECRET not in called.out + called.err


def test_what_was_read_is_not_shown_by_accident(here):
    (here / "tapstore.toml").write_text(
        f'[tapstore]\nlocks = "redis://u:{SECRET}@h"\n[tapstore.storage_options.s3]\n'
        f'secret = "{SECRET}"\n'
    )
    settings = Settings({}, str(here))
    values = (settings.get("locks"), settings.all_options(), settings.files)
    assert SECRET in settings.get("locks").value
    assert SECRET not in repr((settings, *values))


def test_a_malformed_url_is_not_shown():
    called = ok("config", env={"TAPSTORE_LOCKS": f"redis://u:{SECRET}@[h"})
    assert SECRET not in called.out


def test_a_lock_service_that_is_set_but_not_used_is_told():
    ok("init", "-r", "coder")
    env = {"TAPSTORE_LOCKS": f"redis://u:{SECRET}@h/0"}
    for command in (["locks"], ["lock", "gpu", "--", "true"]):
        called = ok(*command, env=env)
        assert "warning: session work uses the lock service o_excl; redis://***@h/0" in called.err
        assert SECRET not in called.err
    assert ok("status", env=env).err == ""


def test_a_switch_that_is_not_finished_is_told_with_what_goes_on_with_it(here):
    ok("init", "-r", "coder")
    with elsewhere.installed(), tapstore.open(str(here)) as session, session.lock("gpu", ttl=30):
        refused = call("locks", "switch", "elsewhere://a", "--wait", "0")
        assert (refused.status, "'gpu' by" in refused.err) == (4, True)
        found = ok("locks", "--json").json
        assert (found["service"], found["former"]) == ("elsewhere://a", "o_excl")
        assert [lock["name"] for lock in found["locks"]] == ["gpu"]
        assert "`tapstore locks switch elsewhere://a` goes on" in ok("locks").out
        forced = ok("locks", "switch", "elsewhere://a", "--wait", "0", "--force", "--json").json
        assert (forced["service"], forced["former"], forced["how"]) == (
            "elsewhere://a", "o_excl", "forced",
        )  # fmt: skip
        assert ok("locks", "--json").json["former"] is None


def test_force_and_old_is_gone_do_not_go_together():
    ok("init", "-r", "coder")
    assert call("locks", "switch", "o_excl", "--force", "--old-is-gone").status == 2


# What it costs

COUNTED = """
import sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
from tapstore.cli.app import run
status = run(["status", "--json"])
import json
files = [path for path in opened if path.endswith(".toml")]
print(json.dumps({"status": status, "files": files, "toml": "tomllib" in sys.modules}))
"""


def counted(folder) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=folder, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_without_a_file_nothing_that_reads_one_is_loaded(here):
    ok("init", "-r", "coder")
    assert counted(here) == {"status": 0, "files": [], "toml": False}


def test_a_file_is_read_once(here, mine):
    ok("init", "-r", "coder")
    for path in (here / "tapstore.toml", mine):
        path.write_text('[tapstore]\nagent = "a"\n')
    assert counted(here)["files"] == [str(here / "tapstore.toml"), str(mine)]
    assert tomllib.loads(mine.read_text()) == {"tapstore": {"agent": "a"}}
