"""What `import tapstore` costs and needs, seen from a fresh interpreter."""

import json
import subprocess
import sys

import pytest

BANNED = {
    "aiobotocore", "asyncio", "boto3", "botocore", "click", "fsspec", "http", "jsonschema_rs",
    "multiprocessing", "redis", "rich", "s3fs", "sqlite3", "ssl", "unittest", "urllib.request",
    "watchfiles", "yaml",
}  # fmt: skip

ALL_MODULES = """
import importlib, json, pkgutil, sys
import tapstore
names = [module.name for module in pkgutil.walk_packages(tapstore.__path__, "tapstore.")]
for name in names:
    importlib.import_module(name)
print(json.dumps({"names": names, "loaded": sorted(sys.modules)}))
"""

# As on Windows, as far as our own modules can tell.  What they are built on is imported first:
# it has its own ways there.
WITHOUT_POSIX = """
import asyncio, multiprocessing.connection, os, shutil, signal, socket, subprocess, sys, tempfile
import click, fsspec, fsspec.implementations.local, jsonschema_rs, msgspec, watchfiles, yaml

gone = ["fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"]
for name in gone:
    sys.modules[name] = None
for module, names in {
    os: ["O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fork",
         "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getuid", "killpg", "link",
         "mkfifo", "register_at_fork", "setsid", "statvfs", "uname"],
    signal: ["SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP",
             "SIGTSTP", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "setitimer"],
    socket: ["AF_UNIX"],
}.items():
    for name in names:
        delattr(module, name)
"""


def run(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def modules(program: str) -> set[str]:
    return set(
        json.loads(run(f"{program}\nimport json, sys; print(json.dumps(list(sys.modules)))"))
    )


def test_importing_tapstore_loads_nothing_heavy():
    before = modules("")  # the interpreter itself may bring some (coverage, a debugger)
    assert BANNED & (modules("import tapstore") - before) == set()


@pytest.mark.parametrize("module", ["tapstore.sessions.session", "tapstore.cli"])
def test_a_local_session_loads_only_what_it_uses(module):
    """Each command of an agent's script starts a new process: its imports are its latency."""
    waiting, other_places = {"asyncio", "watchfiles"}, {"fsspec", "http", "ssl", "urllib.request"}
    validating = {"jsonschema", "jsonschema_rs"}
    loaded = modules(f"import {module}") - modules("")
    assert loaded & (waiting | other_places | validating) == set()


def test_the_check_for_heavy_imports_would_notice_one():
    assert "yaml" in BANNED & modules("import yaml")


def test_looking_for_a_swarm_imports_nothing_of_its_mailboxes():
    """Every command that names neither a session nor a swarm looks for one."""
    loaded = modules("import tapstore.handoffs.swarm.finding")
    assert {m for m in loaded if m.startswith("tapstore.handoffs.")} == {
        "tapstore.handoffs.gitcommit",
        "tapstore.handoffs.swarm",
        "tapstore.handoffs.swarm.finding",
    }


def test_every_module_can_be_imported_alone():
    """No module relies on another having been imported before it (import cycles)."""
    names = json.loads(run(ALL_MODULES))["names"]
    program = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [m for m in sys.modules if m == "tapstore" or m.startswith("tapstore.")]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    result = subprocess.run(
        [sys.executable, "-c", program, *names],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_no_module_needs_posix_to_be_imported():
    names = json.loads(run(WITHOUT_POSIX + ALL_MODULES))["names"]
    assert "tapstore.keys" in names


def test_no_module_imports_a_backend_or_a_terminal_library():
    loaded = set(json.loads(run(ALL_MODULES))["loaded"])
    assert loaded & {"aiobotocore", "boto3", "botocore", "redis", "rich", "s3fs"} == set()
