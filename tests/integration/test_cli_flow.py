"""The first hour with tapstore, and an agent that is a shell script: through real processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = r"""
set -eu
claim=$(tapstore claim coder --agent sh-1 --wait 10 --phase coding)
export TAPSTORE_CLAIM="$claim"
tapstore heartbeat --while $$ &
tapstore fetch requirement.txt -o - > wanted.txt
printf '# %s\nprint(sum(n * n for n in range(10) if n %% 2 == 0))\n' "$(cat wanted.txt)" > even.py
tapstore complete --phase awaiting_review --publish even.py:type=code,consumer=reviewer
"""


@pytest.fixture
def shell(tmp_path):
    """Runs a script in a folder of its own, with `tapstore` on its path."""
    folder = tmp_path / "work"
    folder.mkdir()
    scripts = tmp_path / "bin"
    scripts.mkdir()
    program = scripts / "tapstore"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tapstore "$@"\n')
    program.chmod(0o755)
    root = Path(__file__).parents[2]
    env = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "TAPSTORE_AGENT": "me",
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shutil.which("sh") or "sh", "-c", script],
            cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    return run


def test_a_newcomer_gets_from_init_to_the_log(shell):
    result = shell(
        """
        set -e
        tapstore init --id first --role coder --phase coding >/dev/null
        tapstore status
        TAPSTORE_CLAIM=$(tapstore claim coder)
        export TAPSTORE_CLAIM
        echo 'print(1)' > code.py
        tapstore publish code.py --type code
        tapstore complete --phase done
        tapstore log
        """
    )
    assert result.returncode == 0, result.stderr
    words = [line.split("Z  ")[-1] for line in result.stdout.splitlines()]
    assert "coder  pending  -      -      -          0 of 3   waits for an agent" not in words
    assert words[-4:] == [
        "me: created the session",
        "me: claimed coder",
        "me: published coding/code.py (9 B)",
        "me: completed coder; phase coding -> done",
    ]


def test_a_shell_script_is_an_agent(shell):
    shell("tapstore init --id s --role coder --role reviewer && "
          "echo 'sum of even squares' | tapstore publish - --as requirement.txt")  # fmt: skip
    result = shell(SCRIPT)
    assert result.returncode == 0, result.stderr
    code = shell("tapstore fetch even.py -o code.py >/dev/null && cat code.py && python3 code.py")
    assert code.stdout == (
        "# sum of even squares\nprint(sum(n * n for n in range(10) if n % 2 == 0))\n120\n"
    )


def test_a_reader_that_goes_away_is_no_error(shell):
    result = shell("tapstore init --role coder; { tapstore log; echo $? >&2; } | true")
    assert result.stderr == "141\n"
