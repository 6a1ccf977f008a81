"""Runs what is to be refused to those who may not, also where the tests are run by root."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

NOBODY = 65534


def as_nobody(action: Callable[[], object]) -> bool:
    """Run `action` in a child whom modes hold for; True if it raised nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0
