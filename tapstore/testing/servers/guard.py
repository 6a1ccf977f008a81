"""Run a program that must not outlive the process that asked for it, nor leave its folder.

    python guard.py PARENT_PID FOLDER REPORT_FD PROGRAM [ARGUMENT …]

The program's pid is written to REPORT_FD, as a line.  SIGTERM ends the program, after ten seconds
by force.  When the parent is gone, for whatever reason, the program and all that it started are
killed and the folder is removed.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 10
TIDY_SECONDS = 5


def main(parent: int, folder: str, report: int, program: list[str]) -> int:
    # PDEATHSIG alone would not do: it fires when the *thread* that forked ends.  Between here and
    # the parent is therefore a pidfd, and PDEATHSIG only between the program and this process,
    # which has one thread.
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        return 1
    if os.getppid() != parent:  # it ended before, and its pid is another's now
        return 1
    this = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != this:
            os._exit(1)

    child = subprocess.Popen(program, start_new_session=True, preexec_fn=tie)
    signal.signal(signal.SIGTERM, lambda *_: _end(child.pid))
    signal.signal(signal.SIGALRM, lambda *_: _signal_group(child.pid, signal.SIGKILL))
    os.write(report, b"%d\n" % child.pid)
    os.close(report)

    poll = select.poll()
    ended = os.pidfd_open(child.pid)
    for fd in (watched, ended):
        poll.register(fd, select.POLLIN)
    orphaned = all(fd != ended for fd, _ in poll.poll())
    # Not reaped yet, so the number of its group can't have become another's.
    _signal_group(child.pid, signal.SIGKILL)
    code = child.wait()
    if orphaned:
        _remove(folder)
    return code if code >= 0 else 128 - code


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)  # a test may have stopped it
    signal.alarm(GRACE_SECONDS)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _remove(folder: str) -> None:
    # Other programs of the same server write into it until their own guards have ended them.
    deadline = time.monotonic() + TIDY_SECONDS
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
