"""Where the hand-offs of a role lie in a session.  Pure.

What waits is split by priority and time, so that no folder holds more than about a hundred of one
sender's messages and the first one is found without a look at the others.  The order of the keys
is the order of the names.
"""

from __future__ import annotations

import re

from tapstore.handoffs.names import check_role

PREFIX = "handoffs/"

SETTINGS_KEY = ".tap/handoffs.yaml"

BATCH_MARK = "batch_"
"""How the name of a batch begins; no message's does."""

_BATCH = re.compile(rf"{BATCH_MARK}[A-Za-z0-9_]{{1,100}}")


class Places:
    """The keys of one role's mailbox.  `name` is a file name that `names.parse` takes."""

    def __init__(self, role: str) -> None:
        """Raises `InvalidKeyError` for a role that takes no part in hand-offs."""
        self.role = check_role(role)
        self.base = f"{PREFIX}{role}/"
        self.outbox = f"{self.base}outbox/"
        self.sent_prefix = f"{self.base}sent/"
        self.failed = f"{self.base}failed/"
        self.sequence = f"{self.base}sequence/"
        self.new = f"{self.base}inbox/new/"
        self.in_process = f"{self.base}inbox/in_process/"
        self.completed_prefix = f"{self.base}inbox/completed/"
        self.dead = f"{self.base}inbox/dead/"

    def waiting(self, name: str) -> str:
        """`new/<priority>_<hour>/<minute>/<second>/<hundreds of the sequence>/<name>`."""
        return f"{self.new}{name[:2]}_{name[3:14]}/{name[14:16]}/{name[16:18]}/{name[20:24]}/{name}"

    def attempt(self, name: str, number: int) -> str:
        """Who accepted it, the `number`th time."""
        return f"{self.in_process}{name}~{number}"

    def completed(self, name: str) -> str:
        """How it ended: completed or dead."""
        return f"{self.completed_prefix}{name[3:14]}/{name}"

    def sent(self, name: str) -> str:
        return f"{self.sent_prefix}{name[3:14]}/{name}"


def split_attempt(file_name: str) -> tuple[str, int]:
    """The name of the message and the number of the attempt; 0 if it is no attempt."""
    name, mark, number = file_name.rpartition("~")
    if not mark or not number.isascii() or not number.isdecimal() or len(number) > 6:
        return file_name, 0
    return name, int(number)


def is_batch(name: str) -> bool:
    """Whether this can be the id of a batch."""
    return _BATCH.fullmatch(name) is not None


def file_name(key: str) -> str:
    """What stands behind the last `/`."""
    return key.rpartition("/")[2]
