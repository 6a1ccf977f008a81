"""A Python in a guest that keeps its variables from one line to the next.

    with Interpreter(client) as there:
        there.run("import tapstore; session = tapstore.open('/run/nfs/s')")
        assert there.ask("session.phase") == "start"

`begin` and `answer` are the halves of `ask`, for what is to happen on several guests at once.
"""

from __future__ import annotations

import json
import sys
import traceback
from types import TracebackType
from typing import Any

from tests.servers.nfs_client import Client, Running


class RemoteError(Exception):
    """What was raised in the guest; `kind` is the name of its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Interpreter:
    """Leaving the context kills it."""

    def __init__(self, client: Client) -> None:
        self.process: Running = client.python(__file__)
        self.client = client

    def run(self, source: str) -> None:
        """Execute statements."""
        self._send("exec", source)
        self.answer()

    def ask(self, source: str) -> Any:
        """Return the value of an expression, which JSON must know."""
        self.begin(source)
        return self.answer()

    def begin(self, source: str) -> None:
        self._send("eval", source)

    def answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise RemoteError("EOF", self.process.stderr)
        found = json.loads(line)
        if "error" in found:
            raise RemoteError(found["error"], found["text"])
        return found["value"]

    def _send(self, kind: str, source: str) -> None:
        self.process.send(json.dumps([kind, source]) + "\n")

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.__exit__(kind, error, trace)


def main() -> None:
    variables: dict[str, Any] = {}
    for line in sys.stdin:
        kind, source = json.loads(line)
        try:
            code = compile(source, "<the test>", kind)
            found = {"value": eval(code, variables)}
        except Exception as exc:
            traceback.print_exc()
            found = {"error": type(exc).__name__, "text": str(exc)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
