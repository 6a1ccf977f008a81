"""One of several clients that race in a bucket: `race_worker.py create|count URL NAME …`.

Options of the place come as JSON in `STORAGE_OPTIONS`.  Prints what it has won, one a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import tapstore
from tapstore.errors import AlreadyExistsError
from tapstore.registry import open_store


def create(url: str, name: str, clients: str, rounds: str) -> None:
    """Create the keys 0, 1, …, each when all clients of this process are there."""
    barrier = threading.Barrier(int(clients))

    def race(number: int) -> None:
        store = open_store(url, storage_options=OPTIONS)
        for key in range(int(rounds)):
            barrier.wait()
            try:
                store.put(str(key), f"{name}-{number}".encode())
            except AlreadyExistsError:
                continue
            print(key, f"{name}-{number}", flush=True)
        store.close()

    threads = [threading.Thread(target=race, args=(n,)) for n in range(int(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def count(url: str, name: str, times: str) -> None:
    """Add 1 to a number in the session, so many times."""
    with tapstore.open(url, storage_options=OPTIONS) as session:
        for number in range(int(times)):

            def add(document: dict[str, int]) -> None:
                document["count"] += 1

            session.edit(add, by=name, reason=f"{name}-{number}", timeout=300)
            print(f"{name}-{number}", flush=True)


OPTIONS = json.loads(os.environ["STORAGE_OPTIONS"])

if __name__ == "__main__":
    {"create": create, "count": count}[sys.argv[1]](*sys.argv[2:])
