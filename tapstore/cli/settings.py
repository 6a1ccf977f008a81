"""What holds for a call without being said in it: from the environment, then from files.

`tapstore.toml` in the present folder or the nearest above, then the user's own
`$XDG_CONFIG_HOME/tapstore/config.toml`; each value by itself comes from the first that has it.
A file that others could have written is refused, for it decides where data and passwords go.

Not promised: that what a group may write was written by somebody to trust.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from tapstore.errors import FormatError, NotAllowedError
from tapstore.keys import shell_word

FILE_NAME = "tapstore.toml"

_KEYS = ("url", "locks", "agent")
_OPTIONS = "storage_options"
_VARIABLES = {"url": "TAPSTORE_URL", "locks": "TAPSTORE_LOCKS", "agent": "TAPSTORE_AGENT"}


class Setting(msgspec.Struct, frozen=True):
    """A value, and where it comes from: a variable, or the path of a file."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"<Setting from {self.source}>"


class Options(msgspec.Struct, frozen=True):
    """`storage_options` for the URLs of one scheme, all from one file."""

    values: Mapping[str, Any]
    source: str

    def __repr__(self) -> str:
        return f"<Options from {self.source}>"


class File(msgspec.Struct, frozen=True):
    """A configuration file that was read."""

    path: str
    values: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"<File {self.path}>"


class Settings:
    """All of one call.  Files are read when first asked for, and once."""

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        self._environment = environment
        self._folder = folder
        self._files: tuple[File, ...] | None = None

    def get(self, name: str) -> Setting | None:
        """`url`, `locks` or `agent`.  Raises `FormatError` and `NotAllowedError` for files."""
        return self.from_environment(name) or self.from_files(name)

    def from_environment(self, name: str) -> Setting | None:
        """An empty variable says nothing."""
        value = self._environment.get(_VARIABLES[name])
        return Setting(value, _VARIABLES[name]) if value else None

    def from_files(self, name: str) -> Setting | None:
        found = (Setting(f.values[name], f.path) for f in self.files if name in f.values)
        return next(found, None)

    def options(self, url: str) -> Options:
        """What is set for the stores of the scheme of `url`; a path has the scheme `file`."""
        scheme = url.partition("://")[0].lower() if "://" in url else "file"
        found = (Options(f.options[scheme], f.path) for f in self.files if scheme in f.options)
        return next(found, Options({}, ""))

    def all_options(self) -> dict[str, Options]:
        """By scheme."""
        found: dict[str, Options] = {}
        for file in self.files:
            for scheme, values in file.options.items():
                found.setdefault(scheme, Options(values, file.path))
        return found

    @property
    def files(self) -> tuple[File, ...]:
        """The nearest first."""
        if self._files is None:
            self._files = tuple(map(_read, self._paths()))
        return self._files

    def _paths(self) -> Iterator[str]:
        for folder in upwards(self._folder):
            path = os.path.join(folder, FILE_NAME)
            if os.path.lexists(path):
                yield path
                break
        home = self._environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        path = os.path.join(home, "tapstore", "config.toml")
        # A relative one is to be ignored, says the specification.
        if os.path.isabs(path) and os.path.lexists(path):
            yield path


def upwards(folder: str) -> Iterator[str]:
    """The folder, and those above it."""
    above = ""
    while folder != above:
        yield folder
        folder, above = os.path.dirname(folder), folder


def _read(path: str) -> File:
    import tomllib

    if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for its writer
        raise FormatError(f"{path} is no file")
    try:
        with open(path, "rb") as stream:
            _check_owner(path, os.fstat(stream.fileno()))
            document = tomllib.load(stream)
    # A number of 5,000 digits is a ValueError, brackets 1,000 deep are a RecursionError.
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{path} is not TOML: {_without_values(exc)}") from exc
    _known(path, "", document, ["tapstore"])
    table = _table(path, "tapstore", document.get("tapstore", {}))
    _known(path, "tapstore.", table, [*_KEYS, _OPTIONS])
    values = {name: _text(path, name, table[name]) for name in _KEYS if name in table}
    if "url" in values:
        values["url"] = _below(os.path.dirname(path), values["url"])
    options = _table(path, f"tapstore.{_OPTIONS}", table.get(_OPTIONS, {}))
    return File(
        path,
        values,
        {
            scheme.lower(): _table(path, f"tapstore.{_OPTIONS}.{scheme}", options[scheme])
            for scheme in options
        },
    )


def _check_owner(path: str, status: os.stat_result) -> None:
    """Whoever can write this file can have us send data, and passwords, to a place of theirs."""
    me: Callable[[], int] | None = getattr(os, "geteuid", None)
    if me is None:
        return
    if status.st_uid not in (0, me()):
        raise NotAllowedError(
            f"{path} belongs to user {status.st_uid}, who could have tapstore send your data and "
            f"passwords somewhere else: take what you trust of it into a {FILE_NAME} "
            "of your own, nearer to where you work, or work somewhere else"
        )
    if status.st_mode & stat.S_IWOTH:
        raise NotAllowedError(
            f"{path} can be written by anybody, who could have tapstore send your data and "
            f"passwords somewhere else: look at what it says, then `chmod o-w {shell_word(path)}`"
        )


def _without_values(exc: Exception) -> str:
    """What tomllib says about a place in a file, without what stands there."""
    import tomllib

    if isinstance(exc, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    if not isinstance(exc, tomllib.TOMLDecodeError):
        return "a number is too long"
    where = str(exc).rpartition("(at ")[2].rstrip(")")
    return f"see {where}" if where else "it ends too early"


def _known(path: str, prefix: str, table: Mapping[str, Any], known: list[str]) -> None:
    for key in table:
        if key not in known:
            import difflib

            close = difflib.get_close_matches(key, known, n=1)
            advice = f"; did you mean {prefix}{close[0]}?" if close else ""
            raise FormatError(
                f"{path}: there is no setting {prefix + key!r}, only "
                f"{', '.join(prefix + name for name in known)}{advice}"
            )


def _table(path: str, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{path}: {name} has to be a table: [{name}]")
    return value


def _text(path: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise FormatError(f"{path}: tapstore.{name} has to be a text, in quotes, and not empty")
    return value


def _below(folder: str, url: str) -> str:
    """A path is relative to the file that names it, wherever it is used from."""
    return url if "://" in url else os.path.join(folder, os.path.expanduser(url))
