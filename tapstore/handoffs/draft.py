"""Drafts of hand-offs, checked whole: every fault with its line, and the form to take.  Pure.

A draft that passes becomes a message that any reader of the format takes; one that does not leaves
no trace.  Which commits exist is asked of a function that comes in.

Nothing is sent here, and `from` is what the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from tapstore.errors import FormatError, InvalidKeyError
from tapstore.handoffs import types as message_types
from tapstore.handoffs.message import (
    MAX_RECIPIENTS,
    Message,
    header_fault,
    known_fault,
    render,
    write_time,
)
from tapstore.handoffs.names import HandoffName, Stamp, check_role, name_for, render_id
from tapstore.handoffs.types import COMMON, OPTIONAL, RESERVED, MessageType

MAX_BYTES = 64 * 1024

MAX_FAULTS = 50

Resolve = Callable[[str], str]
"""The one written form of a commit; raises `FormatError` if it is not exactly one commit.  Any
other error (no git, no repository) is not the draft's fault and is passed on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong; `line` counts from 1, and is None if a line is missing."""

    line: int | None
    reason: str

    def __str__(self) -> str:
        if self.line is None:
            return self.reason
        return f"Line {self.line}: {self.reason}"


class DraftError(FormatError):
    """A draft that is refused: all its faults, and the form that is expected."""

    exit_code = 2

    def __init__(self, name: str, faults: tuple[Fault, ...], expected: str) -> None:
        self.faults = faults
        self.expected = expected
        listed = "\n".join(f"- {fault}" for fault in faults[:MAX_FAULTS])
        if len(faults) > MAX_FAULTS:
            listed += f"\n- … and {len(faults) - MAX_FAULTS} more"
        super().__init__(f"HANDOFF INVALID: {name}\n\nErrors:\n{listed}\n\n{expected}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft that was checked."""

    type: MessageType
    sender: str
    recipients: tuple[str, ...]
    headers: Mapping[str, str]
    """As the agent wrote them, but commits in their one form."""

    def message(self, stamp: Stamp, *, created_at: float) -> tuple[HandoffName, Message]:
        """The message to queue, and the name of its file.

        `created_at` is in seconds since the epoch.
        """
        name = name_for(int(self.headers["priority"]), stamp, self.sender, self.recipients)
        headers = {"id": render_id(stamp, self.sender), "from": self.sender, **self.headers}
        for header, template in self.type.adds.items():
            value = message_types.fill(template, headers)
            if value:
                headers[header] = value
        headers["created_at"] = write_time(created_at)
        return name, Message(headers, self.type.render_body(headers))


Given = bytes | Mapping[str, str]
"""A draft as the bytes of its file, or as its headers."""


def write(headers: Mapping[str, str]) -> bytes:
    """The draft that has these headers.  Raises `FormatError` for what no line can hold."""
    for header, value in headers.items():
        fault = header_fault(header, value)
        if fault:
            raise FormatError(fault)
    return "".join(f"{header}: {value}\n" for header, value in headers.items()).encode(
        errors="surrogatepass"  # so that the check can say where it is no text
    )


def check(
    data: Given,
    *,
    sender: str,
    roles: Collection[str],
    resolve: Resolve,
    types: Mapping[str, MessageType] | None = None,
    name: str = "draft",
) -> Draft:
    """A draft, for a `sender` among whose swarm's `roles` all recipients are.

    Raises `DraftError` with all faults, and `InvalidKeyError` for the sender.
    """
    check_role(sender)
    if sender not in roles:
        raise InvalidKeyError(f"Unknown sender role: {sender!r}; known are {_known(roles)}")
    checking = _Checking(types or message_types.built_in(), roles)
    data = data if isinstance(data, bytes) else write(data)
    return checking.check(data, sender, resolve, name)


class _Checking:
    """One draft being checked; faults are gathered."""

    def __init__(self, types: Mapping[str, MessageType], roles: Collection[str]) -> None:
        self._types = types
        self._roles = roles
        self._faults: list[Fault] = []
        self._headers: dict[str, str] = {}
        self._lines: dict[str, int] = {}
        self._own = {header for declared in types.values() for header in declared.headers}

    def check(self, data: bytes, sender: str, resolve: Resolve, name: str) -> Draft:
        lines = self._read(data)
        if lines is None:
            raise DraftError(name, tuple(self._faults), self._expected(None))
        # Not splitlines(): that also breaks at characters that are part of a value.
        for number, line in enumerate(lines, 1):
            self._line(number, line.removesuffix("\r"))
        declared = self._common()
        recipients = self._recipients()
        if declared is not None:
            self._of_type(declared, resolve)
        # A message that is beyond what a file may hold is the draft's fault, too.
        if not self._faults and declared is not None:
            draft = Draft(declared, sender, recipients, self._headers)
            try:
                render(draft.message(Stamp(0, 0), created_at=0)[1])
            except (FormatError, InvalidKeyError) as exc:
                self._fault(None, str(exc))
            else:
                return draft
        faults = sorted(self._faults, key=lambda f: (f.line is None, f.line or 0))
        raise DraftError(name, tuple(faults), self._expected(declared))

    def _read(self, data: bytes) -> list[str] | None:
        if len(data) > MAX_BYTES:
            self._fault(None, f"The draft has {len(data):,} bytes; at most {MAX_BYTES:,} are read.")
            return None
        try:
            return data.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as exc:
            line = data.count(b"\n", 0, exc.start) + 1
            self._fault(line, f"it is not UTF-8 ({exc.reason}).")
            return None

    def _line(self, number: int, line: str) -> None:
        if "" in self._lines:
            if line.strip():
                self._fault(
                    number,
                    "draft handoffs may contain headers only; payloads are generated when it is "
                    "sent. Remove everything after the first empty line.",
                )
            return
        if not line.strip():
            self._lines[""] = number
            return
        header, separator, value = line.partition(": ")
        if not separator:
            self._fault(number, f"expected 'field: value'; got {_cut(line)}.")
        elif not header.strip() or not value.strip():
            self._fault(number, "field and value must both be non-empty.")
        elif header in RESERVED or header.startswith("tapstore"):
            self._fault(
                number, f"header '{_plain(header)}' is reserved and must not be written by agents."
            )
        elif header not in COMMON and header not in OPTIONAL and header not in self._own:
            self._fault(number, f"unknown header {_cut(header)}.")
        elif header in self._headers:
            self._fault(
                number, f"duplicate header '{header}'; it is in line {self._lines[header]} already."
            )
        else:
            self._headers[header] = value
            self._lines[header] = number
            fault = header_fault(header, value)
            if fault is None and header not in COMMON:
                fault = known_fault(header, value)
                fault = fault and f"header '{header}': {fault}"
            if fault:
                self._fault(number, f"{fault}.")

    def _common(self) -> MessageType | None:
        for header in COMMON:
            if header not in self._headers:
                self._fault(None, f"Missing required header '{header}'.")
        priority = self._headers.get("priority")
        fault = known_fault("priority", priority) if priority is not None else None
        if fault:
            self._fault(self._lines["priority"], f"header 'priority' {fault}.")
        name = self._headers.get("type")
        declared = self._types.get(name) if name is not None else None
        if name is not None and declared is None:
            self._fault(
                self._lines["type"],
                f"header 'type' must be one of {_known(self._types)}; got {_cut(name)}.",
            )
        return declared

    def _recipients(self) -> tuple[str, ...]:
        if "to" not in self._headers:
            return ()
        line = self._lines["to"]
        recipients = self._headers["to"].split(",", MAX_RECIPIENTS)
        if len(recipients) > MAX_RECIPIENTS:
            self._fault(line, f"header 'to' names more than {MAX_RECIPIENTS} recipients.")
            return ()
        seen = set()
        for role in recipients:
            if not role.strip():
                self._fault(line, "header 'to' contains an empty recipient.")
                continue
            if role in seen:
                self._fault(line, f"duplicate recipient {_cut(role)}.")
            elif "_" in role:
                self._fault(
                    line,
                    f"recipient role {_cut(role)} is invalid; role names may not contain "
                    "underscores.",
                )
            elif role not in self._roles:
                hint = ""
                if role.strip() in self._roles:
                    hint = "; write no spaces around names"
                self._fault(
                    line,
                    f"unknown recipient role {_cut(role)}{hint}; known are {_known(self._roles)}.",
                )
            else:
                fault = known_fault("recipient", role)
                if fault:
                    self._fault(line, f"{fault}.")
            seen.add(role)
        return tuple(recipients)

    def _of_type(self, declared: MessageType, resolve: Resolve) -> None:
        for header in declared.headers.values():
            if header.required and header.name not in self._headers:
                self._fault(None, f"Missing required header '{header.name}' for {declared.name}.")
        for name, value in tuple(self._headers.items()):
            if name in COMMON or name in OPTIONAL:
                continue
            line = self._lines[name]
            rule = declared.headers.get(name)
            if rule is None:
                others = _known(t.name for t in self._types.values() if name in t.headers)
                self._fault(
                    line,
                    f"header '{name}' is not allowed for type '{declared.name}', only for "
                    f"{others}.",
                )
                continue
            fault = rule.fault(value)
            if fault is None and rule.is_commit:
                try:
                    self._headers[name] = resolve(value)
                except FormatError as exc:
                    fault = str(exc)
            if fault:
                self._fault(line, f"header '{name}' {fault}.")

    def _expected(self, declared: MessageType | None) -> str:
        if declared is not None:
            shown = f"Expected {declared.name} format:\n\n{declared.form()}"
        else:
            forms = "\n\n".join(t.form() for t in self._types.values())
            shown = f"Draft formats:\n\n{forms}"
        optional = "\n".join(f"{header}: {form}" for header, form in OPTIONAL.items())
        return f"{shown}\n\nEach may also have:\n\n{optional}"

    def _fault(self, line: int | None, reason: str) -> None:
        self._faults.append(Fault(line, reason))


def _known(words: Collection[str] | Iterator[str]) -> str:
    listed = sorted(words)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return ", ".join(map(_plain, listed[:20])) + more if listed else "none"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:60]


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
