"""Asks git whether an abbreviation is exactly one commit, and how it is written.

git is run without a shell, with nothing of an agent's that could be an option or a path; it reads
only, waits for nobody, and fetches nothing.

An abbreviation that is unique today may not be so in a year, nor in another clone.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tapstore.errors import FormatError, StoreError

DIGITS = 10

_ABBREVIATION = re.compile(rf"[0-9a-fA-F]{{{DIGITS}}}")
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NO_REF = re.compile(r"-|.*[\x00-\x20\x7f]|.*\.\.|.*@\{|\Z", re.DOTALL)
_NOT_ONE = "must resolve to exactly one Git object"

# What git sets for hooks and aliases: a folder was named, and it is that one's repository.
_OF_ANOTHER = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE",
)  # fmt: skip


class GitCommits:
    """The commits of the repository that `folder` is in; a `draft.Resolve`."""

    def __init__(self, folder: str | os.PathLike[str], *, timeout_seconds: float = 30) -> None:
        self._folder = Path(folder)
        self._timeout = timeout_seconds

    def __call__(self, commit: str) -> str:
        """The 10 digits of a commit, in lower case, from 10 digits.

        Raises `FormatError` if they are not those of exactly one object that is a commit, and
        `StoreError` if git, or a repository, is not there.
        """
        if _ABBREVIATION.fullmatch(commit) is None:
            raise FormatError(
                f"must be exactly {DIGITS} hexadecimal characters; got {_cut(commit)}"
            )
        objects = tuple(self._objects(commit))
        if len(objects) != 1:
            raise FormatError(f"{_NOT_ONE}; {commit!r} matched {len(objects)}")
        kind = self._run("cat-file", "-t", objects[0]).strip()
        if kind != "commit":
            raise FormatError(f"must resolve to a commit; {commit!r} resolves to {kind!r}")
        return objects[0][:DIGITS]

    def abbreviate(self, ref: str = "HEAD") -> str:
        """The 10 digits of the commit that a branch, tag or `HEAD` names.

        Raises as for 10 digits.
        """
        if len(ref) > 1000 or _NO_REF.match(ref):
            raise FormatError(f"{_cut(ref)} is no name of a branch, tag or commit")
        found = self._run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", none=True
        ).strip()
        if _OBJECT.fullmatch(found) is None:
            raise FormatError(f"{_cut(ref)} names no commit in {self._folder}")
        return self(found[:DIGITS])

    def _objects(self, digits: str) -> Iterator[str]:
        for line in self._run("rev-parse", f"--disambiguate={digits}").splitlines():
            if _OBJECT.fullmatch(line):
                yield line

    def _run(self, *arguments: str, none: bool = False) -> str:
        return run_git(self._folder, *arguments, none=none, timeout_seconds=self._timeout)


def run_git(folder: Path, *arguments: str, none: bool = False, timeout_seconds: float = 30) -> str:
    """What git prints in a folder.  With `none`, exit code 1 means that there is nothing.

    Raises `StoreError` if git, or a repository, is not there.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _OF_ANOTHER}
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }
    try:
        ended = subprocess.run(
            ["git", "--no-pager", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except FileNotFoundError as exc:
        what = "git is not installed" if folder.is_dir() else "there is no such folder"
        raise StoreError(exc.errno, f"{folder}: {what}") from exc
    except subprocess.TimeoutExpired as exc:
        raise StoreError(f"{folder}: git did not answer within {timeout_seconds:g} s") from exc
    except OSError as exc:
        raise StoreError(exc.errno, f"{folder}: cannot run git: {exc.strerror}") from exc
    if ended.returncode and not (none and ended.returncode == 1):
        said = ended.stderr.decode("utf-8", "replace").strip()[:300]
        raise StoreError(f"{folder}: git {arguments[0]} failed: {said}")
    return ended.stdout.decode("utf-8", "replace")


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
