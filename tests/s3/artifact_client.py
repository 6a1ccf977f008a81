"""A program that publishes and fetches: `artifact_client.py publish|fetch|die URL FILE`.

`STORAGE_OPTIONS` and `ARTIFACT_OPTIONS` are JSON.  Prints JSON: what was registered, and how much
the peak of memory has grown by it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import tapstore


def main(what: str, url: str, file: str) -> None:
    with tapstore.open(url, **_options()) as session:
        # What the libraries take is taken before it is counted.
        session.publish(f"warm-{what}", b"warm" * 4096)
        session.artifacts[f"warm-{what}"].read_bytes()
        before = _peak_bytes()
        if what == "die":
            session.stage("large", Path(file))
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "publish":
            artifact = session.publish("large", Path(file))
        else:
            artifact = session.artifacts["large"].artifact
            session.artifacts["large"].save(file)
        print(json.dumps({"path": artifact.path, "grown": _peak_bytes() - before}))


def _options() -> dict[str, object]:
    names = ("storage_options", "artifact_options")
    return {name: json.loads(os.environ.get(name.upper(), "null")) for name in names}


def _peak_bytes() -> int:
    # Not getrusage: that also counts the process that this one was forked from.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell the peak of memory")


if __name__ == "__main__":
    main(*sys.argv[1:])
