"""A swarm as its launcher leaves it: a git repository, a worktree a role, `roles.tsv`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHAIN = {"specifier": "task", "coder": "task", "refactorer": "task", "architect": "batch"}


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody whose own settings don't matter."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_NAME": "somebody" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "s@example.org" for who in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Swarm:
    project: Path
    roles: Mapping[str, str]

    def worktree(self, role: str) -> Path:
        return self.project / ".worktrees" / role

    def handoffs(self, role: str) -> Path:
        return self.worktree(role) / ".swarmforge" / "handoffs"

    def names(self, role: str, *folder: str) -> list[str]:
        """What lies in a folder of a role's hand-offs; nothing if it is not there yet."""
        path = self.handoffs(role).joinpath(*folder)
        if not path.exists():
            return []
        return sorted(p.name for p in path.iterdir() if not p.name.startswith("."))

    def commit(self, role: str, message: str = "more") -> str:
        """The 10 digits of a new commit in the worktree of a role."""
        git(self.worktree(role), "commit", "-q", "--allow-empty", "-m", message)
        return git(self.worktree(role), "rev-parse", "--short=10", "HEAD")

    def write_roles(self, roles: Mapping[str, str]) -> None:
        text = "".join(
            f"{role}\t{role}\t{self.worktree(role)}\tswarm-{role}\t{role.title()}\tclaude\t{mode}\n"
            for role, mode in roles.items()
        )
        (self.project / ".swarmforge" / "roles.tsv").write_text(text)


def make(project: Path, roles: Mapping[str, str] = CHAIN) -> Swarm:
    project.mkdir(parents=True)
    git(project, "init", "-q", "-b", "main")
    (project / ".gitignore").write_text(".swarmforge/\n.worktrees/\n")
    git(project, "add", ".gitignore")
    git(project, "commit", "-q", "-m", "begin")
    (project / ".swarmforge").mkdir()
    swarm = Swarm(project, roles)
    swarm.write_roles(roles)
    for role in roles:
        git(project, "worktree", "add", "-q", "-b", f"swarmforge-{role}", str(swarm.worktree(role)))
    return swarm


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def without_tapstore() -> dict[str, str]:
    """The environment, without what could name a session or a role."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TAPSTORE_", "SWARMFORGE_"))
    }


def run_script(script: Path, *arguments: str, folder: Path, **environment: str) -> Ran:
    """Run a script as an agent would: by its path, in its worktree."""
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run(
        [script, *arguments],
        cwd=folder,
        env={**without_tapstore(), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
