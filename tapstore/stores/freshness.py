"""Makes a mount that remembers names look at the server again.

An NFS client remembers for half a minute and more which file a name stood for, or that it stood
for none, although another host has changed that meanwhile.  What makes it ask again is opening
the folder that the name is in (close-to-open consistency): one small request, and none on a disk.

Not promised: anything on mounts with `nocto`, which switches just that off (`mounts` tells).
"""

from __future__ import annotations

import os

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


def refresh(folder: str) -> bool:
    """Have the names in `folder` asked for again; False if it is not there."""
    if _opens(folder):
        return True
    above = os.path.dirname(folder)
    # Its own absence may be a memory, too.
    return above != folder and refresh(above) and _opens(folder)


def _opens(folder: str) -> bool:
    try:
        os.close(os.open(folder, _FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # It may not be read: there is no more to be done about what is remembered of it.
        return True
    return True
