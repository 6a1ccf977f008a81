"""Who a process is, so that another one on the same host can tell for certain that it is dead.

In doubt it is alive: on another host, in another container, on a system without /proc.
"""

from __future__ import annotations

import os

import msgspec

_DEAD = ("Z", "X", "x")
"""States of a process that has ended, but whose parent has not asked how yet."""


class Process(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of one boot of one kernel; all empty where that cannot be told."""

    boot: str = ""
    """Differs after each start of the kernel, and between kernels."""

    namespace: str = ""
    """In which `pid` means anything: containers on one host have their own."""

    pid: int = 0
    started: str = ""
    """In ticks since boot: a pid that was given to another process has another one."""


def myself() -> Process:
    """The identity of this process; asked again after a fork."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        _, started = _status(os.getpid())
    except (OSError, ValueError):
        return Process()
    return Process(boot=boot, namespace=namespace, pid=os.getpid(), started=started)


def is_dead(process: Process, *, here: Process) -> bool:
    """Whether `process` has certainly ended, as far as the process `here` (us) can tell."""
    if not process.boot or (process.boot, process.namespace) != (here.boot, here.namespace):
        return False
    try:
        # Asked of the kernel first: /proc may hide the processes of other users.
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    try:
        state, started = _status(process.pid)
    except (OSError, ValueError):
        return False
    return state in _DEAD or started != process.started


def _status(pid: int) -> tuple[str, str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The second field is the name in parentheses, which may contain anything.
        fields = file.read().rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields")
    return fields[0], fields[19]
