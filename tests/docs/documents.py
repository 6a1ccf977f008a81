"""The project's Markdown documents: their links, anchors and runnable examples.

Parsing only; nothing is run here.  External links are not followed: the tests need no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]

_PARSER = MarkdownIt("commonmark").enable("table")


def documents(root: Path = ROOT) -> list[Path]:
    """Every document of the project, not those of what is installed inside its folder."""
    return sorted(
        path
        for path in root.rglob("*.md")
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block whose info string is `python run`, `console run` or `LANGUAGE file NAME`."""

    language: str
    text: str
    line: int
    """Of the opening fence, from 1."""

    file: str = ""
    """It is not run but saved under this name."""


def examples(document: Path) -> list[Example]:
    """The blocks that are marked to be run.  Raises ValueError for a mark that means nothing."""
    found = []
    for token in _PARSER.parse(document.read_text("utf-8")):
        language, _, mark = token.info.strip().partition(" ")
        if token.type != "fence" or not mark:
            continue
        line = token.map[0] + 1 if token.map else 0
        action, _, file = mark.partition(" ")
        if action == "file" and re.fullmatch(r"[\w./-]+", file):
            found.append(Example(language, token.content, line, file))
            continue
        if mark != "run" or language not in ("python", "console"):
            raise ValueError(
                f"{document}:{line}: the block is marked {token.info!r}; "
                "only `python run` and `console run` mean something, and `file NAME`"
            )
        found.append(Example(language, token.content, line))
    return found


def links(document: Path) -> Iterator[str]:
    """The targets of all links and images."""
    for token in _inline(document):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target is not None:
            yield str(target)


def anchors(document: Path) -> set[str]:
    """The fragments that a link may name, built from the headings as GitHub builds them."""
    seen: dict[str, int] = {}
    found = set()
    tokens = _PARSER.parse(document.read_text("utf-8"))
    for opening, heading in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        text = "".join(child.content for child in heading.children or ())
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeats = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{repeats}" if repeats else slug)
    return found


def broken_links(document: Path) -> list[str]:
    """The links to files or headings that are not there, each with the reason."""
    broken = []
    for target in links(document):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            broken.append(f"{target}: no such file")
        elif fragment and file.suffix == ".md" and fragment not in anchors(file):
            broken.append(f"{target}: no such heading; there are {sorted(anchors(file))}")
    return broken


def _inline(document: Path) -> Iterator[Token]:
    for token in _PARSER.parse(document.read_text("utf-8")):
        yield from token.children or ()
