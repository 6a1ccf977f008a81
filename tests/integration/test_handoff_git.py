"""Commits of real git repositories, as hand-offs name them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tapstore.errors import FormatError, StoreError
from tapstore.handoffs import draft
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.gitcommit import GitCommits

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
TWINS = (594206, 859362)
"""Messages of two commits whose names begin with the same ten digits (found by trying)."""


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_AUTHOR_DATE": "1000000000 +0000",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_COMMITTER_DATE": "1000000000 +0000",
    }
    ended = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    return ended.stdout.strip()


def commit(folder: Path, message: str) -> str:
    return git(folder, "commit-tree", EMPTY_TREE, stdin=f"{message}\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_ten_digits_become_the_commit_in_its_one_form(repository):
    full = git(repository, "rev-parse", "HEAD")
    assert GitCommits(repository)(full[:10]) == full[:10]
    assert GitCommits(repository)(full[:10].upper()) == full[:10]


def test_a_commit_is_found_from_a_folder_in_the_repository_and_in_a_worktree(repository):
    digits = git(repository, "rev-parse", "HEAD")[:10]
    (repository / "src").mkdir()
    assert GitCommits(repository / "src")(digits) == digits
    git(repository, "worktree", "add", "-q", "../coder")
    assert GitCommits(repository.parent / "coder")(digits) == digits


def test_digits_of_no_object_are_refused(repository):
    with pytest.raises(FormatError, match="exactly one Git object; '0000000000' matched 0"):
        GitCommits(repository)("0000000000")


def test_digits_that_two_commits_share_are_refused(repository):
    first, second = (commit(repository, str(number)) for number in TWINS)
    assert first[:10] == second[:10] == "d57aed5391"
    assert first != second
    with pytest.raises(FormatError, match="exactly one Git object; 'd57aed5391' matched 2"):
        GitCommits(repository)("d57aed5391")
    git(repository, "branch", "twin", first)
    with pytest.raises(FormatError, match="matched 2"):
        GitCommits(repository).abbreviate("twin")


def test_digits_of_what_is_no_commit_are_refused(repository):
    blob = git(repository, "hash-object", "-w", "--stdin", stdin="x")
    with pytest.raises(FormatError, match=f"'{blob[:10]}' resolves to 'blob'"):
        GitCommits(repository)(blob[:10])
    git(repository, "tag", "-a", "-m", "t", "v1")
    tag = git(repository, "rev-parse", "v1")
    with pytest.raises(FormatError, match="resolves to 'tag'"):
        GitCommits(repository)(tag[:10])


@pytest.mark.parametrize(
    "text",
    ["", "HEAD", "main", "a1b2c3d9", "a1b2c3d9e8f", "--all", "-h", "a1b2c3d9e8\n", "$(touch x)",
     "../../../e", "a1b2c3d9e\0", "١٢٣٤٥٦٧٨٩٠", "--output=xx", "x" * 1_000_000],
)  # fmt: skip
def test_what_is_not_ten_digits_never_reaches_git(repository, text, monkeypatch):
    monkeypatch.setenv("PATH", "")  # git would not be found
    with pytest.raises(FormatError, match="exactly 10 hexadecimal characters"):
        GitCommits(repository)(text)


def test_a_branch_whose_name_is_ten_digits_is_not_taken_for_a_commit(repository):
    git(repository, "branch", "abcdefabcd")
    with pytest.raises(FormatError, match="matched 0"):
        GitCommits(repository)("abcdefabcd")


def test_what_head_a_branch_or_a_tag_names_is_abbreviated(repository):
    digits = git(repository, "rev-parse", "HEAD")[:10]
    git(repository, "tag", "-a", "-m", "t", "v1")
    commits = GitCommits(repository)
    assert [commits.abbreviate(ref) for ref in ("HEAD", "main", "v1", digits)] == [digits] * 4
    assert commits.abbreviate() == digits


@pytest.mark.parametrize(
    "ref",
    ["", "-h", "--git-dir=/x", "a b", "HEAD\n", "main..v1", "HEAD@{1}", "no-such-branch",
     "HEAD^{tree}", "HEAD:README", ":/first", "x" * 5_000],
)  # fmt: skip
def test_a_ref_that_names_no_commit_is_refused(repository, ref):
    with pytest.raises(FormatError, match=r"names no commit|is no name of"):
        GitCommits(repository).abbreviate(ref)


def test_without_a_repository_the_place_is_at_fault_and_not_the_draft(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(StoreError, match="git rev-parse failed: fatal: not a git repository"):
        GitCommits(tmp_path)("a1b2c3d9e8")
    with pytest.raises(StoreError, match="no such folder"):
        GitCommits(tmp_path / "missing")("a1b2c3d9e8")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StoreError, match="git is not installed"):
        GitCommits(tmp_path)("a1b2c3d9e8")


def test_a_git_that_hangs_is_ended(tmp_path, monkeypatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    with pytest.raises(StoreError, match=r"git did not answer within 0\.2 s"):
        GitCommits(tmp_path, timeout_seconds=0.2)("a1b2c3d9e8")


def test_the_repository_is_that_of_the_folder_and_not_of_the_environment(
    repository, tmp_path, monkeypatch
):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    digits = git(repository, "rev-parse", "HEAD")[:10]
    assert GitCommits(repository)(digits) == digits


def test_a_draft_names_a_commit_of_the_real_repository(repository):
    full = git(repository, "rev-parse", "HEAD")
    text = f"type: git_handoff\nto: QA\npriority: 50\ntask: t\ncommit: {full[:10].upper()}\n"
    commits = GitCommits(repository)
    checked = draft.check(text.encode(), sender="coder", roles=["coder", "QA"], resolve=commits)
    assert checked.headers["commit"] == full[:10]
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    with pytest.raises(DraftError, match=r"Line 5: header 'commit' must resolve to a commit"):
        draft.check(
            text.replace(full[:10].upper(), tree[:10]).encode(),
            sender="coder",
            roles=["coder", "QA"],
            resolve=commits,
        )
