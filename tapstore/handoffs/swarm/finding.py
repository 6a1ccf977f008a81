"""Finds the swarm that a folder belongs to, as the original scripts find it.

`.swarmforge/roles.tsv` in the folder itself, in the top folder of its git worktree, or beside the
repository that the worktree belongs to.  The launcher copies that file into each worktree, where
the scripts find it first; what is delivered, and where to, the one beside the repository says.

Imports next to nothing: every command that names neither a swarm nor a session looks here.
"""

from __future__ import annotations

import os
from pathlib import Path

from tapstore.errors import StoreError
from tapstore.handoffs.gitcommit import run_git

FOLDER = ".swarmforge"
FILE = "roles.tsv"


def find_project(start: str | os.PathLike[str]) -> Path | None:
    """The folder that has `.swarmforge/roles.tsv`, for who works in `start`; None if none has."""
    here = Path(start).absolute()
    if _is_project(here):
        return here
    for what, above in (("--show-toplevel", 0), ("--git-common-dir", 1)):
        try:
            said = run_git(here, "rev-parse", what).removesuffix("\n")
        except StoreError:
            # No git, or no repository: then there is none to look in.
            return None
        found = here / said
        candidate = found.parent if above else found
        if said and _is_project(candidate):
            return Path(os.path.normpath(candidate))
    return None


def main_project(project: str | os.PathLike[str]) -> Path:
    """Where the daemon of a swarm works: beside the repository, if `project` is a worktree into
    which the launcher has copied `roles.tsv`."""
    here = Path(project)
    # In a linked worktree it is a file; nobody else needs to ask git.
    if not (here / ".git").is_file():
        return here
    try:
        found = here / run_git(here, "rev-parse", "--git-common-dir").removesuffix("\n")
    except StoreError:
        return here
    main = Path(os.path.normpath(found.parent))
    return main if _is_project(main) else here


def _is_project(folder: Path) -> bool:
    return (folder / FOLDER / FILE).is_file()
