"""The demo does for real what it shows, and would say if it had not."""

import json
import shlex
import subprocess
import sys

import tapstore
from tapstore.cli import demo


def test_the_demo_keeps_what_it_promises(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "tapstore", "demo", str(tmp_path / "demo"), "--json"],
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)["promises"] == [
        {"promise": one["promise"], "kept": True} for one in json.loads(result.stdout)["promises"]
    ]
    assert (tmp_path / "demo" / ".tap" / "Tapfile").is_file()


def test_where_nothing_was_done_no_promise_is_kept(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder", "reviewer"], phases=["a", "b"]) as session:
        promises = demo._promises(session, {"coder-01": 1, "coder-02": 1, "reviewer-01": 1})
    kept = [promise for promise, was_kept in promises.items() if was_kept]
    assert kept == ["the log has no hole, and each record names the hash of the one before"]


def test_what_to_type_next_can_be_typed_by_who_has_no_tapstore_on_the_path(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    shown = [*shlex.split(demo._typed()), "--version"]
    result = subprocess.run(shown, capture_output=True, text=True, check=True)
    assert result.stdout == f"tapstore {tapstore.__version__}\n"


def test_pythons_own_compiler_finds_the_same_fault_where_there_is_no_linter(tmp_path, monkeypatch):
    monkeypatch.setattr(demo.shutil, "which", lambda *_, **__: None)
    (tmp_path / "coder.py").write_text(demo.CODER)
    task = {"requirement": "squares", "output": str(tmp_path / "code.py")}
    subprocess.run(
        [sys.executable, str(tmp_path / "coder.py")],
        input=json.dumps(task).encode(), env={"THINKING_SECONDS": "0"}, check=True,
    )  # fmt: skip
    result = subprocess.run(
        [*demo._linter(), str(tmp_path / "code.py")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "literal" in result.stdout
