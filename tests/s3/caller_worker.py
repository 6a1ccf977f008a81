"""Commits in a bucket until Ctrl-C: `caller_worker.py URL NAME`.  Prints what was acknowledged."""

from __future__ import annotations

import json
import os
import sys

import tapstore


def main(url: str, name: str) -> None:
    options = json.loads(os.environ["STORAGE_OPTIONS"])
    number = 0
    with tapstore.open(url, storage_options=options) as session:
        print("ready", flush=True)
        while True:
            reason = f"{name}-{number}"
            with session.lock("turn", ttl=3, wait=30):
                session.set_phase("p", reason=reason)
            session.publish(reason, reason.encode() * 1000)
            os.write(1, f"{reason}\n".encode())
            number += 1


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
