"""A hand-off as bytes and as a value: header block, empty line, body.  Pure.

What one wrote the other reads: `parse(render(m)) == m` for every message that can be rendered.  A
header can neither end its line nor the block, and is there once, so all readers see the same.

It does not say whether the type knows the headers (`types`), nor whether the recipients exist; the
body is opaque.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tapstore.clock import format_time, parse_time
from tapstore.errors import FormatError, InvalidKeyError, NotAllowedError
from tapstore.handoffs import references
from tapstore.handoffs.names import check_role, parse_id
from tapstore.handoffs.references import Reference
from tapstore.tapfile.times import canonical_time

MAX_BYTES = 1 << 20

MAX_HEADER_BYTES = 64 * 1024
"""Of the whole header block."""

MAX_HEADERS = 100

MAX_RECIPIENTS = 500

TIMES = ("created_at", "enqueued_at", "dequeued_at", "completed_at")
"""When it was queued, delivered, accepted and completed."""

State = Literal["queued", "delivered", "accepted", "completed"]

REQUIRED = ("id", "from", "to", "priority", "type")

_QUEUED = ("id", "from", "to", "priority", "type", "role", "task", "commit", "message")
_QUEUED_ORDER = {name: at for at, name in enumerate((*_QUEUED, "created_at"))}
_DELIVERED = ("id", "from", "to", "recipient", "priority", "type", "role", "commit", "message")
_DELIVERED_ORDER = {name: at for at, name in enumerate((*_DELIVERED, *TIMES))}

_SHORT = 200
"""Characters of a value for which it is remembered whether it is well-formed."""

_BOM = b"\xef\xbb\xbf"
_BLANK_LINE = re.compile(rb"(?:\A|\n)\r?\n")
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PRIORITY = re.compile(r"[0-9]{2}")
_USUAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CORRELATION = re.compile(r"[A-Za-z0-9._:@+-]{1,160}")

# What ends a line for some reader (Python's splitlines, JavaScript, a terminal), and what steers a
# terminal.  A tab may stay: the original scripts let it through.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class UnfinishedError(FormatError):
    """No empty line ends the header block: somebody may still be writing the file."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, or one recipient's copy of it.  Equal if headers and body are.

    The properties of a message that was parsed do not raise; others are held to the rules when
    they are rendered.
    """

    headers: Mapping[str, str]
    """Every header by its name, in any order."""

    body: str
    """All that stands behind the empty line, as it is."""

    @property
    def id(self) -> str:
        """The same for all copies."""
        return self.headers["id"]

    @property
    def type(self) -> str:
        return self.headers["type"]

    @property
    def sender(self) -> str:
        """`from`: as the sender says; nothing proves it."""
        return self.headers["from"]

    @property
    def recipients(self) -> tuple[str, ...]:
        """All roles that it was sent to."""
        return tuple(self.headers["to"].split(","))

    @property
    def recipient(self) -> str:
        """Whose copy this is; empty before delivery."""
        return self.headers.get("recipient", "")

    @property
    def priority(self) -> int:
        """0 to 99, lower first."""
        return int(self.headers["priority"])

    @property
    def artifacts(self) -> tuple[Reference, ...]:
        """The artifacts that it names, with their checksums."""
        value = self.headers.get("artifacts")
        return references.parse(value) if value else ()

    @property
    def state(self) -> State:
        """How far it came.  The last time counts: a crash may have left out one before it."""
        if "completed_at" in self.headers:
            return "completed"
        if "dequeued_at" in self.headers:
            return "accepted"
        return "delivered" if "enqueued_at" in self.headers else "queued"

    def time(self, header: str) -> float | None:
        """Seconds since the epoch of one of `TIMES`; None if the message does not have it yet."""
        value = self.headers.get(header)
        return None if value is None else parse_time(value)


def deliver(message: Message, *, recipient: str, at: float) -> Message:
    """The copy for one recipient, delivered at `at` (seconds since the epoch).

    Raises `NotAllowedError` if the message is not to that role.
    """
    if recipient not in message.recipients:
        raise NotAllowedError(
            f"hand-off {message.id} is not for {recipient!r}; it is for "
            f"{', '.join(message.recipients)}"
        )
    return _with(message, recipient=recipient, enqueued_at=write_time(at))


def accept(message: Message, *, at: float) -> Message:
    """The copy as it is accepted at `at`, for the first time or again."""
    return _with(message, dequeued_at=write_time(at))


def complete(message: Message, *, at: float) -> Message:
    """The copy as it is completed at `at`; all of a batch have the same time."""
    return _with(message, completed_at=write_time(at))


def _with(message: Message, **headers: str) -> Message:
    return Message({**message.headers, **headers}, message.body)


def write_time(at: float) -> str:
    """`2026-06-15T14:05:31Z`, with up to three digits of the second if there are any."""
    milliseconds = math.floor(at * 1000)
    second = format_time(milliseconds // 1000)
    digits = f"{milliseconds % 1000:03d}".rstrip("0")
    return f"{second[:-1]}.{digits}Z" if digits else second


def render(message: Message) -> bytes:
    """The file of a message: UTF-8, `\\n` ends its lines, known headers first, others sorted.

    Raises `FormatError` for what `parse` would refuse or read as something else.
    """
    headers = message.headers
    for name, value in headers.items():
        fault = header_fault(name, value)
        if fault:
            raise FormatError(f"the hand-off cannot be written: {fault}")
    fault = _fault(headers)
    if fault:
        raise FormatError(f"the hand-off cannot be written: {fault}")
    # A recipient's copy keeps the order in which the original delivery writes.
    order = _DELIVERED_ORDER if "recipient" in headers else _QUEUED_ORDER
    names = sorted(headers, key=lambda name: (order.get(name, len(order)), name))
    try:
        block = "".join(f"{name}: {headers[name]}\n" for name in names).encode()
        body = message.body.encode()
    except UnicodeEncodeError as exc:
        raise FormatError(
            f"hand-off {headers['id']} cannot be written: it has the lone surrogate "
            f"{exc.object[exc.start]!r}, which is not Unicode text"
        ) from exc
    fault = _size_fault(len(block), len(block) + 1 + len(body)) or _body_fault(message.body)
    if fault:
        raise FormatError(f"hand-off {headers['id']} cannot be written: {fault}")
    return b"%b\n%b" % (block, body)


def parse(data: bytes, *, name: str = "hand-off") -> Message:
    """The message in a file; `name` is for errors.

    Lines of the header block may end in CRLF, and a BOM may stand before them.  Raises
    `UnfinishedError` if the block does not end, otherwise `FormatError`, with line and reason.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(f"{name}: it has {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    data = data.removeprefix(_BOM)
    end = _BLANK_LINE.search(data, 0, MAX_HEADER_BYTES + 1)
    if end is None:
        fault = _size_fault(len(data), 0)
        if fault:
            raise FormatError(f"{name}: {fault}")
        raise UnfinishedError(
            f"{name}: no empty line ends its headers; somebody may still be writing it"
        )
    headers: dict[str, str] = {}
    # The break that ends the last header is the first byte of the match.
    block = _decode(data[: end.start()], name, 1)
    lines = block.split("\n", MAX_HEADERS) if block else []
    if len(lines) > MAX_HEADERS:
        raise FormatError(f"{name}: it has more than {MAX_HEADERS} headers")
    for number, line in enumerate(lines, 1):
        field, separator, value = line.removesuffix("\r").partition(": ")
        fault = header_fault(field, value) if separator else f"{_cut(line)} is no 'field: value'"
        if not fault and field in headers:
            fault = f"the header {field!r} is there twice"
        if fault:
            raise FormatError(f"{name}, line {number}: {fault}")
        headers[field] = value
    fault = _fault(headers)
    if fault:
        raise FormatError(f"{name}: {fault}")
    body = _decode(data[end.end() :], name, len(lines) + 2)
    fault = _body_fault(body)
    if fault:
        raise FormatError(f"{name}: {fault}")
    return Message(headers, body)


def is_whole(data: bytes) -> bool:
    """Whether a file that can be read looks finished: headers, empty line, body with a last break.

    A hint for folders in which others write in place.
    """
    return data.endswith(b"\n") and _BLANK_LINE.search(data, 0, MAX_HEADER_BYTES + 1) is not None


def header_fault(name: str, value: str) -> str | None:
    """Why this can't be a line of a header block, or None."""
    if len(value) <= _SHORT:
        return _header_fault_again(name, value)
    return _header_fault(name, value)


def _header_fault(name: str, value: str) -> str | None:
    if _HEADER_NAME.fullmatch(name) is None:
        return f"{_cut(name)} is no name of a header: letters, digits, '_', '-' and '.', at most 64"
    if not value or value.isspace():
        return f"the header {name!r} has no value"
    match = _CONTROL.search(value)
    if match:
        return f"the header {name!r} contains {match.group()!r}; a value is one line of plain text"
    return None


def known_fault(name: str, value: str) -> str | None:
    """Why the value can't be that of a header whose form is fixed, or None."""
    if name not in _CHECKS:
        return None
    if len(value) <= _SHORT:
        return _known_fault_again(name, value)
    return _known_fault(name, value)


def _known_fault(name: str, value: str) -> str | None:
    check = _CHECKS[name]
    try:
        return check(value)
    except (FormatError, InvalidKeyError) as exc:
        return str(exc)


# The copies of a message on its way have the same headers but one or two.
_header_fault_again = lru_cache(maxsize=2048)(_header_fault)
_known_fault_again = lru_cache(maxsize=2048)(_known_fault)


def _fault(headers: Mapping[str, str]) -> str | None:
    if len(headers) > MAX_HEADERS:
        return f"it has more than {MAX_HEADERS} headers"
    missing = [name for name in REQUIRED if name not in headers]
    if missing:
        return f"it lacks the header {' and '.join(map(repr, missing))}"
    for name in _CHECKS:
        if name in headers:
            fault = known_fault(name, headers[name])
            if fault:
                return f"header {name!r}: {fault}"
    if "recipient" in headers and headers["recipient"] not in headers["to"].split(","):
        return f"the recipient {headers['recipient']!r} is not among {_cut(headers['to'])}"
    return None


def _role(value: str) -> None:
    check_role(value)


def _id(value: str) -> None:
    parse_id(value)


def _to(value: str) -> str | None:
    if value.count(",") >= MAX_RECIPIENTS:
        return f"it names more than {MAX_RECIPIENTS} roles"
    roles = value.split(",")
    for role in roles:
        check_role(role)
    return f"{_cut(value)} names a role twice" if len(set(roles)) < len(roles) else None


def _priority(value: str) -> str | None:
    if _PRIORITY.fullmatch(value):
        return None
    return f"must be two digits from 00 to 99; got {_cut(value)}"


def _type(value: str) -> str | None:
    return None if _TYPE.fullmatch(value) else f"{_cut(value)} is no name of a type"


def _time(value: str) -> str | None:
    try:
        if _USUAL_TIME.fullmatch(value) is None:
            canonical_time(value)
        parse_time(value)
    except (ValueError, OverflowError):
        return f"{_cut(value)} is no time; it looks like 2026-06-15T14:05:31Z"
    return None


def _artifacts(value: str) -> None:
    references.parse(value)


def _correlation(value: str) -> str | None:
    if _CORRELATION.fullmatch(value):
        return None
    return f"{_cut(value)} is no correlation id: letters, digits and '._:@+-', at most 160"


_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "id": _id,
    "from": _role,
    "to": _to,
    "recipient": _role,
    "priority": _priority,
    "type": _type,
    "role": _role,
    "artifacts": _artifacts,
    "reply_to": _id,
    "correlation_id": _correlation,
    **dict.fromkeys(TIMES, _time),
}


def _size_fault(header_bytes: int, all_bytes: int) -> str | None:
    if header_bytes > MAX_HEADER_BYTES:
        return f"its headers have more than {MAX_HEADER_BYTES:,} bytes"
    if all_bytes > MAX_BYTES:
        return f"it has {all_bytes:,} bytes; at most {MAX_BYTES:,} are read"
    return None


def _body_fault(body: str) -> str | None:
    return "its body contains NUL, so it is no text" if "\0" in body else None


def _decode(data: bytes, name: str, first_line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        line = first_line + data.count(b"\n", 0, exc.start)
        raise FormatError(f"{name}, line {line}: it is not UTF-8: {exc.reason}") from exc


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
